"""`ledger`: rebuild results.tsv from the notes in git alone."""

from __future__ import annotations

import os
from collections.abc import Sequence

from autoresearch import campaign, clock, knobs, ledger, recovery, talk
from autoresearch.errors import Refused
from autoresearch.git import notes
from autoresearch.rows import Row


def run() -> int:
    """Print the ledger that git's notes give; YES=1 writes it, keeping the old file beside it."""
    opened = campaign.open_any()
    recovery.finish(opened)
    rows = rebuilt(opened)
    present = ledger.read(opened.ledger_path)
    if rows == present.rows and not present.torn:
        talk.note(f"{len(rows)} rows in git, equal to {opened.ledger_path}")
        return 0
    talk.note(f"{len(rows)} rows in git, {len(present.rows)} in {opened.ledger_path}")
    if not knobs.flag("YES"):
        raise Refused("ledger", "git and the file differ", "YES=1 writes what git has; the old file is kept beside it")
    with opened.locked():
        if os.path.exists(opened.ledger_path):
            stamp = clock.stamp(clock.now()).replace(":", "")
            os.link(opened.ledger_path, f"{opened.ledger_path}.{stamp}")
        os.makedirs(os.path.dirname(opened.ledger_path), mode=0o700, exist_ok=True)
        ledger.rewrite(opened.ledger_path, rows)
    talk.note(f"written: {opened.ledger_path}")
    return 0


def rebuilt(opened: campaign.Campaign) -> Sequence[Row]:
    """Return the rows that the git notes of this campaign hold, in index order, the newest verdict of each."""
    fields = set(Row._fields)
    return [
        Row(**{key: value for key, value in found.items() if key in fields})
        for found in notes.rebuild(opened.git, opened.name)
    ]
