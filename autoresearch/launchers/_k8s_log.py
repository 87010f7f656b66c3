"""A driver's log brought home by `nrl-k8s job logs -f`, which tells all of it from its beginning each time.

The forward may die and be started again as often as it likes: the log here only ever grows, by what it does not
hold yet.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

BLOCK = 1 << 16
# nrl-k8s reports a lost connection as the last words of the log, and ends with 0.
TROUBLE = b"\n[tail error: "
LONGEST_TROUBLE = 8192
DIFFERS = b"\nautoresearch: the log is told differently from here on; all of it follows\n"
STUCK_S = 60.0  # a forward of a job that has ended brings something within that time, or nothing more


class Forward:
    """One log and the process that brings it.

    Args:
        log_path: the file that grows; made when missing.
        env: the environment of the process.
    """

    def __init__(self, log_path: str, env: Mapping[str, str]) -> None:
        self.log_path, self.env = log_path, env
        self.process: subprocess.Popen[bytes] | None = None
        self.thread: threading.Thread | None = None
        self.trouble = ""
        self.brought = 0  # bytes that came in all

    def attach(self, argv: Sequence[str]) -> None:
        """Start `argv` in a session of its own and bring what it tells, in the background."""
        self.close()
        self.trouble = ""
        none = subprocess.DEVNULL
        try:
            self.process = subprocess.Popen(
                list(argv), env=self.env, stdin=none, stdout=subprocess.PIPE, stderr=none, start_new_session=True
            )
        except OSError as error:
            self.trouble = f"{argv[0]}: {error.strerror}"
            return
        self.thread = threading.Thread(target=self._bring, args=(self.process,), daemon=True)
        self.thread.start()

    def alive(self) -> bool:
        """Does a forward run?"""
        return self.thread is not None and self.thread.is_alive()

    def wait(self) -> bool:
        """Wait for its end as long as something comes; True when it told everything it had."""
        seen, since = -1, time.monotonic()
        while self.thread is not None and self.thread.is_alive():
            if self.brought != seen:
                seen, since = self.brought, time.monotonic()
            elif time.monotonic() - since > STUCK_S:
                self.trouble = "it brings nothing"
                break
            self.thread.join(0.2)
        return self.close() == 0 and not self.trouble

    def close(self) -> int | None:
        """End the forward with everything it started (it has a `kubectl port-forward` of its own); its exit status."""
        process, thread = self.process, self.thread
        self.process = self.thread = None
        if process is None:
            return None
        if thread is not None and not thread.is_alive():  # it has closed its output and is about to end
            _await_exit(process.pid, 3.0)
        for number in (signal.SIGTERM, signal.SIGKILL):  # not reaped yet, so the number of its group is still its own
            os.killpg(process.pid, number)
            if number == signal.SIGTERM:
                _await_exit(process.pid, 3.0)
        code = process.wait()
        if thread is not None:
            thread.join(3.0)
        return code

    def _bring(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        try:
            with process.stdout as told:
                grow(self.log_path, self._told(told.fileno()))
        except OSError as error:  # a full disk: the next attachment goes on where this one came to
            self.trouble = f"{self.log_path}: {error.strerror}"

    def _told(self, descriptor: int) -> Iterator[bytes]:
        """The blocks that come, without the words of nrl-k8s itself at their end."""
        rest = b""
        while block := os.read(descriptor, BLOCK):
            self.brought += len(block)
            rest += block
            sure = _surely_log(rest)
            if sure:
                yield rest[:sure]
            rest = rest[sure:]
        if rest.startswith(TROUBLE):
            self.trouble = rest[len(TROUBLE) :].decode("utf-8", "replace").strip().rstrip("]") or "connection lost"
        elif rest:
            yield rest


def _surely_log(data: bytes) -> int:
    """How many bytes cannot be the beginning of nrl-k8s's last words."""
    at = data.rfind(TROUBLE)
    if at >= 0 and len(data) - at <= LONGEST_TROUBLE:
        return at
    for length in range(len(TROUBLE) - 1, 0, -1):
        if data.endswith(TROUBLE[:length]):
            return len(data) - length
    return len(data)


def grow(path: str, told: Iterator[bytes]) -> None:
    """Append to a log what a telling of it from its beginning holds beyond what is there.

    A telling that differs from the last one is appended as a whole behind a line that says so.

    Raises:
        OSError: the log cannot be written.
    """
    log = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        begin = place = _last_telling(log)
        for block in told:
            have = os.pread(log, len(block), place)
            if not block.startswith(have):
                _write(log, DIFFERS)
                begin, place = _repeat(log, begin, place)
                have = b""
            _write(log, block[len(have) :])
            place += len(block)
    finally:
        os.close(log)


def _repeat(log: int, begin: int, end: int) -> tuple[int, int]:
    """Append what the log holds from `begin` to `end` once more; returns where the copy begins and ends."""
    new = os.fstat(log).st_size
    for at in range(begin, end, BLOCK):
        _write(log, os.pread(log, min(BLOCK, end - at), at))
    return new, new + end - begin


def _await_exit(pid: int, bound_s: float) -> None:
    """Wait until a child has ended, without taking its status away."""
    until = time.monotonic() + bound_s
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None and time.monotonic() < until:
        time.sleep(0.05)


def _last_telling(log: int) -> int:
    """Where the newest telling in a log begins."""
    found = at = 0
    before = b""
    while block := os.pread(log, 1 << 20, at):
        data = before + block
        last = data.rfind(DIFFERS)
        if last >= 0:
            found = at - len(before) + last + len(DIFFERS)
        before, at = data[-len(DIFFERS) :], at + len(block)
    return found


def _write(log: int, data: bytes) -> None:
    while data:
        data = data[os.write(log, data) :]
