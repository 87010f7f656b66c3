"""`wait`: wait for a running attempt, and say how it ended."""

from __future__ import annotations

from autoresearch import attempts, campaign, durations, knobs, names, parents, recovery, talk, waiting
from autoresearch.errors import Refused


def run() -> int:
    """Wait at most TIMEOUT, print the result; exit 4 when the run is a crash, 75 when it still runs."""
    opened = campaign.open_any()
    name = names.check("NAME", knobs.required("NAME", "y"))
    timeout = knobs.text("TIMEOUT")
    limit = durations.parse(timeout) if timeout else None
    mine = attempts.of(opened.where, name)
    if mine and waiting.was_withdrawn(opened, mine[0]):
        return waiting.answer(opened, mine[0])  # which says why
    recovery.finish(opened)
    mine = attempts.of(opened.where, name)
    if mine:
        waiting.until_over(opened, mine[0], limit)
        return waiting.after_waiting(opened, mine[0])
    row = parents.latest(opened.rows(), name)
    if row is None:
        raise Refused("NAME", f"no attempt of {name!r} is running, and it has no row", "make status")
    for line in waiting.result_lines(row):
        talk.out(line)
    waiting.closing(opened)
    return 4 if row.status == "crash" else 0
