"""`approve`: record the user's yes to exactly this plan."""

from __future__ import annotations

import getpass

from autoresearch import campaign, files, knobs, plan, planning, talk
from autoresearch.errors import Refused
from autoresearch.sessions import session
from autoresearch.verbs import plan as plan_verb


def run() -> int:
    """Show the plan, ask, record the yes; YES=1 is the yes where there is no terminal."""
    where = campaign.find()
    made, data = plan.load(where.plan)
    planning.check_by_hand(made)
    planning.check_under_rows(where, made)
    plan_verb.show(where, made)
    if not (knobs.flag("YES") or talk.confirmed(f"Approve this plan of campaign {where.name}?")):
        raise Refused("approval", "no yes was given", f"make approve CAMPAIGN={where.name} YES=1")
    with files.locked(where.lock):
        campaign.approve(where, made, data, by=user())
    session.checkpoint(where, f"{session.APPROVED} the plan", f"stop rule: {made.stop or 'none given'}")
    campaign.remember(where)
    talk.note(f"approved; next: make baseline CAMPAIGN={where.name}")
    return 0


def user() -> str:
    """Return who decides: the account's name, or its number where it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        import os

        return f"uid {os.getuid()}"
