"""`note`: a line of steering, a decision, a blocker, an assumption or a skill, into the session's notes."""

from __future__ import annotations

from autoresearch import campaign, knobs, talk
from autoresearch.sessions import session


def run() -> int:
    """Write the note; the objective and the stop rules stay as they are."""
    where = campaign.find()
    kind = knobs.text("KIND", "note").lower()
    written = session.note(where, kind, knobs.required("TEXT", "'...'"))
    talk.out(f"{kind}: {written}")
    talk.out(f"objective, unchanged: {talk.one_line(session.objective(where), 400) or 'none given'}")
    talk.out(f"next: make resume CAMPAIGN={where.name}, or go on")
    return 0
