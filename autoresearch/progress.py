"""What a running attempt shows of itself: its log, how long it has been quiet, its last metric."""

from __future__ import annotations

import os

from autoresearch import attempts, clock, durations, paths, talk
from autoresearch.attempts import State
from autoresearch.campaign import Campaign
from autoresearch.rules import standing


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


def line(opened: Campaign, state: State) -> str:
    """Return one line: branch, elapsed against the cap, last metric, attempted and remaining, stop rule, disk."""
    opened.renew_rules()
    parts = [state.branch, _time(state), _metric(opened, state)]
    parts.append(standing.line(opened, opened.rows(), attempts.every(opened.where)).line)
    parts.append(_disk(opened))
    return talk.one_line(", ".join(part for part in parts if part))


def _time(state: State) -> str:
    if not state.started_at:
        return state.waited or state.phase
    spent = durations.format(max(0.0, clock.now() - state.started_at))
    return f"{spent} of {durations.format(state.cap_s)}" if state.cap_s else spent


def _metric(opened: Campaign, state: State) -> str:
    from autoresearch import conclude, metrics

    spec = conclude.spec(opened)
    if metrics.split(spec.metric)[0] == "command":
        return ""  # the user's program is for the run's end: it may need a GPU, or minutes
    reading = metrics.read(spec, conclude.where_of(opened, state), whole=False)
    if reading.value is None:
        return ""
    return f"{reading.name} {reading.text}" + (f" at step {reading.step}" if reading.step is not None else "")


def _disk(opened: Campaign) -> str:
    from autoresearch.running import disk

    space = disk.free(opened.where.scratch)
    return space.trouble or f"{space.free_gb:.0f} GB free"
