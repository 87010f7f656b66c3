"""Runs that always end, end for a known reason, and leave nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from autoresearch import files
from autoresearch.errors import Usage
from autoresearch.running import keeper, processes, runfile, runner, watchdog
from tests.runs import MEMBERS, PYTHON, Attempt, kill, living, members, root_only, start, tmpfs, tree_command, until

# It says when it can save: a machine that has much to do starts a Python late.
TERM_SAVES = (
    "import signal,sys,time\nsignal.signal(15, lambda *a: (print('saved', flush=True), sys.exit(0)))\n"
    "print('ready', flush=True)\n"
)
LATE_S = 30.0  # by which a busy machine may be late, and far less than what would be waited for in vain


def python(code: str) -> list[str]:
    return [*PYTHON, "-c", code]


def started(where: Path) -> None:
    until((where / "started").exists)


def ready(run: Attempt) -> None:
    until(lambda: (run.where / "run.log").exists() and b"ready" in run.log)


def test_a_run_that_ends_well(hostile: Path) -> None:
    run = start(hostile, ["sh", "-c", "echo out; echo err >&2; pwd; cat; echo $0 $*", "a b", "$(x)"])
    outcome = run.outcome()
    assert (outcome.end_cause, outcome.exit_code, outcome.reason) == ("ok", 0, "")
    assert run.log.decode() == f"out\nerr\n{hostile}\na b $(x)\n"
    assert outcome.started_at is not None
    assert outcome.finished_at is not None
    assert 0 <= outcome.elapsed_s < 20
    assert abs(outcome.finished_at - outcome.started_at - outcome.elapsed_s) < 1e-3
    assert outcome.host == os.uname().nodename
    assert outcome.memory_gb is None or outcome.memory_gb > 0
    assert oct((hostile / "run.log").stat().st_mode & 0o777) == "0o600"
    assert (hostile / "started").read_text() == str(outcome.started_at)


@pytest.mark.parametrize(
    ("code", "cause", "exit_code"),
    [
        ("import sys; sys.exit(1)", "exit 1", 1),
        ("import sys; sys.exit(15)", "exit 15", 15),
        ("import os; os.kill(os.getpid(), 9)", "signal 9", 137),
        ("import os; os.kill(os.getpid(), 11)", "signal 11", 139),
        ("raise MemoryError", "oom", 1),
        ("print('torch.OutOfMemoryError: CUDA out of memory. Tried'); raise SystemExit(1)", "oom", 1),
        ("raise OSError('AF_UNIX path length cannot exceed 107 bytes: /x')", "launcher", 1),
        ("raise OSError(28, 'No space left on device')", "disk", 1),
        ("print('Timeout has been reached, stopping training early')", "recipe-timeout", 0),
    ],
)
def test_end_causes(tmp_path: Path, code: str, cause: str, exit_code: int) -> None:
    outcome = start(tmp_path, python(code)).outcome()
    assert (outcome.end_cause, outcome.exit_code) == (cause, exit_code)


def test_a_command_that_cannot_be_run(tmp_path: Path) -> None:
    outcome = start(tmp_path, ["/no/such/program"]).outcome()
    assert (outcome.end_cause, outcome.exit_code) == ("exit 127", 127)
    assert outcome.reason == "cannot run /no/such/program: No such file or directory"


def test_the_environment_is_exactly_what_was_given_and_the_mark(tmp_path: Path) -> None:
    run = start(tmp_path, ["/usr/bin/env"], env={"A": "b c", "PATH": "/usr/bin:/bin"})
    assert run.outcome().end_cause == "ok"
    lines = dict(line.split("=", 1) for line in run.log.decode().splitlines())
    assert set(lines) == {"A", "PATH", processes.VARIABLE}


def test_signals_and_descriptors_are_those_of_a_fresh_login(tmp_path: Path) -> None:
    run = start(tmp_path, ["sh", "-c", 'grep -E "SigIgn|SigBlk" /proc/self/status; ls /proc/self/fd; cat'])
    assert run.outcome().end_cause == "ok"
    words = run.log.decode().split()
    # Signals 32 and 33 belong to the C library: no program can ask for them, so what is inherited stays.
    assert [int(word, 16) & ~(0b11 << 31) for word in (words[1], words[3])] == [0, 0]
    assert words[4:] == ["0", "1", "2", "3"]  # 3 is the listing itself


def test_memory_is_the_run_s_and_never_ours(tmp_path: Path) -> None:
    """wait4(2) reports at least what the forking process held: a small run must not carry our size as its own."""
    small = start(tmp_path, ["true"]).outcome()
    assert small.memory_source != "maxrss"
    large = start(tmp_path, [*PYTHON, "-c", "x = bytearray(400 << 20); x[::4096] = b'1' * len(x[::4096])"]).outcome()
    assert large.memory_gb is not None
    assert 0.35 < large.memory_gb < 0.6


def test_the_cap_ends_everything_and_nothing_else(tmp_path: Path) -> None:
    bystander = subprocess.Popen(["sleep", "60"])
    run = start(tmp_path, tree_command(tmp_path / "tree", "--deaf"), cap_s=4.0, grace_s=0.5)
    tree = members(tmp_path / "tree")
    outcome = run.outcome()
    assert outcome.elapsed_s < 4.0 + 0.5 + LATE_S
    assert (outcome.end_cause, outcome.exit_code) == ("timeout", 137)
    assert outcome.reason == "reached the cap of 4 s"
    assert living(tree) == []
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


def test_a_run_may_save_during_the_grace(tmp_path: Path) -> None:
    run = start(tmp_path, python(TERM_SAVES + "time.sleep(60)"), cap_s=2.0, grace_s=50.0)
    outcome = run.outcome()
    assert (outcome.end_cause, outcome.exit_code) == ("timeout", 0)
    assert run.log == b"ready\nsaved\n"
    assert outcome.elapsed_s < LATE_S


def test_the_deadline_ends_a_run(tmp_path: Path) -> None:
    outcome = start(tmp_path, ["sleep", "60"], deadline=time.time() + 0.4).outcome()
    assert (outcome.end_cause, outcome.reason) == ("timeout", "reached the campaign's deadline")


def test_what_a_run_leaves_behind_is_ended_and_the_result_stays(tmp_path: Path) -> None:
    command = tree_command(tmp_path / "tree")
    code = f"import subprocess,os,time\nsubprocess.Popen({command!r})\n"
    names = [str(tmp_path / "tree" / name) for name in MEMBERS]
    code += f"while not all(map(os.path.exists, {names!r})): time.sleep(.01)"
    run = start(tmp_path, python(code))
    outcome = run.outcome()
    assert (outcome.end_cause, outcome.exit_code) == ("ok", 0)
    assert living(members(tmp_path / "tree")) == []


def test_a_request_to_stop(tmp_path: Path) -> None:
    run = start(tmp_path, python(TERM_SAVES + "time.sleep(60)"), grace_s=20.0)
    ready(run)
    (tmp_path / "stop").touch()
    assert run.outcome().end_cause == "stopped"
    assert run.log == b"ready\nsaved\n"


def test_a_request_to_stop_right_after_the_launch(tmp_path: Path) -> None:
    run = start(tmp_path, ["sleep", "60"])
    (tmp_path / "stop").touch()
    assert run.outcome().end_cause == "stopped"


def test_a_request_before_the_launch(tmp_path: Path) -> None:
    (tmp_path / "stop").touch()
    outcome = start(tmp_path, ["touch", "ran"]).outcome()
    assert (outcome.end_cause, outcome.exit_code) == ("stopped", None)
    assert not (tmp_path / "ran").exists()


def test_term_to_the_supervisor_is_a_request_and_a_second_one_is_impatience(tmp_path: Path) -> None:
    deaf = "import signal,time\nsignal.signal(15, lambda *a: print('asked', flush=True))\nprint('ready', flush=True)\n"
    run = start(tmp_path, python(deaf + "while 1: time.sleep(60)"), grace_s=600.0)
    supervisor = run.supervisor()
    ready(run)
    processes.send(supervisor, signal.SIGTERM)
    until(lambda: b"asked" in run.log)
    processes.send(supervisor, signal.SIGTERM)
    assert run.outcome().end_cause == "stopped"


def test_a_run_that_reads_its_input_gets_none(tmp_path: Path) -> None:
    assert start(tmp_path, python("print(repr(input('name?')))")).outcome().end_cause == "exit 1"
    assert b"EOFError" in (tmp_path / "run.log").read_bytes()


def test_the_log_is_appended_to(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text("before\n")
    run = start(tmp_path, ["echo", "after"])
    assert run.outcome().end_cause == "ok"
    assert run.log == b"before\nafter\n"


def test_the_supervisor_killed(tmp_path: Path) -> None:
    run = start(tmp_path, tree_command(tmp_path / "tree", "--deaf"))
    tree = members(tmp_path / "tree")
    kill(run.supervisor())
    outcome = run.outcome()
    assert (outcome.end_cause, outcome.exit_code) == ("lost", None)
    assert outcome.reason == "its supervisor was killed"
    assert living(tree) == []
    assert (tmp_path / "rescued").exists()


def test_a_result_that_only_the_keeper_saw(tmp_path: Path) -> None:
    run = start(
        tmp_path, python("import os,time\nwhile not os.path.exists('go'): time.sleep(.005)\nraise SystemExit(7)")
    )
    record = until(lambda: (r := runfile.read(str(tmp_path))) and r.process and r)
    supervisor = run.supervisor()
    started(tmp_path)
    # The keeper wakes its supervisor at once, so the run must end while both are stopped.
    keeper_process = run.keeper()
    for process in (keeper_process, supervisor):
        processes.send(process, signal.SIGSTOP)
        until(lambda process=process: processes._fields(process.pid)[0] == b"T")
    (tmp_path / "go").touch()
    until(lambda: processes._fields(record.pid)[0] == b"Z")
    kill(supervisor)
    processes.send(keeper_process, signal.SIGCONT)
    outcome = run.outcome()
    assert (outcome.end_cause, outcome.exit_code) == ("exit 7", 7)


def test_everything_killed(tmp_path: Path) -> None:
    run = start(tmp_path, tree_command(tmp_path / "tree", "--deaf"))
    tree = members(tmp_path / "tree")
    supervisor, keeper_process = run.supervisor(), run.keeper()
    kill(keeper_process)
    kill(supervisor)
    until(lambda: not files.is_locked(str(tmp_path / "lock")))
    assert set(living(tree)) == set(tree)
    outcome = runner.recover(str(tmp_path))
    assert outcome.end_cause == "lost"
    assert outcome.started_at is not None
    assert living(tree) == []
    assert keeper.wait(run.fd, 60)


def test_everything_killed_after_the_end_keeps_the_true_result(tmp_path: Path) -> None:
    assert start(tmp_path, python("raise SystemExit(3)")).outcome().end_cause == "exit 3"
    outcome = runner.recover(str(tmp_path))
    assert (outcome.end_cause, outcome.exit_code) == ("exit 3", 3)


def test_recovery_without_a_record_or_with_half_of_one(tmp_path: Path) -> None:
    assert runner.recover(str(tmp_path)).end_cause == "lost"
    (tmp_path / runfile.NAME).write_bytes(b'{"mark": "1@')
    assert runner.recover(str(tmp_path)).end_cause == "lost"
    (tmp_path / runfile.NAME).write_bytes(b"")
    assert runner.recover(str(tmp_path)).end_cause == "lost"


def test_recovery_of_a_run_of_another_machine(tmp_path: Path) -> None:
    record = runfile.Record("ff@another-boot", "another-host", time.time(), 1.0, str(tmp_path / "run.log"))
    runfile.write(str(tmp_path), record)
    with pytest.raises(runner.TryAgain, match="another-host"):
        runner.recover(str(tmp_path))
    runfile.write(str(tmp_path), record._replace(host=os.uname().nodename))
    assert runner.recover(str(tmp_path)).end_cause == "lost"


def test_the_record_has_its_full_size_from_the_start(tmp_path: Path) -> None:
    record = runfile.Record("ff@boot", "host", 1.5, 1.0, "log")
    runfile.write(str(tmp_path), record)
    size = (tmp_path / runfile.NAME).stat().st_size
    full = record._replace(outcome={"end_cause": "ok", "reason": "long " * 2000})
    runfile.write(str(tmp_path), full)
    assert (tmp_path / runfile.NAME).stat().st_size == size == runfile.SIZE
    found = runfile.read(str(tmp_path))
    assert found is not None
    assert found.outcome is not None
    assert found.outcome["end_cause"] == "ok"


def test_a_log_that_runs_away_is_stopped(tmp_path: Path) -> None:
    run = start(tmp_path, ["yes"], settings={"LOG_MAX_GB": "0.01"}, cap_s=20.0)
    outcome = run.outcome()
    assert outcome.end_cause == "disk"
    assert "LOG_MAX_GB=0.01" in outcome.reason
    (tmp_path / "run.log").unlink()


def test_too_little_room_ends_a_run_while_it_can_save(tmp_path: Path) -> None:
    run = start(tmp_path, python(TERM_SAVES + "time.sleep(60)"), settings={"DISK_RESERVE_GB": "1000000"}, grace_s=20.0)
    outcome = run.outcome()
    assert outcome.end_cause == "disk"
    assert "less than 1e+06 GB" in outcome.reason


@pytest.fixture
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the watchdog look at the log ten times as often."""
    monkeypatch.setattr(watchdog, "LOG_S", 0.1)


