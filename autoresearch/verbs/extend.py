"""`extend`: change the stop rule by a new approval; the history is kept."""

from __future__ import annotations

from autoresearch import campaign, knobs, plan, planning, recovery, talk
from autoresearch.errors import Refused
from autoresearch.sessions import session
from autoresearch.verbs.approve import user


def run() -> int:
    """Show old and new rule in explicit values, ask, approve; the deadline counts from the first launch still."""
    opened = campaign.open_approved()
    recovery.finish(opened)
    text = knobs.required("STOP", "'80 experiments or 20h total, 1h each'")
    old = opened.plan
    made = planning.with_rule(old, text)
    talk.out(f"stop rule so far: {old.stop or 'none given'}")
    talk.out(f"new stop rule:    {text}")
    talk.out(talk.pairs([(f"  {key}", value) for key, value in made.understood.items()]))
    if not (knobs.flag("YES") or talk.confirmed("Approve this stop rule?")):
        raise Refused("extend", "no yes was given", f"make extend CAMPAIGN={opened.name} STOP='{text}' YES=1")
    with opened.locked():
        data = plan.save(opened.where, made)
        campaign.approve(opened.where, made, data, by=user())
    session.checkpoint(opened.where, f"{session.EXTENDED} the stop rule", f"{old.stop or 'none'} -> {text}")
    talk.note("approved; make status shows where the campaign stands")
    return 0
