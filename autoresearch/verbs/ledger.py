"""`ledger`: rebuild results.tsv from the notes in git alone."""

from __future__ import annotations

import os

from autoresearch import attempts, campaign, knobs, ledger, recovery, talk
from autoresearch.errors import Refused
from autoresearch.git import notes
from autoresearch.rows import Row


def run() -> int:
    """Print the ledger that git's notes give; YES=1 writes it, keeping the old file beside it."""
    opened = campaign.open_any()
    try:
        ledger.read(opened.ledger_path)
    except Refused as refusal:
        talk.note(f"{refusal.what}: {refusal.why}")  # nothing can be recorded before it is written anew
    else:
        recovery.finish(opened)
    with opened.locked():
        rows, same, said = compare(opened)
        if same:
            talk.note(f"{len(rows)} rows in git, equal to {opened.ledger_path}")
            return 0
        talk.note(f"{len(rows)} rows in git, {said} in {opened.ledger_path}")
        if not knobs.flag("YES"):
            fix = "YES=1 writes what git has; the old file is kept beside it"
            raise Refused("ledger", "git and the file differ", fix)
        os.makedirs(os.path.dirname(opened.ledger_path), mode=0o700, exist_ok=True)
        ledger.restore(opened.ledger_path, rows)
    talk.note(f"written: {opened.ledger_path}")
    return 0


def compare(opened: campaign.Campaign) -> tuple[list[Row], bool, str]:
    """Return the rows that the ledger should have, whether it has just these, and how many it has.

    The caller holds the campaign's lock. A row is written before its note: one whose attempt is not done is in both.
    """
    rows = rebuilt(opened)
    try:
        present = ledger.read(opened.ledger_path)
    except Refused:
        return rows, False, "none that can be read"
    noted = {(row.experiment, row.attempt) for row in rows}
    open_ = {(state.experiment, str(state.attempt)) for state in attempts.every(opened.where)} - noted
    rows += [row for row in present.rows if (row.experiment, row.attempt) in open_]
    rows.sort(key=lambda row: int(row.index) if row.index.isdecimal() else 0)
    return rows, rows == present.rows and not present.torn, str(len(present.rows))


def rebuilt(opened: campaign.Campaign) -> list[Row]:
    """Return the rows that the git notes of this campaign hold, in index order, the newest verdict of each."""
    fields = set(Row._fields)
    return [
        Row(**{key: value for key, value in found.items() if key in fields})
        for found in notes.rebuild(opened.git, opened.name)
    ]
