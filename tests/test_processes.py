"""Identity, marks, and ending what carries them."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.running import processes
from tests.runs import PYTHON, living, members, root_only, tree_command, until


def marked_popen(argv: list[str], mark: processes.Mark, **more: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        env=processes.marked(os.environ, mark),
        preexec_fn=lambda: processes.wear(mark),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        **more,
    )


def test_own_identity_is_alive() -> None:
    own = processes.identify(os.getpid())
    assert own is not None
    assert processes.alive(own)
    assert processes.parse_process(own.text()) == own


@given(st.integers(0, 2**60), st.text("0123456789abcdef-", min_size=1))
def test_marks_survive_being_written(number: int, boot: str) -> None:
    mark = processes.Mark(number, boot)
    assert processes.parse_mark(mark.text()) == mark


@pytest.mark.parametrize("text", ["", "12", "@", "x@boot", "12@"])
def test_what_is_no_mark_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a mark|invalid literal"):
        processes.parse_mark(text)


def test_a_name_with_blanks_and_brackets_does_not_shift_the_start_time() -> None:
    code = "open('/proc/self/comm','w').write('a) R 1 2 (b'); print(1, flush=True); import time; time.sleep(60)"
    with subprocess.Popen([*PYTHON, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        before = processes.identify(os.getpid())
        found = processes.identify(child.pid)
        child.kill()
    assert found is not None
    assert before is not None
    assert before.start <= found.start < before.start + 10**7
    assert processes._fields(os.getpid())[0] == b"R"


def test_a_zombie_is_not_alive() -> None:
    child = subprocess.Popen(["true"])
    found = until(lambda: processes.identify(child.pid))
    until(lambda: processes._fields(child.pid)[0] == b"Z")
    assert not processes.alive(found)
    assert not processes.send(found, signal.SIGTERM)
    child.wait()


def test_a_stranger_with_the_same_number_is_never_signalled() -> None:
    with subprocess.Popen(["sleep", "60"]) as stranger:
        found = processes.identify(stranger.pid)
        assert found is not None
        assert not processes.send(found._replace(start=found.start - 1), signal.SIGKILL)
        assert not processes.send(found._replace(boot="another boot"), signal.SIGKILL)
        time.sleep(0.05)
        assert stranger.poll() is None
        assert processes.send(found, signal.SIGKILL)


@root_only
def test_a_number_that_was_really_reused() -> None:
    """clone3 with set_tid (Linux 5.5) gives a stranger exactly the number that our process had."""
    child = subprocess.Popen(["true"])
    gone = processes.identify(child.pid)
    child.wait()
    assert gone is not None
    time.sleep(0.05)  # start times count in hundredths
    tid = (ctypes.c_int * 1)(gone.pid)
    fields = [0] * 11
    fields[4], fields[8], fields[9] = signal.SIGCHLD, ctypes.addressof(tid), 1
    arguments = (ctypes.c_uint64 * 11)(*fields)
    pid = ctypes.CDLL(None, use_errno=True).syscall(435, ctypes.byref(arguments), ctypes.sizeof(arguments))
    if pid == 0:
        os.execv("/bin/sleep", ["sleep", "60"])
    if pid != gone.pid:
        pytest.skip("this kernel does not give out chosen numbers")
    try:
        assert os.path.exists(f"/proc/{pid}")
        assert not processes.alive(gone)
        assert not processes.send(gone, signal.SIGKILL)
        assert os.waitpid(pid, os.WNOHANG) == (0, 0)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_the_mark_finds_all_of_a_tree_and_ends_it(tmp_path: Path) -> None:
    mark = processes.new_mark()
    bystander = subprocess.Popen(["sleep", "60"])
    child = marked_popen(tree_command(tmp_path / "tree"), mark)
    tree = members(tmp_path / "tree")
    until(lambda: set(processes.find(mark)) == set(tree.values()))  # those between them have ended
    assert processes.end_marked(mark, 0.2) == []
    assert living(tree) == []
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()
    child.wait()


def test_a_run_inside_a_run_has_a_lower_mark_and_belongs_to_both() -> None:
    outer = processes.new_mark()
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import os, subprocess, time; from autoresearch.running import processes as p\n"
        "inner = p.new_mark()\n"
        "env = p.marked(os.environ, inner)\n"
        "q = subprocess.Popen(['sleep', '60'], env=env, preexec_fn=lambda: p.wear(inner))\n"
        "print(inner.text(), q.pid, flush=True); time.sleep(60)"
    )
    root = str(Path(processes.__file__).parent.parent)
    child = subprocess.Popen(
        [sys.executable, "-I", "-c", code, root],
        env=processes.marked(os.environ, outer),
        preexec_fn=lambda: processes.wear(outer),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    text, pid = child.stdout.readline().split()
    inner = processes.parse_mark(text)
    assert inner.number < outer.number
    assert [process.pid for process in processes.find(inner)] == [int(pid)]
    assert sorted(process.pid for process in processes.find(outer)) == sorted([child.pid, int(pid)])
    assert processes.end_marked(outer, 0.5) == []
    child.wait()
    child.stdout.close()


def test_where_limits_cannot_be_used_the_environment_marks_the_run() -> None:
    mark = processes.new_mark()
    with subprocess.Popen(["sleep", "60"], env=processes.marked(os.environ, mark)) as child:
        until(lambda: [process.pid for process in processes.find(mark)] == [child.pid])
        processes.end_marked(mark, 1)


@root_only
def test_another_user_keeps_the_mark(tmp_path: Path) -> None:
    mark = processes.new_mark()
    argv = ["env", "-i", "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "sleep", "60"]
    with marked_popen(argv, mark) as child:
        until(lambda: b"sleep" in processes.read(f"/proc/{child.pid}/comm"))
        assert [process.pid for process in processes.find(mark)] == [child.pid]
        assert processes.end_marked(mark, 1) == []


def test_nothing_is_found_after_a_reboot() -> None:
    assert processes.find(processes.new_mark()._replace(boot="an earlier boot")) == []


def test_a_low_hard_limit_is_left_alone() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import resource; from autoresearch.running import processes as p\n"
        "resource.setrlimit(10, (100, 100)); m = p.new_mark(); p.wear(m)\n"
        "print(m.number > 2**50, resource.getrlimit(10))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, str(Path(processes.__file__).parent.parent)], capture_output=True, text=True
    )
    assert done.stdout == "True (100, 100)\n"


def test_descendants_are_found_and_zombies_are_not(tmp_path: Path) -> None:
    code = "import os,time\nif os.fork()==0: os._exit(0)\nif os.fork()==0: time.sleep(60)\n"
    code += "print(1, flush=True); time.sleep(60)"
    with subprocess.Popen([*PYTHON, "-c", code], stdout=subprocess.PIPE, start_new_session=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        until(lambda: len(processes.descendants(child.pid)) == 1)
        found = [process.pid for process in processes.descendants()]
        assert child.pid in found
        for process in processes.descendants(child.pid):
            processes.send(process, signal.SIGKILL)
        child.kill()


def test_ending_takes_term_when_term_is_enough() -> None:
    code = "import signal,sys,time\nsignal.signal(15, lambda *a: sys.exit(7))\nprint(1,flush=True)\ntime.sleep(60)"
    child = subprocess.Popen([*PYTHON, "-c", code], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    own = processes.identify(child.pid)
    assert own is not None
    assert processes.end(lambda: [own] if child.poll() is None else [], 600) == []
    assert child.wait() == 7
    child.stdout.close()


def test_a_stopped_process_gets_its_term() -> None:
    code = "import signal,sys,time\nsignal.signal(15, lambda *a: sys.exit(7))\nprint(1,flush=True)\ntime.sleep(60)"
    child = subprocess.Popen([*PYTHON, "-c", code], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    child.send_signal(signal.SIGSTOP)
    own = processes.identify(child.pid)
    assert own is not None
    assert processes.end(lambda: [own] if child.poll() is None else [], 20) == []
    assert child.wait() == 7
    child.stdout.close()


def test_bounded_returns_what_the_helper_made() -> None:
    assert processes.bounded(lambda: b"x" * 200_000, 10) == b"x" * 200_000
    assert processes.bounded(lambda: b"", 10) == b""
    assert processes.bounded(lambda: Path("/nowhere").read_bytes(), 10) is None


def test_bounded_gives_up_in_time_and_leaves_nothing() -> None:
    before = {process.pid for process in processes.descendants()}
    started = time.monotonic()
    assert processes.bounded(lambda: time.sleep(60) or b"", 0.1) is None  # type: ignore[func-returns-value]
    assert time.monotonic() - started < 30
    assert {process.pid for process in processes.descendants()} <= before


def test_the_helper_inherits_no_lock(tmp_path: Path) -> None:
    with open(tmp_path / "lock", "w") as file:
        path = f"/proc/self/fd/{file.fileno()}"
        raw = processes.bounded(lambda: os.readlink(path).encode() if os.path.lexists(path) else b"closed", 10)
    assert raw is not None
    assert str(tmp_path) not in raw.decode()
