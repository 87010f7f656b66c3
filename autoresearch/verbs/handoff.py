"""`handoff`: write and print what whoever goes on needs first."""

from __future__ import annotations

import json

from autoresearch import campaign, knobs, recovery, talk
from autoresearch.sessions import resuming, session, session_files, session_summary, session_text


def run() -> int:
    """Write handoff.md from the records, with every mismatch that was found, and print it."""
    where = campaign.find()
    notes = session.begin(where)
    session.checkpoint(where, "hand-over")
    secrets = session_text.secrets_of(where)
    with session_files.locked(where):
        now = session_summary.refresh(where, notes)
        if now:
            recovery.start_detached(now.opened, now.states)
        found = resuming.mismatches(now, notes) if now else []
        page = session_files.parse(session_files.read(notes.state))
        if now:
            extra = [f"mismatch: {text}" for text in found[:10]]
            session_files.swap(notes.handoff, session_summary.handoff_text(notes, now, secrets, page, extra))
    if knobs.flag("JSON"):
        talk.out(json.dumps(data(notes), indent=2, allow_nan=False))
        return 0
    for line in session_files.read(notes.handoff).rstrip("\n").split("\n"):
        talk.out(talk.plain(line))
    talk.out(f"written: {notes.handoff}; next: make resume CAMPAIGN={where.name}")
    return 0


def data(notes: session_files.Notes) -> dict[str, object]:
    """Return the hand-over as data; the schema is in docs/json.md."""
    page = session_files.parse(session_files.read(notes.handoff))
    lines = {name: [line[2:] for line in page.sections.get(name, [])] for name in session_files.HANDOFF}
    return {
        "session": notes.directory,
        "handoff": notes.handoff,
        "resume_from_here": lines["Resume From Here"],
        "next_actions": lines["Next Actions"],
        "watch_outs": lines["Watch Outs"],
        "next": lines["Next Actions"][0] if lines["Next Actions"] else "",
    }
