"""Which processes are ours, and how they are ended: nothing else is ever signalled.

A process is named by pid, start time and boot id, so that a number that was handed to a stranger is
never taken for ours. What a run started is found in two ways. While a supervisor lives, everything
that leaves its parent falls to it, because supervisors are child subreapers (prctl(2)): the run is
the supervisor's descendants. When everything of ours was killed, the run is found by its mark: a
random number put into RLIMIT_LOCKS, which Linux hands on but has not enforced since 2.4.25
(getrlimit(2)), and into one environment variable. The limit survives `env -i`, setsid and a change
of user; the variable survives a program that resets limits (pam_limits).
"""

from __future__ import annotations

import os
import resource
import select
import signal
import time
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import NamedTuple

from autoresearch.errors import AutoresearchError

VARIABLE = "AUTORESEARCH_MARK"
RLIMIT_LOCKS = 10  # asm-generic/resource.h; the same number on every architecture NeMo-RL runs on
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
MARK_BITS = 60
NESTED_FLOOR = 1 << 40  # below this a hard limit leaves too little room for a number that is ours alone
RESCAN_S = 0.2
KILL_WAIT_S = 1.0
RESET_SIGNALS = ("INT", "HUP", "TERM", "QUIT", "PIPE", "XFSZ", "CHLD", "TSTP", "TTIN", "TTOU", "ALRM", "USR1", "USR2")

abandoned: set[int] = set()  # helpers of this process that hang in the kernel and were given up


class Process(NamedTuple):
    """A process that cannot be mistaken for a later one with the same number."""

    pid: int
    start: int  # clock ticks after boot, field 22 of /proc/PID/stat
    boot: str

    def text(self) -> str:
        """Return the form that is kept in files: `PID:START:BOOT`."""
        return f"{self.pid}:{self.start}:{self.boot}"


class Mark(NamedTuple):
    """What every process of one run carries."""

    number: int
    boot: str

    def text(self) -> str:
        """Return the form that is kept in files: `HEX@BOOT`."""
        return f"{self.number:x}@{self.boot}"


def parse_mark(text: str) -> Mark:
    """Read back `Mark.text()`. Raises ValueError on anything else."""
    number, at, boot = text.partition("@")
    if not at or not boot:
        raise ValueError(f"not a mark: {text!r}")
    return Mark(int(number, 16), boot)


def parse_process(text: str) -> Process:
    """Read back `Process.text()`. Raises ValueError on anything else."""
    pid, start, boot = text.split(":", 2)
    return Process(int(pid), int(start), boot)


def read(path: str, size: int = 8192) -> bytes:
    """Return up to `size` bytes of a file under /proc, or nothing when the process has gone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, size)
    except OSError:
        return b""
    finally:
        os.close(fd)


@cache
def boot_id() -> str:
    """Return what differs after each boot: the kernel's boot id, else the boot time of /proc/stat."""
    found = read("/proc/sys/kernel/random/boot_id").decode().strip()
    if found:
        return found
    at = read("/proc/stat", 1 << 20).partition(b"btime ")[2].split(b"\n")[0]
    return f"btime-{at.decode().strip() or '0'}"


def _fields(pid: int | str) -> list[bytes]:
    """Return state, ppid, ... of /proc/PID/stat; the name before them may hold blanks and brackets."""
    return read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def identify(pid: int) -> Process | None:
    """Return the identity of the process that has this number now; None when there is none."""
    fields = _fields(pid)
    return Process(pid, int(fields[19]), boot_id()) if len(fields) > 19 else None


def alive(process: Process) -> bool:
    """Tell whether exactly this process still runs; one that only waits to be reaped does not."""
    fields = _fields(process.pid)
    return (
        len(fields) > 19
        and int(fields[19]) == process.start
        and fields[0] not in (b"Z", b"X")
        and process.boot == boot_id()
    )


def send(process: Process, signum: int) -> bool:
    """Signal exactly this process; False when it has gone or belongs to somebody else.

    The number is pinned by a pidfd before identity is checked (pidfd_open(2), Linux 5.3). Older
    kernels, and Pythons built on old headers, get the check and a plain kill right after it.
    """
    fd = -1
    try:
        fd = _pidfd(process.pid)
        if not alive(process):
            return False
        if fd >= 0:
            signal.pidfd_send_signal(fd, signum)
        else:
            os.kill(process.pid, signum)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        if fd >= 0:
            os.close(fd)
    return True


