"""Small files that must survive anything: replaced whole, fsynced, locked by flock on a file of its own."""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

from autoresearch.errors import TryAgain

_TEMPORARY = re.compile(r".+\.[0-9]+\.tmp")
CUT_OFF_S = 3600.0


def replace(path: str, data: bytes, mode: int = 0o600) -> None:
    """Write `data` to `path` so that a reader, a kill or a full disk meets the old content or the new, never a part.

    Args:
        path: the file; its directory must exist. A link that a user put there stays, and leads to the new content.
        data: the whole new content.
        mode: permission bits of a new file; one that is there keeps its own.

    Raises:
        OSError: the disk is full or read-only; the old content is untouched.
    """
    if os.path.islink(path):
        path = os.path.realpath(path)
    kept = _mode_of(path)
    temporary = f"{path}.{os.getpid()}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        with naming(path):
            if kept is not None:
                os.fchmod(fd, kept)
            _write_all(fd, data)
            os.fsync(fd)
        os.close(fd)
        fd = -1
        os.replace(temporary, path)
    except BaseException:
        if fd >= 0:
            os.close(fd)
        if os.path.lexists(temporary):
            os.unlink(temporary)
        raise
    sync_directory(os.path.dirname(path))


def _mode_of(path: str) -> int | None:
    """Return the permission bits of a file, None where there is none."""
    try:
        return os.stat(path).st_mode & 0o777
    except FileNotFoundError:
        return None


def forget_cut_off(directory: str) -> None:
    """Remove what `replace` left in a directory of ours when it was killed; what is young may still be written."""
    try:
        with os.scandir(directory) as entries:
            found = [entry for entry in entries if _TEMPORARY.fullmatch(entry.name)]
        for entry in found:
            if entry.is_file(follow_symlinks=False) and time.time() - entry.stat().st_mtime > CUT_OFF_S:
                os.unlink(entry.path)
    except OSError:
        pass  # nothing was written there yet, somebody else removes the same, or it may only be read


def digest(data: bytes) -> str:
    """Return the SHA-256 of `data` in hex. hashlib would load OpenSSL for it, 3 ms at each start."""
    try:
        from _sha256 import sha256  # type: ignore[import-not-found]  # Python 3.11
    except ImportError:
        from hashlib import sha256
    return str(sha256(data).hexdigest())


def append(path: str, line: bytes) -> None:
    """Append one line in one write and fsync it; a torn last line of an earlier writer is closed first.

    The caller holds the lock. On a failure the file is cut back to its former length, so nothing torn stays.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        with naming(path):
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                line = b"\n" + line
            try:
                _write_all(fd, line)
                os.fsync(fd)
            except OSError:
                os.ftruncate(fd, size)
                raise
    finally:
        os.close(fd)


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Name the file in an error of a call that knows it by its number alone: which disk is full is the question."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or path
        raise


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def sync_directory(path: str) -> None:
    """Make a rename in directory `path` survive a power cut."""
    fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with naming(path):
            os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def locked(path: str, *, wait_s: float = 60.0, inherited: bool = False) -> Iterator[int]:
    """Hold a flock on `path` (made when missing), freed by the kernel also after kill -9.

    Whoever removes the file holds it: a caller that waited for the removed one goes on to the file that is there now.

    Args:
        path: a lock file of its own, never the data file: a replaced file would lose its lock.
        wait_s: seconds to wait for another holder.
        inherited: processes started meanwhile hold it too, so a git that outlives its killed caller keeps it.

    Raises:
        TryAgain: it is still held after `wait_s`.
    """
    limit = time.monotonic() + wait_s
    fd = -1
    try:
        while fd < 0:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with naming(path):  # a network file system may have no locks to give
                _wait_for(fd, path, limit)
            if not is_named(fd, path):
                os.close(fd)
                fd = -1
        os.set_inheritable(fd, inherited)
        yield fd
    finally:
        if fd >= 0:
            os.close(fd)


def _wait_for(fd: int, path: str, limit: float) -> None:
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= limit:
                raise TryAgain("lock", f"{path} is held by another process", "try again in a moment") from None
            time.sleep(0.005)


def is_named(fd: int, path: str) -> bool:
    """Return whether `path` still leads to this open file: whoever removed it took the lock on it along."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def is_locked(path: str) -> bool:
    """Return whether somebody holds the flock on `path`; False when there is no such file."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
