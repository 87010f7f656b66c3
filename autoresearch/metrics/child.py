"""Work in a forked child, its result as bytes through a pipe: where it may hang, or where a second core halves it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

LOOK_S = 0.2  # how often a child looks whether its parent still lives
WORTH = 64 << 20  # bytes of a log from which on a second process pays: it costs 5 ms, and saves 5 to 90


class Child(NamedTuple):
    """A child at work: its process id and where its result is read."""

    pid: int
    out: int


def start(work: Callable[[], Iterable[bytes]]) -> Child:
    """Fork a child that writes what `work` gives and ends; raises OSError when there can be no other process."""
    out, into = os.pipe()
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        os.close(out)
        os.close(into)
        raise
    if pid == 0:
        _run(work, parent, out, into)
    os.close(into)
    return Child(pid, out)


def beside(work: Callable[[], Iterable[bytes]]) -> Child | None:
    """Like `start`, but None where a second process is not to be had or no faster."""
    try:
        return start(work) if len(os.sched_getaffinity(0)) > 1 else None
    except OSError:
        return None


def _run(work: Callable[[], Iterable[bytes]], parent: int, out: int, into: int) -> None:
    code = 1
    try:
        import signal

        os.close(out)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        # Nobody waits for it when the parent was killed, and it would hold on to the parent's locks.
        signal.signal(signal.SIGALRM, lambda *_: os._exit(1) if os.getppid() != parent else None)
        signal.setitimer(signal.ITIMER_REAL, LOOK_S, LOOK_S)
        for data in work():
            while data:
                data = data[os.write(into, data) :]
        code = 0
    finally:
        # Nothing of the parent's may run here: no exit handler, no buffered output written twice.
        os._exit(code)


def finish(child: Child, limit_s: float | None = None) -> tuple[bytes, int | None]:
    """(what the child wrote, its wait status, None when its time was up); the child is gone afterwards."""
    import select  # both take a millisecond that who needs no child would pay as well
    import signal

    parts, deadline, ended = [], None if limit_s is None else time.monotonic() + limit_s, False
    ready = select.poll()  # select itself takes no descriptor above 1023
    ready.register(child.out, select.POLLIN)
    try:
        while deadline is None or time.monotonic() < deadline:
            if not ready.poll(None if deadline is None else max(deadline - time.monotonic(), 0.0) * 1000):
                break
            part = os.read(child.out, 1 << 16)
            if not part:
                ended = True
                break
            parts.append(part)
    finally:
        os.close(child.out)
        if not ended:
            os.kill(child.pid, signal.SIGKILL)
        try:
            code = os.waitpid(child.pid, 0)[1]
        except ChildProcessError:
            code = 0  # someone else's wait has taken it
    return b"".join(parts), code if ended else None