def _pidfd(pid: int) -> int:
    """Return a pidfd, or -1 where there are none. Raises ProcessLookupError when nothing has the number."""
    opener = getattr(os, "pidfd_open", None)
    if opener is None or not hasattr(signal, "pidfd_send_signal"):
        return -1
    try:
        return int(opener(pid))
    except ProcessLookupError:
        raise
    except OSError:
        return -1


def new_mark() -> Mark:
    """Draw the number of a new run; inside another run it is lower than that run's, as limits only fall."""
    hard = resource.getrlimit(RLIMIT_LOCKS)[1]
    top = hard if NESTED_FLOOR < hard < 1 << MARK_BITS else 1 << MARK_BITS
    low = top // 2
    return Mark(low + int.from_bytes(os.urandom(8), "big") % (top - low), boot_id())


def wear(mark: Mark) -> None:
    """Put the mark on this process and on all it will start. Where a lower limit is set already, only
    the environment marks the run."""
    try:
        resource.setrlimit(RLIMIT_LOCKS, (mark.number, mark.number))
    except (ValueError, OSError):
        pass


def marked(env: Mapping[str, str], mark: Mark) -> dict[str, str]:
    """Return `env` with the mark added after those of the runs around this one."""
    outer = os.environ.get(VARIABLE, "")
    return {**env, VARIABLE: f"{outer} {mark.number:x}".strip()}


def _numbers() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit()]


def find(mark: Mark) -> list[Process]:
    """Return every living process of the run with this mark, this process left out.

    After a reboot there is none. The environments are read by a helper, because reading one waits
    for a lock that a process on a hung file system may hold.
    """
    boot = boot_id()
    if mark.boot != boot:
        return []
    number = b"%d" % mark.number
    pids = [pid for pid in _numbers() if number in _lock_limits(pid)]
    rest = bounded(lambda: _with_variable(b"%x" % mark.number, frozenset(pids)), 2.0) or b""
    return _living([int(pid) for pid in (*pids, *rest.decode().split())])


def _lock_limits(pid: str) -> list[bytes]:
    return read(f"/proc/{pid}/limits").partition(b"Max file locks")[2].split(b"\n", 1)[0].split()


def _with_variable(token: bytes, known: Collection[str]) -> bytes:
    found = []
    for pid in _numbers():
        if pid not in known:
            block = b"\0" + read(f"/proc/{pid}/environ", 1 << 20)
            value = block.partition(b"\0" + VARIABLE.encode() + b"=")[2].split(b"\0", 1)[0]
            if token in value.split():
                found.append(pid)
    return " ".join(found).encode()


def _living(pids: list[int]) -> list[Process]:
    spare = {os.getpid(), 1, *abandoned}
    found = [identify(pid) for pid in pids if pid not in spare]
    return [process for process in found if process is not None and alive(process)]


def descendants(root: int | None = None) -> list[Process]:
    """Return every living descendant of a process (by default of this one), parents before children.

    Helpers that were given up are left out, with all the zombies.
    """
    boot = boot_id()
    children: dict[int, list[tuple[int, int, bool]]] = {}
    for name in _numbers():
        fields = _fields(name)
        if len(fields) > 19:
            entry = (int(name), int(fields[19]), fields[0] in (b"Z", b"X"))
            children.setdefault(int(fields[1]), []).append(entry)
    found: list[Process] = []
    todo = [os.getpid() if root is None else root]
    while todo:
        for pid, start, dead in children.get(todo.pop(), ()):
            todo.append(pid)
            if not dead and pid not in abandoned:
                found.append(Process(pid, start, boot))
    return found


def sleep(seconds: float) -> None:
    """Sleep as time.sleep() does; that one fails under libfaketime with a real monotonic clock."""
    select.select((), (), (), max(0.0, seconds))


def wait(targets: Collection[Process], timeout_s: float, wake_fd: int = -1) -> None:
    """Sleep until one of the processes ends, `wake_fd` becomes readable, or the time is over."""
    poller = select.poll()
    fds = []
    for process in list(targets)[:256]:
        try:
            fds.append(_pidfd(process.pid))
        except ProcessLookupError:
            timeout_s = min(timeout_s, 0.005)  # it has gone already, or waits to be reaped by its parent
    if -1 in fds:
        timeout_s = min(timeout_s, 0.05)
    fds = [fd for fd in fds if fd >= 0]
    try:
        for fd in (*fds, *(() if wake_fd < 0 else (wake_fd,))):
            poller.register(fd, select.POLLIN)
        poller.poll(max(0.0, timeout_s) * 1000)
    finally:
        for fd in fds:
            os.close(fd)


