"""Wall-clock time as the records write it: UTC with a Z, to the second; epoch seconds inside."""

from __future__ import annotations

import time


def stamp(epoch: float) -> str:
    """Return epoch seconds as `2026-11-30T20:45:00Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch))


def epoch(text: str) -> float | None:
    """Return the epoch seconds of a text made by `stamp`, None when it is none."""
    import calendar  # 3 ms, and seldom needed

    try:
        return float(calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ")))
    except ValueError:
        return None


def now() -> float:
    """Return the wall clock in epoch seconds; durations use time.monotonic instead."""
    return time.time()


def since_boot() -> float:
    """Return the seconds since the boot, sleep included: they do not jump when the wall clock is set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
