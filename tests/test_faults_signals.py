"""Signals and terminals: Ctrl-C, TERM, a closed terminal, requests to stop, and locks that a kill left behind."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT, git
from tests.faults import Lab, ended, idea, train_repo, until

pytestmark = pytest.mark.slow


@pytest.fixture
def lab(make_repo: Callable[..., Path], tmp_path: Path, hermetic: Path) -> Lab:
    """A campaign with its baseline."""
    made = Lab(train_repo(make_repo), tmp_path / "s", hermetic, stop="20 experiments")
    made.ok("baseline")
    return made


class Terminal:
    """A verb in the foreground of a terminal of its own."""

    def __init__(self, lab: Lab, verb: str, argv: list[str] | None = None, **knobs: str) -> None:
        argv = argv or lab.argv(verb, {"REPO": str(lab.repo), **knobs}, make=True)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir("/")
            os.execvpe(argv[0], argv, lab.env)
        self.text = b""

    def read(self, seconds: float) -> bool:
        """Take in what is printed for so long; False when the terminal's last process has gone."""
        limit = time.monotonic() + seconds
        while (left := limit - time.monotonic()) > 0:
            if select.select([self.fd], [], [], left)[0]:
                try:
                    self.text += os.read(self.fd, 65536)
                except OSError:
                    return False
        return True

    def ctrl_c(self) -> None:
        os.write(self.fd, b"\x03")

    def close(self) -> None:
        """Close the terminal as a closed window does: its session gets HUP."""
        os.close(self.fd)
        os.waitpid(self.pid, 0)

    def end(self, seconds: float = 30.0) -> str:
        while self.read(0.2):
            seconds -= 0.2
            assert seconds > 0, self.text
        os.waitpid(self.pid, 0)
        os.close(self.fd)
        return self.text.decode(errors="replace")


def launched(lab: Lab, name: str) -> bool:
    return any(f"/{name}/logs" in path for path in lab.began())


@pytest.mark.parametrize("delay", [0.0, 0.01, 0.03, 0.05, 0.5])
def test_ctrl_c_after_the_launch(lab: Lab, delay: float) -> None:
    """The run ends, its row is written and shown, and a second Ctrl-C changes nothing."""
    terminal = Terminal(lab, "experiment", **idea("y", "sleep=30"))
    until(lambda: not terminal.read(0.005) or launched(lab, "y"))
    time.sleep(delay)
    terminal.ctrl_c()
    terminal.read(0.05)
    terminal.ctrl_c()
    text = terminal.end()
    assert "was asked to end" in text
    assert "crash" in text
    assert "Traceback" not in text
    assert lab.row("y").end_cause == "stopped"
    lab.check()


@pytest.mark.parametrize("verb", ["experiment", "wait"])
def test_ctrl_c_ends_the_script_around_a_verb(lab: Lab, verb: str) -> None:
    """bash goes on to the next line of a script unless the program died of the signal."""
    knobs = idea("y", "sleep=30") if verb == "experiment" else {"NAME": "y"}
    if verb == "wait":
        lab.ok("experiment", DETACH="1", **idea("y", "sleep=30"))
    line = shlex.join(lab.argv(verb, {"REPO": str(lab.repo), **knobs}))
    terminal = Terminal(lab, verb, ["bash", "-c", f"echo waiting; {line}; echo went on"])
    until(lambda: not terminal.read(0.05) or (launched(lab, "y") and b"waiting" in terminal.text))
    terminal.read(0.5)
    terminal.ctrl_c()
    assert "went on" not in terminal.end().replace("echo went on", "")
    assert lab.call("stop", NAME="y").returncode == (3 if verb == "experiment" else 0)
    assert lab.row("y").end_cause == "stopped"
    lab.check()


def test_ctrl_c_ends_the_script_around_a_run_that_still_waits(lab: Lab) -> None:
    lab.ok("experiment", DETACH="1", **idea("x", "sleep=30"))
    line = shlex.join(lab.argv("experiment", {"REPO": str(lab.repo), **idea("y", "sleep=30")}))
    terminal = Terminal(lab, "experiment", ["bash", "-c", f"{line}; echo went on"])
    until(lambda: not terminal.read(0.05) or "y waiting for the device" in lab.call("status").stdout)
    terminal.ctrl_c()
    text = terminal.end()
    assert "withdrawn" in text
    assert "went on" not in text
    lab.ok("stop", NAME="x")
    lab.check()


@pytest.mark.parametrize("seed", range(12))
def test_ctrl_c_at_any_moment(lab: Lab, seed: int) -> None:
    """Before the launch nothing is left but perhaps the branch; after it there is a row. Nothing runs on."""
    terminal = Terminal(lab, "experiment", **idea("y", "sleep=30"))
    terminal.read(0.03 + seed * 0.02)
    terminal.ctrl_c()
    text = terminal.end()
    assert not re.search(r'autoresearch/(?!__main__|errors)\w+\.py", line', text), text
    assert lab.processes() == []
    lab.call("wait", NAME="y")
    rows = [row for row in lab.check() if row.experiment == "y"]
    assert [row.end_cause for row in rows] in ([], ["stopped"])
    assert lab.idea("y", "sleep=0 value=0.6").returncode == 0
    lab.check()


def test_a_closed_terminal_does_not_end_a_run(lab: Lab) -> None:
    terminal = Terminal(lab, "experiment", **idea("y", "sleep=1 value=0.9"))
    until(lambda: not terminal.read(0.005) or launched(lab, "y"))
    terminal.close()
    assert "y" in lab.ok("wait", NAME="y")
    assert lab.row("y").metric_value == "0.9"
    lab.check()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
