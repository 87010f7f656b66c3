"""Who may use this machine's devices: one local run at a time, unless GPUS or SLOTS say otherwise.

A lock is a flock on a file in one directory that all users of the machine share. A run of the whole
machine holds `machine` alone; runs on some GPUs (GPUS=0,1) or in a slot (SLOTS=2) share `machine` and
hold a file for each GPU or one slot. Each file also keeps the mark of the last run: a device is free
only when its lock is and no process with that mark lives.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from autoresearch.errors import Refused, TryAgain, Usage
from autoresearch.running import processes

# Not TMPDIR: all users of the machine must meet here. The variable keeps the tests apart from real runs.
DIRECTORY = os.environ.get("AUTORESEARCH_DEVICES") or "/tmp/autoresearch-devices"
LOOK_S = 0.5
RECORD_BYTES = 4096
_T = TypeVar("_T")


class Lease(NamedTuple):
    """Devices that are ours until `release`, or until this process ends."""

    fds: tuple[int, ...]
    owned: tuple[int, ...]  # those among them that carry our record
    names: tuple[str, ...]
    directory: str

    def release(self) -> None:
        """Give the devices back."""
        for fd in self.owned:
            _write(fd, {})
        for fd in self.fds:
            os.close(fd)

    def neighbours(self) -> list[str]:
        """Return who else runs on this machine through autoresearch; a row that was not alone says so."""
        found = []
        for name in _existing(self.directory):
            if name not in self.names and name != "machine":
                fd = _open(self.directory, name)
                if not _lock(fd, fcntl.LOCK_SH):
                    found.append(_owner(fd))
                os.close(fd)
        return found


class _Busy(Exception):
    """A device cannot be had now; the text says who has it."""


def wanted(gpus: str, slots: str) -> tuple[list[str], int]:
    """Return the lock names for GPUS, and the number of slots (0: none). Raises Usage on nonsense."""
    names = []
    for part in (part.strip() for part in gpus.split(",") if part.strip()):
        if not (part.isascii() and part.replace("-", "").isalnum()):
            raise Usage("GPUS", f"{part!r} is not the number or UUID of a GPU", "GPUS=0,1")
        names.append(f"gpu-{part}")
    if slots and not (slots.isascii() and slots.isdigit() and 0 < int(slots) <= 1024):
        raise Usage("SLOTS", f"{slots!r} is not a number of runs", "SLOTS=2")
    return sorted(set(names)), int(slots or 0)


def acquire(
    *,
    who: str,
    mark: str = "",
    gpus: str = "",
    slots: str = "",
    wait_s: float | None = None,
    say: Callable[[str], None] = lambda text: None,
    stop: Callable[[], bool] = lambda: False,
    directory: str = DIRECTORY,
) -> Lease:
    """Take what a run needs, waiting for it in turn.

    Args:
        who: the run, for those who wait: `user campaign/experiment`.
        mark: `processes.Mark.text()` of the run, so that its leftovers keep the device busy.
        gpus: the knob GPUS.
        slots: the knob SLOTS; the number of runs that may share the machine.
        wait_s: how long to wait; None is for ever, 0 not at all.
        say: told whom we wait for, each time that changes.
        stop: asked while waiting; true ends the waiting.

    Raises:
        TryAgain: the time is up, or `stop` said so.
        Refused: the lock directory cannot be trusted.
    """
    names, count = wanted(gpus, slots)
    _prepare(directory)
    limit = None if wait_s is None else time.monotonic() + wait_s
    told = ""
    while True:
        try:
            return _try(directory, names, count, {"who": who[:200], "mark": mark, "pid": os.getpid()})
        except _Busy as busy:
            if str(busy) != told:
                told = str(busy)
                say(f"waiting for the device: {told}")
        if stop():
            raise TryAgain("device", "the waiting was ended by a request to stop")
        if limit is not None and time.monotonic() >= limit:
            raise TryAgain("device", told, "wait longer with WAIT, or share the machine with GPUS or SLOTS")
        processes.sleep(LOOK_S if limit is None else max(0.0, min(LOOK_S, limit - time.monotonic())))


def _try(directory: str, names: list[str], count: int, record: dict[str, Any]) -> Lease:
    held: list[int] = []
    try:
        shared = bool(names or count)
        held.append(_hold(directory, "machine", fcntl.LOCK_SH if shared else fcntl.LOCK_EX))
        if not shared:
            for name in _existing(directory):
                fd = _open(directory, name)
                held.append(fd)
                _free_of_leftovers(fd)
            while len(held) > 1:
                os.close(held.pop())
            own = [held[0]]
        else:
            own = [_hold(directory, name, fcntl.LOCK_EX, held) for name in names]
            if count:
                slot, name = _slot(directory, count, held)
                own.append(slot)
                names = [*names, name]
        for fd in own:
            _write(fd, record)
        return Lease(tuple(held), tuple(own), tuple(names) or ("machine",), directory)
    except BaseException:
        for fd in held:
            os.close(fd)
        raise


def _hold(directory: str, name: str, how: int, held: list[int] | None = None) -> int:
    fd = _open(directory, name)
    try:
        if not _lock(fd, how):
            raise _Busy(f"{name} is held by {_owner(fd)}")
        _free_of_leftovers(fd)
    except BaseException:
        os.close(fd)
        raise
    if held is not None:
        held.append(fd)
    return fd


def _slot(directory: str, count: int, held: list[int]) -> tuple[int, str]:
    busy = ""
    for number in range(count):
        try:
            return _hold(directory, f"slot-{number}", fcntl.LOCK_EX, held), f"slot-{number}"
        except _Busy as error:
            busy = str(error)
    raise _Busy(f"all {count} slots are taken; {busy}")


def _free_of_leftovers(fd: int) -> None:
    """Raise _Busy when a process of the run that had this lock before lives on; else forget that run."""
    record = _read(fd)
    try:
        left = processes.find(processes.parse_mark(str(record.get("mark", ""))))
    except ValueError:
        return
    if left:
        pids = " ".join(str(process.pid) for process in left[:4])
        raise _Busy(f"an earlier run of {_owner(fd)} has left processes behind (pid {pids})")


def _prepare(directory: str) -> None:
    """Make the directory that all users share, sticky as /tmp is, or check the one that is there."""
    try:
        _for_all(lambda: os.mkdir(directory, 0o1777))
    except FileExistsError:
        pass
    except OSError as error:
        raise Refused("devices", f"{directory} cannot be made: {error.strerror}") from None
    found = os.lstat(directory)
    mine = found.st_uid in (0, os.geteuid())
    if not stat.S_ISDIR(found.st_mode) or not (mine or found.st_mode & stat.S_ISVTX):
        raise Refused("devices", f"{directory} is not a directory that users can share", f"look at: ls -ld {directory}")


def _open(directory: str, name: str) -> int:
    """Open a lock file, made readable and writable for all; never through a link.

    It is opened without O_CREAT first: in a sticky directory Linux refuses that flag for the files
    of others (fs.protected_regular).
    """
    path = os.path.join(directory, name)
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    for _ in range(3):
        try:
            fd = os.open(path, flags)
        except FileNotFoundError:
            try:
                fd = _for_all(lambda: os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666))
            except FileExistsError:
                continue
        except OSError as error:
            raise Refused("devices", f"{path}: {error.strerror}", f"look at: ls -l {path}") from None
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
        break
    raise Refused("devices", f"{path} is not a plain file", f"look at: ls -l {path}")


def _for_all(make: Callable[[], _T]) -> _T:
    """Make a file or directory with exactly the mode asked for: a later chmod would leave a gap."""
    before = os.umask(0)
    try:
        return make()
    finally:
        os.umask(before)


def _existing(directory: str) -> list[str]:
    return sorted(name for name in os.listdir(directory) if name.startswith(("machine", "gpu-", "slot-")))


def _lock(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(fd: int) -> dict[str, Any]:
    """Return the record in a lock file. Others can write it, so it is only ever believed to our own cost."""
    try:
        found = json.loads(os.pread(fd, RECORD_BYTES, 0))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _write(fd: int, record: dict[str, Any]) -> None:
    os.ftruncate(fd, 0)
    if record:
        os.pwrite(fd, json.dumps(record).encode()[:RECORD_BYTES], 0)


def _owner(fd: int) -> str:
    record = _read(fd)
    text = "".join(c if c.isprintable() else " " for c in str(record.get("who", ""))[:200]).strip()
    return text or "an unknown run"


def foreign_ray() -> list[processes.Process]:
    """Return the Ray head processes (`gcs_server`) on this machine.

    A NeMo-RL run without RAY_ADDRESS=local may attach itself to one of them.
    """
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and processes.read(f"/proc/{name}/comm").strip() == b"gcs_server":
            process = processes.identify(int(name))
            if process:
                found.append(process)
    return found
