"""What a running attempt shows of itself: its log, how long it has been quiet, its last metric."""

from __future__ import annotations

import os

from autoresearch import clock, paths
from autoresearch.attempts import State


def directories(where: paths.Campaign, state: State) -> paths.Attempt:
    """Return the directories of an attempt under way."""
    return where.attempt(state.experiment, state.attempt, state.smoke)


def log_of(where: paths.Campaign, state: State) -> str:
    """Return the path of the attempt's log."""
    return directories(where, state).log


def quiet_s(where: paths.Campaign, state: State) -> float | None:
    """Return the seconds since the run last wrote to its log, None before it has one."""
    try:
        return round(max(0.0, clock.now() - os.stat(log_of(where, state)).st_mtime), 1)
    except OSError:
        return None
