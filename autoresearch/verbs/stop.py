"""`stop`: ask a running attempt to end; its row is written."""

from __future__ import annotations

from autoresearch import attempts, campaign, knobs, launch, names, recovery, talk, waiting
from autoresearch.errors import Refused


def run() -> int:
    """Ask the attempt to end, wait until its row is there, print it."""
    opened = campaign.open_any()
    name = names.check("NAME", knobs.required("NAME", "y"))
    recovery.finish(opened)
    mine = attempts.of(opened.where, name)
    if not mine:
        raise Refused("stop", f"no attempt of {name!r} is running", "make status")
    if waiting.was_withdrawn(opened, mine[0]):
        return waiting.answer(opened, mine[0])  # which says why
    waiting.ask_to_stop(opened, mine[0])
    # The run has its grace, then KILL, then the row: what takes longer is a hung disk or a queue.
    waiting.until_over(opened, mine[0], launch.grace_s(opened) + 60)
    if waiting.never_ran(opened, mine[0]):
        if not recovery.has_client(mine[0]):  # else that one tells it
            attempts.remove(opened.where, mine[0])
        talk.note(f"{mine[0].id} was stopped before it ran: it has no row, its branch stays")
        return 0
    waiting.after_waiting(opened, mine[0])
    talk.note(f"{mine[0].id} was stopped")
    return 0
