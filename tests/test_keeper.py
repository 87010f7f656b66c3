"""Work that survives its caller, and what happens when it is killed."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from autoresearch import files
from autoresearch.errors import TryAgain
from autoresearch.running import keeper, processes
from tests.runs import PYTHON, kill, until


def detach(where: Path, work: Callable[[], None], rescue: Callable[[], None] | None = None, **more: object) -> int:
    def note() -> None:
        (where / "rescued").write_text(str(os.getpid()))

    return keeper.detach(
        work, rescue or note, lock_path=str(where / "lock"), log_path=str(where / "log"), grace_s=0.3, **more
    )


def identity(path: Path) -> processes.Process:
    """Read a pid that a process of the test has written."""
    pid = until(lambda: path.exists() and path.read_text())
    found = processes.identify(int(pid))
    assert found
    return found


def linger(where: Path, name: str = "pid") -> None:
    (where / f".{name}").write_text(str(os.getpid()))
    (where / f".{name}").rename(where / name)
    time.sleep(60)


def test_the_work_is_done_and_the_end_is_seen(hostile: Path) -> None:
    fd = detach(hostile, lambda: (hostile / "done").write_text(f"{os.getsid(0)} {os.getpid()} {os.getcwd()}") and None)
    assert keeper.wait(fd, 60)
    session, pid, cwd = (hostile / "done").read_text().split()
    assert session == pid
    assert int(session) != os.getsid(0)
    assert cwd == "/"
    assert not (hostile / "rescued").exists()
    assert not files.is_locked(str(hostile / "lock"))


def test_the_caller_is_not_held_up(tmp_path: Path) -> None:
    fd = detach(tmp_path, lambda: until((tmp_path / "go").exists) and None)
    assert not keeper.wait(fd, 0)
    assert files.is_locked(str(tmp_path / "lock"))
    with pytest.raises(TryAgain):
        detach(tmp_path, lambda: None)
    (tmp_path / "go").touch()
    assert keeper.wait(fd, 60)


def test_the_lock_is_free_when_the_end_is_seen(tmp_path: Path) -> None:
    for _ in range(20):
        assert keeper.wait(detach(tmp_path, lambda: None), 60)
        os.close(keeper.take(str(tmp_path / "lock"), patience_s=0))


def test_a_lock_file_that_was_removed_meanwhile_is_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = keeper.take(str(path))
    path.unlink()
    second = keeper.take(str(path))
    assert os.stat(path).st_ino == os.fstat(second).st_ino
    os.close(first)
    os.close(second)


def test_looking_does_not_disturb_taking(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    looker = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(looker, fcntl.LOCK_SH)
    if os.fork() == 0:
        time.sleep(0.02)
        os._exit(0)
    os.close(looker)
    os.close(keeper.take(path, patience_s=60))
    os.wait()


def test_there_is_no_lock_where_there_is_no_file(tmp_path: Path) -> None:
    assert not files.is_locked(str(tmp_path / "lock"))


def test_standard_streams_and_descriptors(tmp_path: Path) -> None:
    secret = os.open(tmp_path / "lock of the caller", os.O_RDWR | os.O_CREAT)
    kept = os.open(tmp_path / "kept", os.O_RDWR | os.O_CREAT)

    def work() -> None:
        assert sys.stdin is None or os.read(0, 1) == b""
        names = [os.readlink(f"/proc/self/fd/{fd}") for fd in range(64) if os.path.lexists(f"/proc/self/fd/{fd}")]
        (tmp_path / "names").write_text("\n".join(names))
        print("to the log")

    assert keeper.wait(detach(tmp_path, work, keep=(kept,)), 60)
    names = (tmp_path / "names").read_text()
    assert "lock of the caller" not in names
    assert "kept" in names
    assert (tmp_path / "log").read_text() == "to the log\n"
    os.close(secret)
    os.close(kept)


def test_an_error_is_logged_and_rescued(tmp_path: Path) -> None:
    assert keeper.wait(detach(tmp_path, lambda: {}["nothing"]), 60)
    assert "KeyError" in (tmp_path / "log").read_text()
    assert (tmp_path / "rescued").exists()


def test_a_log_that_cannot_be_opened_does_not_stop_the_work(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    assert keeper.wait(detach(tmp_path, lambda: (tmp_path / "done").touch()), 60)
    assert (tmp_path / "done").exists()


def test_what_a_killed_supervisor_leaves_is_ended_before_the_rescue(tmp_path: Path) -> None:
    code = "import signal,sys,time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"

    def work() -> None:
        child = subprocess.Popen([*PYTHON, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
        assert child.stdout is not None
        child.stdout.readline()
        (tmp_path / "child").write_text(str(child.pid))
        linger(tmp_path)

    def rescue() -> None:
        child = processes.parse_process((tmp_path / "identity").read_text())
        (tmp_path / "rescued").write_text(f"alive {processes.alive(child)}")

    fd = detach(tmp_path, work, rescue=rescue)
    supervisor = identity(tmp_path / "pid")
    child = identity(tmp_path / "child")
    (tmp_path / "identity").write_text(child.text())
    kill(supervisor)
    assert keeper.wait(fd, 60)
    assert (tmp_path / "rescued").read_text() == "alive False"
    assert not files.is_locked(str(tmp_path / "lock"))


def test_the_supervisor_goes_on_without_its_keeper(tmp_path: Path) -> None:
    def work() -> None:
        (tmp_path / "keeper").write_text(str(os.getppid()))
        until((tmp_path / "go").exists)
        (tmp_path / "done").touch()

    fd = detach(tmp_path, work)
    kill(identity(tmp_path / "keeper"))
    time.sleep(0.05)
    assert files.is_locked(str(tmp_path / "lock"))
    (tmp_path / "go").touch()
    assert keeper.wait(fd, 60)
    assert (tmp_path / "done").exists()


def test_a_stopped_supervisor_is_woken(tmp_path: Path) -> None:
    def work() -> None:
        (tmp_path / "pid").write_text(str(os.getpid()))
        until((tmp_path / "go").exists)

    fd = detach(tmp_path, work)
    supervisor = identity(tmp_path / "pid")
    processes.send(supervisor, signal.SIGSTOP)
    (tmp_path / "go").touch()
    assert keeper.wait(fd, 60)
    assert not (tmp_path / "rescued").exists()


def test_term_to_either_asks_the_supervisor_to_stop(tmp_path: Path) -> None:
    def work() -> None:
        (tmp_path / "keeper").write_text(str(os.getppid()))
        until(keeper.stop_asked)
        (tmp_path / "done").touch()

    fd = detach(tmp_path, work)
    processes.send(identity(tmp_path / "keeper"), signal.SIGTERM)
    assert keeper.wait(fd, 60)
    assert (tmp_path / "done").exists()


def test_a_term_that_comes_before_the_supervisor_is_ready_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    become = processes.become_subreaper

    def slowly() -> None:
        if os.getpid() == os.getsid(0) and os.path.exists(tmp_path / "keeper"):  # the supervisor
            os.kill(os.getpid(), signal.SIGTERM)
        (tmp_path / "keeper").touch()
        become()

    monkeypatch.setattr(processes, "become_subreaper", slowly)
    assert keeper.wait(detach(tmp_path, lambda: until(keeper.stop_asked) and (tmp_path / "done").touch()), 60)
    assert (tmp_path / "done").exists()
    assert not (tmp_path / "rescued").exists()


def test_hup_and_int_are_nothing_to_it(tmp_path: Path) -> None:
    def work() -> None:
        (tmp_path / "keeper").write_text(str(os.getppid()))
        (tmp_path / "pid").write_text(str(os.getpid()))
        until((tmp_path / "go").exists)
        (tmp_path / "done").touch()

    fd = detach(tmp_path, work)
    for process in (identity(tmp_path / "keeper"), identity(tmp_path / "pid")):
        for signum in (signal.SIGHUP, signal.SIGINT):
            processes.send(process, signum)
    (tmp_path / "go").touch()
    assert keeper.wait(fd, 60)
    assert (tmp_path / "done").exists()


def test_it_outlives_the_session_of_its_caller(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import time, os; from autoresearch.running import keeper\n"
        "d = sys.argv[2]\n"
        "def work():\n"
        "    while not os.path.exists(d + '/go'): time.sleep(0.01)\n"
        "    open(d + '/done', 'w')\n"
        "keeper.detach(work, work, lock_path=d + '/lock'); print(1, flush=True); time.sleep(60)\n"
    )
    root = str(Path(keeper.__file__).parent.parent)
    caller = subprocess.Popen(
        [sys.executable, "-I", "-c", code, root, str(tmp_path)], stdout=subprocess.PIPE, start_new_session=True
    )
    assert caller.stdout is not None
    caller.stdout.readline()
    os.killpg(caller.pid, signal.SIGHUP)
    os.killpg(caller.pid, signal.SIGKILL)
    caller.wait()
    caller.stdout.close()
    assert files.is_locked(str(tmp_path / "lock"))
    (tmp_path / "go").touch()
    until((tmp_path / "done").exists)
    until(lambda: not files.is_locked(str(tmp_path / "lock")))