@pytest.mark.usefixtures("brisk")
def test_a_stall_is_reported(tmp_path: Path) -> None:
    said = 'while [ "$(wc -l <said)" -lt %d ]; do sleep 0.02; done 2>/dev/null'
    command = f"touch said; {said % 1}; echo on; {said % 2}"
    run = start(tmp_path, ["sh", "-c", command], settings={"STALL_MIN": "0.005"})
    assert run.outcome().end_cause == "ok"
    said = (tmp_path / "said").read_text().split("\n")
    assert said[0].startswith("stalled: no output for 0.0")
    assert said[1] == ""


@pytest.mark.usefixtures("brisk")
def test_a_stall_ends_the_run_when_told_so(tmp_path: Path) -> None:
    outcome = start(tmp_path, ["sleep", "60"], settings={"STALL_MIN": "0.005", "STALL_STOP": "1"}).outcome()
    assert outcome.end_cause == "stalled"
    assert outcome.reason.startswith("no output for")


def test_growing_event_files_are_no_stall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(watchdog, "time", SimpleNamespace(monotonic=lambda: now[0]))
    limits = watchdog.limits({"STALL_MIN": "1", "STALL_STOP": "1"}, disk_paths=(), growing=(str(tmp_path),))
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    said: list[str] = []
    rounds = watchdog._Rounds(limits, str(tmp_path / "run.log"), lambda: False, said.append, os.getpid(), writer)
    for second in range(300):
        now[0] = float(second)
        if second <= 180 and second % 30 == 0:
            with open(tmp_path / "events", "a") as file:
                file.write("x")
        rounds._log()
        if second == 180:
            with pytest.raises(BlockingIOError):
                os.read(reader, 1)
            assert said == []
    assert os.read(reader, 1 << 16).startswith(b"stalled no output for 1")
    assert len(said) == 1
    os.close(reader)
    os.close(writer)


