"""`tail` (bin/show-log): the last lines of a run's log, control characters and secrets removed."""

from __future__ import annotations

import os

from autoresearch import attempts, campaign, knobs, metrics, names, parents, progress, recovery, talk
from autoresearch.campaign import Campaign
from autoresearch.errors import Refused


def run() -> int:
    """Print at most LINES lines of the running or newest attempt of NAME."""
    opened = campaign.open_any()
    recovery.start_detached(opened, attempts.every(opened.where))
    name = names.check("NAME", knobs.required("NAME", "y"))
    count = min(knobs.count("LINES", 20), 200)
    log = _log(opened, name)
    hint = metrics.tail_hint(log, count)
    talk.out(talk.masked(hint, campaign.secret_values()))
    is_there = os.path.exists(log)
    talk.note(f"the last lines of {log}" if is_there else f"{log} is not there: not begun yet, or cleaned up")
    return 0


def _log(opened: Campaign, name: str) -> str:
    for state in attempts.every(opened.where):
        if name in (state.experiment, state.id):
            return progress.log_of(opened.where, state)
    row = parents.latest(opened.rows(), name) or parents.latest(opened.rows(smoke=True), name)
    if row is None:
        raise Refused("NAME", f"{name!r} has no attempt", "make status")
    return row.log_path
