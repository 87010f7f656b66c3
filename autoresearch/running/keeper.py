"""Work that survives its caller: client -> keeper -> supervisor, the same whether anybody waits or not.

The supervisor does the work in a session of its own, without a terminal. The keeper only waits for
it; when the supervisor is killed, everything it had started falls to the keeper (both are child
subreapers), which ends it and finishes the attempt. Both hold the flock on the attempt's lock file:
an attempt is alive exactly while that lock is held. The client needs neither; it may wait, be
killed, or lose its terminal.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Collection
from typing import NoReturn

from autoresearch import files
from autoresearch.errors import TryAgain
from autoresearch.running import processes

GRACE_S = 10.0
LOCK_PATIENCE_S = 0.1  # `files.is_locked` takes the lock for a moment when it looks
TERMINAL_SIGNALS = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP)
SPARED = "AUTORESEARCH_SPARED"  # the environment of what is to outlive a killed supervisor: a client of a cluster's job
BROKEN = 70  # exit status of a supervisor whose work raised an error

ended: dict[int, tuple[int, int]] = {}  # in a keeper: pid -> wait status, peak KiB of what ended before it was asked to
_keepers: dict[int, tuple[int, str]] = {}  # in a client: descriptor -> keeper, lock file
_terminated = False


def detach(
    supervise: Callable[[], None],
    rescue: Callable[[], None],
    *,
    lock_path: str,
    log_path: str = os.devnull,
    grace_s: float = GRACE_S,
    keep: Collection[int] = (),
) -> int:
    """Run `supervise` in a process that survives this one, and `rescue` if that process is killed.

    Both run in forks of this process, in the directory `/`, with stdin empty and stdout and stderr
    going to `log_path`; no descriptor but those in `keep` crosses over.

    Args:
        supervise: the work. When it raises an error, or its process dies, `rescue` follows.
        rescue: finishes what `supervise` left open. By then everything it had started has been ended.
        lock_path: a file whose flock both processes hold as long as they live; made when missing.
        log_path: where tracebacks go; appended to.
        grace_s: seconds between TERM and KILL for what a killed supervisor left behind.
        keep: descriptors of this process that the work needs.

    Returns:
        A descriptor that reaches its end when all is over: see `wait`.

    Raises:
        TryAgain: somebody else holds the lock.
    """
    lock = take(lock_path)
    reader, writer = os.pipe()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    # A Ctrl-C in these moments must reach neither the half-made keeper nor this function.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, TERMINAL_SIGNALS)
    try:
        pid = os.fork()
        if pid == 0:
            _leave(lambda: _keep(supervise, rescue, log_path, grace_s, lock, writer, keep))
        os.close(writer)
        os.close(lock)
        os.read(reader, 1)  # the keeper has left our session
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    _keepers[reader] = (pid, lock_path)
    return reader


def wait(fd: int, timeout_s: float | None = None) -> bool:
    """Wait until the work behind a descriptor of `detach` is over, then close it; False when time is up first."""
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    if not poller.poll(None if timeout_s is None else max(0.0, timeout_s) * 1000):
        return False
    os.close(fd)
    if fd in _keepers:
        pid, lock_path = _keepers.pop(fd)
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:
            pass
        limit = time.monotonic() + LOCK_PATIENCE_S
        while files.is_locked(lock_path) and time.monotonic() < limit:  # a killed process closes its files one by one
            processes.sleep(0.0005)
    return True


def take(lock_path: str, patience_s: float = LOCK_PATIENCE_S) -> int:
    """Return a descriptor that holds the flock on `lock_path`. Raises TryAgain when it stays taken."""
    limit = time.monotonic() + patience_s
    while True:
        fd = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            if time.monotonic() >= limit:
                raise TryAgain(
                    "attempt", f"another process works on it ({lock_path} is locked)", "wait for it"
                ) from None
            processes.sleep(0.002)
            continue
        if files.is_named(fd, lock_path):
            return fd
        os.close(fd)


def stop_asked() -> bool:
    """Tell whether this supervisor was sent TERM: the run is to be ended, the row still written."""
    return _terminated


def _leave(work: Callable[[], int]) -> NoReturn:
    """Run `work` as the last thing this forked process does; nothing of the caller's stack runs after it."""
    status = BROKEN
    try:
        status = work()
    except BaseException:
        import traceback

        traceback.print_exc()
        raise
    finally:
        os._exit(status)


def _keep(
    supervise: Callable[[], None],
    rescue: Callable[[], None],
    log_path: str,
    grace_s: float,
    lock: int,
    writer: int,
    keep: Collection[int],
) -> int:
    """The keeper: start the supervisor, wait for it, clean up after it."""
    os.setsid()
    try:
        os.write(writer, b".")
    except BrokenPipeError:
        pass  # the caller was killed meanwhile; the attempt is announced already, so it is carried out
    _daemonize(log_path, (lock, writer, *keep))
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))  # until each of the two has its handler
    supervisor = os.fork()
    if supervisor == 0:
        _leave(lambda: _supervise(supervise))
    signal.signal(signal.SIGTERM, lambda _signum, _frame: os.kill(supervisor, signal.SIGTERM))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
    clean = _wait_for(supervisor)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    reap(ended)
    processes.end(_orphans, 0.0 if clean else grace_s, kill_s=0.2 if clean else processes.KILL_WAIT_S)
    if not clean:
        rescue()
    return 0


def _supervise(supervise: Callable[[], None]) -> int:
    os.setsid()
    processes.become_subreaper()
    signal.signal(signal.SIGTERM, _note_term)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
    supervise()
    return 0


def _note_term(_signum: int, _frame: object) -> None:
    global _terminated
    _terminated = True


def _daemonize(log_path: str, keep: Collection[int]) -> None:
    processes.close_all(keep)
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    log = null
    try:
        log = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError:
        pass  # a full disk must not stop the work
    for fd, target in ((0, null), (1, log), (2, log)):
        os.dup2(target, fd)
    for fd in {null, log} - {0, 1, 2}:
        os.close(fd)
    sys.stdout = sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    for signum in TERMINAL_SIGNALS:
        signal.signal(signum, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    processes.become_subreaper()


def _wait_for(supervisor: int) -> bool:
    """Wait for the supervisor; a stopped one is woken, because nobody would enforce the cap. True if it ended well."""
    while True:
        _, status = os.waitpid(supervisor, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            os.kill(supervisor, signal.SIGCONT)
            continue
        return status == 0


def reap(into: dict[int, tuple[int, int]]) -> bool:
    """Collect children that have ended as pid -> (wait status, peak KiB); False when no child is left at all."""
    try:
        while True:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
            if pid == 0:
                return True
            processes.abandoned.discard(pid)
            into[pid] = (status, usage.ru_maxrss)
    except ChildProcessError:
        return False


def _orphans() -> list[processes.Process]:
    """What is left below this keeper, after reaping; the statuses of what was signalled mean nothing."""
    found = processes.descendants() if reap({}) else []
    return [process for process in found if not _is_spared(process)]


def _is_spared(process: processes.Process) -> bool:
    environ = processes.read(f"/proc/{process.pid}/environ", 1 << 22)
    return f"{SPARED}=1".encode() in environ.split(b"\0")
