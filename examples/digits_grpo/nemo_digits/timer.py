"""Time: how long each stage of a step took, and whether the run must end before its limit."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager


class StageTimer:
    """Adds up the seconds of named stages: `with timer.stage("generation"): ...`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._start = time.monotonic()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the body's duration under `name`."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - start

    def total(self) -> float:
        """Seconds since the timer was made."""
        return time.monotonic() - self._start


class TimeLimit:
    """`checkpoint_must_save_by`: says after a step whether one more would overrun the limit.

    The clock starts when training starts, set-up excluded, and a step is never interrupted.
    """

    def __init__(self, limit: str | None) -> None:
        self._limit = parse_limit(limit)
        self._start = time.monotonic()
        self._steps = 0

    def step_done(self) -> bool:
        """Count one step; true when the time so far plus a mean step reaches the limit."""
        self._steps += 1
        elapsed = time.monotonic() - self._start
        return self._limit is not None and elapsed + elapsed / self._steps >= self._limit


def parse_limit(text: str | None) -> float | None:
    """Seconds of `DD:HH:MM:SS`; None stays None.

    Raises:
        ValueError: any other form.
    """
    if text is None:
        return None
    if not re.fullmatch(r"\d+:\d+:\d+:\d+", text, re.ASCII):
        raise ValueError(f"expected DD:HH:MM:SS, got {text!r}")
    days, hours, minutes, seconds = map(int, text.split(":"))
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
