"""`goal`: change the campaign's objective; the old one stays in the timeline."""

from __future__ import annotations

from autoresearch import campaign, knobs, talk
from autoresearch.sessions import session


def run() -> int:
    """Write the new objective; metric, direction and stop rules stay as they were approved."""
    where = campaign.find()
    old, new = session.set_goal(where, knobs.required("TEXT", "'...'"))
    talk.out(f"objective: {new}")
    talk.out(f"before: {old or 'none given'}")
    talk.out("metric, direction and stop rule stay as approved; another metric needs a new campaign")
    talk.out(f"next: make status CAMPAIGN={where.name}")
    return 0