def end(
    find_left: Callable[[], list[Process]],
    grace_s: float,
    *,
    kill_s: float = KILL_WAIT_S,
    hurry: Callable[[], bool] = lambda: False,
    wake_fd: int = -1,
) -> list[Process]:
    """End all that `find_left` returns: TERM, a grace in seconds, KILL, until it returns nothing.

    Args:
        find_left: looks again each time, so that what was started meanwhile is ended as well.
        grace_s: seconds between the first TERM and the first KILL.
        kill_s: seconds until what does not go at KILL is given up.
        hurry: asked in between; true ends the grace at once.
        wake_fd: a descriptor that interrupts the waiting when it becomes readable.

    Returns:
        What could not be ended: not ours to signal, or stuck in the kernel.
    """
    asked: set[Process] = set()
    limit = time.monotonic() + grace_s
    while left := find_left():
        now = time.monotonic()
        if now >= limit or hurry():
            break
        for process in left:
            if process not in asked:
                asked.add(process)
                if send(process, signal.SIGTERM):
                    send(process, signal.SIGCONT)  # a stopped process would not see its TERM
        wait(left, min(RESCAN_S, limit - now), wake_fd)
    limit = time.monotonic() + kill_s
    while left and time.monotonic() < limit:
        for process in left:
            send(process, signal.SIGKILL)
        wait(left, 0.02)
        left = find_left()
    return left


def end_marked(mark: Mark, grace_s: float) -> list[Process]:
    """End every process of the run with this mark; returns what could not be ended (see `end`)."""
    return end(lambda: find(mark), grace_s)


def become_subreaper() -> None:
    """Make orphans among this process's descendants its children (prctl(2), Linux 3.4).

    Every launch waits for this call, and importing ctypes takes 2.4 ms of it: its C half alone does
    where it still looks as it has since Python 2.5.
    """
    arguments = (PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        import _ctypes

        prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]
        done = _ctypes.call_function(prctl, arguments)
    except (ImportError, AttributeError, TypeError):
        import ctypes

        done = ctypes.CDLL(None).prctl(*arguments)
    if done != 0:
        raise AutoresearchError("supervisor", "the kernel refuses to make it a child subreaper", "Linux 3.4 or newer")


def close_all(keep: Collection[int] = ()) -> None:
    """Close every descriptor above 2 except `keep`: locks and pipes of ours must not live on in a child."""
    signal.set_wakeup_fd(-1)
    for name in os.listdir("/proc/self/fd"):  # closerange() is a loop over every number in some builds
        fd = int(name)
        if fd > 2 and fd not in keep:
            try:
                os.close(fd)
            except OSError:
                pass  # the listing's own


def default_signals() -> None:
    """Give a child the signal handling of a fresh login: nothing ignored, nothing blocked."""
    for name in RESET_SIGNALS:
        signal.signal(getattr(signal, f"SIG{name}"), signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def bounded(work: Callable[[], bytes], timeout_s: float) -> bytes | None:
    """Return what `work` returns, computed by a forked helper; None when it fails or takes too long.

    A helper that hangs in the kernel cannot be killed: it is given up, and its number is kept in
    `abandoned`. Costs about a millisecond.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            close_all((writer,))
            os.write(writer, work() + b".")
        except OSError:
            os._exit(1)
        finally:
            os._exit(0)
    os.close(writer)
    try:
        return _collect(reader, time.monotonic() + timeout_s)
    finally:
        os.close(reader)
        retire(pid)


def _collect(reader: int, limit: float) -> bytes | None:
    poller = select.poll()
    poller.register(reader, select.POLLIN)
    data = b""
    while poller.poll(max(0.0, limit - time.monotonic()) * 1000):
        block = os.read(reader, 1 << 16)
        if not block:
            return data[:-1] if data.endswith(b".") else None
        data += block
    return None


def retire(pid: int, patience_s: float = 0.2) -> None:
    """Kill and reap a helper of this process; one that cannot be killed in time is given up."""
    limit = time.monotonic() + patience_s
    try:
        os.kill(pid, signal.SIGKILL)
        while os.waitpid(pid, os.WNOHANG)[0] == 0:
            if time.monotonic() >= limit:
                abandoned.add(pid)
                return
            sleep(0.0005)
    except (ChildProcessError, ProcessLookupError):
        pass
