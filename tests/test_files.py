"""files.py: a small file is whole or old, a line is whole or absent, a lock is free after kill -9."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from autoresearch import files
from autoresearch.errors import TryAgain
from tests.runs import root_only, tmpfs, until


def write_all(path: str, lines: list[bytes]) -> None:
    """Append all lines."""
    for line in lines:
        files.append(path, line)


def test_what_a_kill_left_of_a_replacement_is_removed_once_it_is_old(hostile: Path) -> None:
    old = time.time() - 2 * files.CUT_OFF_S
    for name in ("a.tsv.12.tmp", "mine.tmp", "a.tsv", "b.12.tmp.txt"):
        (hostile / name).write_text("x")
        os.utime(hostile / name, (old, old))
    (hostile / "young.12.tmp").write_text("x")
    (hostile / "dir.12.tmp").mkdir()
    (hostile / "link.12.tmp").symlink_to(hostile / "a.tsv")
    files.forget_cut_off(str(hostile))
    files.forget_cut_off(str(hostile / "none"))
    assert {path.name for path in hostile.iterdir()} == {
        *("mine.tmp", "a.tsv", "b.12.tmp.txt", "young.12.tmp", "dir.12.tmp", "link.12.tmp")
    }


def test_replace_keeps_a_users_link_and_permissions(hostile: Path) -> None:
    shared, link = hostile / "shared", hostile / "results.tsv"
    shared.write_bytes(b"old")
    shared.chmod(0o664)
    link.symlink_to("shared")
    files.replace(str(link), b"new")
    assert link.is_symlink()
    assert shared.read_bytes() == b"new"
    assert shared.stat().st_mode & 0o777 == 0o664
    assert sorted(os.listdir(hostile)) == ["results.tsv", "shared"]


def test_replace_keeps_the_old_content_when_it_fails(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = hostile / "state"
    files.replace(str(path), b"old")
    assert path.stat().st_mode & 0o777 == 0o600

    def full(fd: int, data: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match=r"No space.*/state'"):
        files.replace(str(path), b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert os.listdir(hostile) == ["state"]


def test_a_torn_line_is_closed_before_the_next(hostile: Path) -> None:
    path = hostile / "lines"
    path.write_bytes(b"whole\ntor")
    files.append(str(path), b"next\n")
    assert path.read_bytes() == b"whole\ntor\nnext\n"


def test_a_short_write_goes_on_where_it_stopped(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, real = hostile / "lines", os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data)[:3]))
    files.append(str(path), b"0123456789\n")
    files.replace(str(hostile / "whole"), b"0123456789")
    monkeypatch.undo()
    assert path.read_bytes() == b"0123456789\n"
    assert (hostile / "whole").read_bytes() == b"0123456789"


def test_an_append_that_fails_half_way_leaves_nothing(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, real, calls = hostile / "lines", os.write, []
    path.write_bytes(b"whole\n")

    def full(fd: int, data: bytes) -> int:
        calls.append(fd)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, bytes(data)[:4])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match=r"No space.*/lines'"):
        files.append(str(path), b"next line\n")
    assert path.read_bytes() == b"whole\n"


@root_only
def test_a_full_disk_loses_nothing_and_tears_nothing(hostile: Path) -> None:
    with tmpfs(hostile / "disk", "size=64k") as disk:
        path = disk / "lines"
        line = b"x" * 3000 + b"\n"
        with pytest.raises(OSError, match="No space"):
            write_all(str(path), [line] * 100)
        data = path.read_bytes()
        assert data
        assert set(data.splitlines()) == {b"x" * 3000}
        assert data.endswith(b"\n")
        with pytest.raises(OSError, match="No space"):
            files.replace(str(path), b"y" * 200_000)
        assert path.read_bytes() == data
        assert os.listdir(disk) == ["lines"]


def test_a_lock_waits_then_says_try_again(hostile: Path) -> None:
    lock = str(hostile / "below" / "lock")
    with files.locked(lock):
        assert files.is_locked(lock)
        with pytest.raises(TryAgain), files.locked(lock, wait_s=0.05):
            pass
    assert not files.is_locked(lock)
    assert not files.is_locked(str(hostile / "none"))


def test_a_lock_whose_file_was_removed_is_none(hostile: Path) -> None:
    """Who waited for it would else hold nothing, beside the holder of the file that is there now."""
    path, said = str(hostile / "lock"), []

    def wait() -> None:
        with files.locked(path, wait_s=10):
            said.append("held")

    waiter = threading.Thread(target=wait)
    with ExitStack() as old:
        old.enter_context(files.locked(path))
        waiter.start()
        until(lambda: times_open(path) == 2)
        os.unlink(path)
        with files.locked(path):
            old.close()
            until(lambda: said or times_open(path) == 2)
            assert not said
    waiter.join()
    assert said


def times_open(path: str) -> int:
    """Return how often this process has a file open."""
    wanted, found = os.stat(path), 0
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found += os.path.samestat(os.stat(f"/proc/self/fd/{fd}"), wanted)
    return found


def test_a_lock_is_free_after_kill_9_and_not_inherited(hostile: Path) -> None:
    lock = str(hostile / "lock")
    code = (
        "import subprocess, sys; from autoresearch import files\n"
        "with files.locked(sys.argv[1]):\n"
        "    child = subprocess.Popen(['sleep', '30'])\n"
        "    print(child.pid, flush=True); child.wait()\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, lock], stdout=subprocess.PIPE, text=True)
    assert holder.stdout
    child = int(holder.stdout.readline())
    try:
        assert files.is_locked(lock)
        holder.kill()
        holder.wait()
        until(lambda: not files.is_locked(lock))
        os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)
