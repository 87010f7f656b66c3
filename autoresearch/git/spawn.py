"""A git process: posix_spawn, memory files for its streams, a time limit, a process group of its own."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Mapping
from typing import NamedTuple

from autoresearch.errors import Refused, TryAgain


class Done(NamedTuple):
    """What a finished git call said: exit code (negative: a signal), stdout and stderr in bytes."""

    code: int
    out: bytes
    err: bytes


class Running:
    """A git process that was started; `finish` waits for it. Two of them run side by side on two cores."""

    def __init__(self, argv: tuple[str, ...], env: Mapping[str, str], stdin: bytes | None, timeout: float) -> None:
        self.argv, self.timeout = argv, timeout
        self._out, self._err = _memory_file("out"), _memory_file("err")
        actions: list[tuple[int, ...] | tuple[int, int, str, int, int]]
        actions = [(os.POSIX_SPAWN_DUP2, self._out, 1), (os.POSIX_SPAWN_DUP2, self._err, 2)]
        given = -1
        if stdin is None:
            actions.insert(0, (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0))
        else:
            given = _memory_file("in")
            _fill(given, stdin)
            actions.insert(0, (os.POSIX_SPAWN_DUP2, given, 0))
        try:
            # A group of its own: Ctrl-C reaches us, not a git that is half way through a write.
            self._pid = os.posix_spawnp(
                "git",
                argv,
                env,
                file_actions=actions,
                setpgroup=0,
                setsigmask=(),
                setsigdef=(signal.SIGPIPE, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP),
            )
        except FileNotFoundError as error:
            raise Refused("git", "there is no git program on PATH", "install git 2.34 or newer") from error
        finally:
            if given >= 0:
                os.close(given)

    def finish(self) -> Done:
        """Wait for the end and return what it said; ends the process group and raises TryAgain at the time limit."""
        try:
            code = _wait(self._pid, self.timeout)
            if code is None:
                self._end()
                raise TryAgain(
                    name(self.argv), f"no answer within {self.timeout:g} s", "look for a slow or hung disk, then retry"
                )
            return Done(code, _read(self._out), _read(self._err))
        except BaseException:
            self._end()
            raise
        finally:
            os.close(self._out)
            os.close(self._err)

    def _end(self) -> None:
        """TERM, then KILL to the group; a process in uninterruptible wait is abandoned, not waited for."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._pid, number)
            except ProcessLookupError:
                return
            try:
                if _wait(self._pid, 2.0) is not None:
                    return
            except ChildProcessError:
                return


def name(argv: tuple[str, ...]) -> str:
    """Return `git SUBCOMMAND` of an argument list, for messages."""
    words = iter(argv[1:])
    for word in words:
        if word == "-C":
            next(words, None)
        elif not word.startswith("-"):
            return f"git {word}"
    return "git"


def _memory_file(label: str) -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create(f"git-{label}", os.MFD_CLOEXEC)
    import tempfile

    handle, path = tempfile.mkstemp()
    os.unlink(path)
    return handle


def _fill(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
    os.lseek(handle, 0, os.SEEK_SET)


def _read(handle: int) -> bytes:
    size, parts, at = os.fstat(handle).st_size, [], 0
    while at < size:
        part = os.pread(handle, size - at, at)
        if not part:
            break
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def _wait(pid: int, timeout: float) -> int | None:
    """Reap `pid` within `timeout` seconds: its code (negative: a signal), or None when it still runs."""
    try:
        watch = os.pidfd_open(pid)
    except (AttributeError, OSError):
        watch = -1
    try:
        if watch >= 0:
            poll = select.poll()
            poll.register(watch, select.POLLIN)
            if not poll.poll(timeout * 1000):
                return None
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        end = time.monotonic() + timeout
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > end:
                return None
            time.sleep(0.002)
    finally:
        if watch >= 0:
            os.close(watch)
