"""`run.json` beside a run's log: what recovery needs when every process of ours was killed.

It is written before the run is let go, and overwritten in place when the run has ended: it has had
its full size from the start, so that the true result can be kept on a disk that is full by then.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

NAME = "run.json"
SIZE = 4096  # one page: the write is all or nothing for whoever only kills processes


class Record(NamedTuple):
    """A launch, and its end once that is known."""

    mark: str
    host: str
    started_at: float  # epoch seconds
    grace_s: float
    log_path: str
    pid: int = 0
    process: str = ""  # identity of the run's first process
    supervisor: str = ""  # identity of the supervisor
    outcome: Mapping[str, Any] | None = None  # fields of launchers.Outcome


def write(logs: str, record: Record) -> None:
    """Write the record of the run whose log directory is `logs`. Raises OSError where there is no room."""
    text = json.dumps(record._asdict(), allow_nan=False)
    if record.outcome is not None and len(text.encode()) >= SIZE:
        short = {**record.outcome, "reason": str(record.outcome.get("reason", ""))[:200]}
        text = json.dumps(record._replace(outcome=short)._asdict(), allow_nan=False)
    path = os.path.join(logs, NAME)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.pwrite(fd, text.encode().ljust(SIZE - 1) + b"\n", 0)
    finally:
        os.close(fd)


def read(logs: str) -> Record | None:
    """Return the record of a run; None when there is none, or when a power cut left it incomplete."""
    try:
        with open(os.path.join(logs, NAME), "rb") as file:
            found = json.loads(file.read(1 << 20))
        return Record(**found)
    except (OSError, ValueError, TypeError):
        return None
