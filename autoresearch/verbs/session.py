"""`session`: show the campaign's session notes, or start new ones."""

from __future__ import annotations

import os

from autoresearch import campaign, knobs, talk
from autoresearch.sessions import session, session_files, session_summary

SHOWN = 50


def run() -> int:
    """Print where the notes lie and what the state says; NEW=1 starts a new session, the old one stays."""
    where = campaign.find()
    had = session_files.current(where)
    notes = session.begin(where, new=knobs.flag("NEW"))
    if notes != had:
        with session_files.locked(where):
            session_summary.refresh(where, notes)
    talk.out(f"session {notes.directory}")
    lines = [line for line in session_files.read(notes.state).split("\n") if line]
    for line in lines[:SHOWN]:
        talk.out(talk.one_line(line, 300))
    if len(lines) > SHOWN:
        talk.out(f"... {len(lines) - SHOWN} more lines in {os.path.basename(notes.state)}")
    talk.out(f"next: make resume CAMPAIGN={where.name}")
    return 0