def test_the_watchdog_killed_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "REPLACE_S", 0.2)
    run = start(tmp_path, ["sleep", "60"])
    supervisor = run.supervisor()
    started(tmp_path)
    record = runfile.read(str(tmp_path))
    assert record is not None

    def dogs() -> list[processes.Process]:
        return [process for process in processes.descendants(supervisor.pid) if process.pid != record.pid]

    first = until(dogs)[0]
    kill(first)
    second = until(lambda: [process for process in dogs() if process != first])[0]
    assert processes.alive(second)
    (tmp_path / "stop").touch()
    assert run.outcome().end_cause == "stopped"


def test_a_hung_file_system_does_not_hold_up_the_cap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look at the disk never comes back: the watchdog hangs, the supervisor does not."""
    monkeypatch.setattr(watchdog.disk, "look", lambda path: time.sleep(600))
    outcome = start(tmp_path, ["sleep", "600"], cap_s=1.0).outcome()
    assert outcome.end_cause == "timeout"
    assert outcome.elapsed_s < 1.0 + 0.3 + LATE_S


def test_memory_of_several_processes_counts_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It looks often, however dear a look is: on a busy machine the next one would come when all is over.
    monkeypatch.setattr(watchdog.memory, "SHARE", 1e9)
    monkeypatch.setattr(watchdog.memory, "USUAL_S", 0.1)
    code = (
        "import os,time\nmain=os.getpid()\nfor i in range(2): os.fork()\nb=bytearray(60<<20)\n"
        "open(f'up{os.getpid()}','w')\nif os.getpid()!=main: time.sleep(60)\n"
        "while sum(n[:2]=='up' for n in os.listdir())<4: time.sleep(.01)\ntime.sleep(2)"
    )
    outcome = start(tmp_path, python(code)).outcome()
    assert outcome.memory_source == "pss"
    assert outcome.memory_gb is not None
    assert 0.22 < outcome.memory_gb < 0.35  # four times 60 MiB, and four interpreters


@pytest.mark.parametrize("value", ["x", "-1", "nan", "inf", "1e999"])
def test_nonsense_in_a_knob(value: str) -> None:
    with pytest.raises(Usage, match="LOG_MAX_GB"):
        watchdog.limits({"LOG_MAX_GB": value}, disk_paths=(), growing=())


def test_knobs() -> None:
    found = watchdog.limits(
        {"DISK_PATHS": "/a b\n/c", "STALL_MIN": "0", "STALL_STOP": "1", "DISK_CHECK_S": "0"},
        disk_paths=("/d",),
        growing=(),
    )
    assert found.disk_paths == ("/a b", "/c")
    assert (found.stall_s, found.stall_stop, found.disk_check_s) == (0.0, True, watchdog.SOONEST_S)


def test_a_launch_that_cannot_be_recorded_runs_nothing(tmp_path: Path) -> None:
    (tmp_path / runfile.NAME).mkdir()
    run = start(tmp_path, ["touch", "ran"])
    assert keeper.wait(run.fd, 60)
    assert "cannot write" in (tmp_path / "keeper.log").read_text()
    assert not (tmp_path / "ran").exists()


@root_only
def test_a_small_disk_filled_by_the_run(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "scratch", "size=20m") as scratch:
        run = start(scratch / "logs", ["sh", "-c", "cat /dev/zero > fill"], settings={"DISK_RESERVE_GB": "0"})
        assert keeper.wait(run.fd, 60)
        record = runfile.read(str(scratch / "logs"))
        assert record is not None
        assert record.outcome is not None  # its room had been held back
        assert record.outcome["end_cause"] == "disk"


@root_only
def test_a_disk_that_fills_slowly_leaves_time_to_save(tmp_path: Path) -> None:
    code = TERM_SAVES + "f=open('fill','wb')\nwhile 1: f.write(bytes(200_000)); f.flush(); time.sleep(.01)"
    with tmpfs(tmp_path / "scratch", "size=120m") as scratch:  # seconds from the reserve to the last byte
        run = start(scratch / "logs", python(code), settings={"DISK_RESERVE_GB": "0.08"}, grace_s=10.0)
        outcome = run.outcome()
        assert outcome.end_cause == "disk"
        assert run.log == b"ready\nsaved\n"
        assert os.statvfs(scratch).f_bavail > 0


@root_only
def test_inodes_exhausted(tmp_path: Path) -> None:
    code = "import time\nfor i in range(1000): open(f'f{i}','w')"
    with tmpfs(tmp_path / "scratch", "size=20m,nr_inodes=40") as scratch:
        run = start(scratch / "logs", python(code), settings={"DISK_RESERVE_GB": "0"})
        assert keeper.wait(run.fd, 60)
        record = runfile.read(str(scratch / "logs"))
        assert record is not None
        assert record.outcome is not None
        assert record.outcome["end_cause"] == "disk"


@root_only
def test_all_of_it_as_an_ordinary_user() -> None:
    """The tree with its stubborn members, the supervisor killed, and everything killed, as nobody."""
    where = tempfile.mkdtemp(dir="/tmp")
    os.chmod(where, 0o777)
    names = ["the_cap_ends", "supervisor_killed", "everything_killed", "leaves_behind"]
    user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    test = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", f"{where}/t", __file__]
    try:
        done = subprocess.run(
            [*user, *test, "-k", " or ".join(names)],
            env={**os.environ, "HOME": where, "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": where},
            cwd=Path(__file__).parent.parent,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "5 passed" in done.stdout
    finally:
        shutil.rmtree(where)