@pytest.mark.parametrize("delay", [0.0, 0.05, 0.15])
def test_make_is_sent_a_signal(lab: Lab, number: int, delay: float) -> None:
    """The run does not need whoever launched it: it goes on and is recorded."""
    call = lab.spawn("experiment", make=True, **idea("y", "sleep=0.5 value=0.9"))
    time.sleep(0.1)
    if delay:
        until(lambda: launched(lab, "y"))
        time.sleep(delay)
    os.killpg(call.pid, number)
    ended(call)
    lab.call("wait", NAME="y")
    rows = [row for row in lab.check() if row.experiment == "y"]
    assert [row.metric_value for row in rows] == ["0.9"] if delay else len(rows) <= 1


def test_detach_wait_tail_stop(lab: Lab) -> None:
    assert lab.ok("experiment", DETACH="1", **idea("y", "sleep=600")).strip() == "y"
    late = lab.call("wait", NAME="y", TIMEOUT="1s")
    assert late.returncode == 75
    assert "still runs" in late.stderr
    until(lambda: "step 1" in lab.ok("show-log", NAME="y"))
    assert lab.status()["running"][0]["id"] == "y"
    again = lab.idea("y", "sleep=3")
    assert again.returncode == 3
    assert "under way" in again.stderr
    assert "stopped" in lab.ok("stop", NAME="y")
    assert lab.row("y").end_cause == "stopped"
    assert lab.call("stop", NAME="y").returncode == 3
    assert lab.call("wait", NAME="y").returncode == 4
    assert "step 1" in lab.ok("tail", make=True, NAME="y")
    lab.check()


def test_wait_and_stop_come_before_the_launch(lab: Lab) -> None:
    """Whoever waits for an attempt that is being prepared meets its result."""
    for name, verb, length in (("a", "wait", 0.2), ("b", "stop", 600), ("c", "wait", 0.2)):
        call = lab.spawn("experiment", **idea(name, f"sleep={length}"))
        until(lambda name=name: f"{name}.json" in lab.states())
        done = lab.call(verb, NAME=name)
        assert done.returncode in (0, 4), done
        assert f"{name}: " in done.stdout
        ended(call)
    lab.check()


def test_a_request_to_stop_ends_the_repeats_too(lab: Lab) -> None:
    lab.ok("experiment", DETACH="1", REPEATS="5", **idea("y", "sleep=20"))
    until(lambda: launched(lab, "y"))
    lab.call("stop", NAME="y")
    rows = [row for row in lab.check() if row.experiment == "y"]
    assert 1 <= len(rows) < 5


@pytest.mark.parametrize("branch", [False, True])
def test_locks_that_a_killed_git_left(lab: Lab, branch: bool) -> None:
    """On refs that only we write they are put away; the user's own are left alone."""
    ref = "heads/ar/c/y" if branch else "notes/autoresearch"
    lock, user = lab.repo / ".git" / "refs" / f"{ref}.lock", lab.repo / ".git" / "index.lock"
    lock.touch()
    user.touch()
    done = lab.idea("y")
    assert done.returncode == 0, done
    assert not lock.exists()
    assert user.exists()
    user.unlink()
    lab.check()


def test_a_run_that_asks_and_a_number_before_a_failure(lab: Lab) -> None:
    """stdin is empty; exit 0 without a metric, and a metric before exit 1, are crashes that say so."""
    asks = lab.idea("asks", "code=input()")
    assert asks.returncode == 4
    assert "EOFError" in asks.stdout
    mute = lab.idea("mute", "code=sys.exit()")
    assert mute.returncode == 4
    row = lab.row("mute")
    assert (row.status, row.end_cause, row.metric_value, row.memory_gb) == ("crash", "ok", "0.000000", "0.0")
    assert "val_accuracy" in row.reason
    failed = lab.idea("failed", "value=0.777 exit=1")
    assert failed.returncode == 4
    row = lab.row("failed")
    assert (row.status, row.end_cause, row.metric_value) == ("crash", "exit 1", "0.000000")
    assert "0.777" in row.reason
    lab.check()


def test_a_run_that_prints_much(lab: Lab) -> None:
    code = "code=print(('x'*999+chr(10))*200000)"
    assert lab.idea("loud", f'"{code}" value=0.8').returncode == 0
    assert lab.row("loud").metric_value == "0.8"
    assert len(lab.ok("show-log", NAME="loud")) < 300_000
    Path(lab.row("loud").log_path).unlink()


def test_all_of_it_from_a_tmux_that_is_closed(lab: Lab) -> None:
    """`tmux kill-server` sends HUP to the session of each window."""
    tmux = ["tmux", "-S", str(lab.home / "t"), "-f", "/dev/null"]
    try:
        words = [f"{key}={value}" for key, value in {"REPO": str(lab.repo), **idea("y", "sleep=1")}.items()]
        subprocess.run([*tmux, "new-session", "-d", str(ROOT / "bin" / "experiment"), *words], check=True, env=lab.env)
    except FileNotFoundError:
        pytest.skip("tmux is not installed")
    until(lambda: launched(lab, "y"))
    subprocess.run([*tmux, "kill-server"], check=True)
    lab.ok("wait", NAME="y")
    assert lab.row("y").end_cause == "ok"
    assert git(lab.repo, "rev-parse", "ar/c/y")
    lab.check()
