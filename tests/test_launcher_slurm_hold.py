"""An allocation that is held: found again, given back whatever has become of the plan, and never left to itself."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autoresearch.errors import AutoresearchError, TryAgain
from autoresearch.launchers import _slurm_hold as held
from autoresearch.launchers import _slurm_submit as submission
from autoresearch.launchers import _slurm_unanswered as unanswered
from autoresearch.launchers import slurm as module
from autoresearch.launchers._waiting import Limits
from autoresearch.launchers.slurm import Slurm
from tests.faults import Lab, train_repo, until
from tests.launching import Run, make_job, slurm_cluster, wait_until

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def folder() -> Iterator[str]:
    yield from slurm_cluster(SLURM_KILL_WAIT="2", SLURM_MEMORY="2048")


@pytest.fixture(autouse=True)
def slurm(folder: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SLURM_CONF", f"{folder}/slurm.conf")
    monkeypatch.setattr(unanswered, "SETTLE_S", 3.0)
    yield
    control(folder, signal.SIGCONT)
    left = queue()
    subprocess.run(["scancel", "--me"], timeout=60, check=False)
    assert left == [], "an allocation is left"


def queue() -> list[str]:
    argv = ["squeue", "-h", "-o", "%i"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout.split()


def control(folder: str, number: int) -> None:
    os.kill(int(Path(folder, "run", "slurmctld.pid").read_text()), number)


def take(logs: Path) -> str:
    logs.mkdir(exist_ok=True)
    return module.hold({}, name="camp", tree="/tmp", logs=str(logs), env=os.environ)


def test_one_whose_caller_was_killed_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    slow = tmp_path / "bin" / "sbatch"
    slow.write_text('#!/bin/bash\n/usr/bin/sbatch "$@"\nsleep 20\n')
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    logs = tmp_path / "hold"
    assert module.forgotten("camp", str(logs)) == ""
    caller = multiprocessing.get_context("fork").Process(target=take, args=(logs,))
    caller.start()
    wait_until(lambda: len(queue()) == 1)
    caller.kill()
    caller.join()
    (job_id,) = queue()
    assert module.forgotten("camp", str(logs)) == job_id
    assert module.forgotten("other", str(logs)) == ""
    module.release(job_id)
    module.let_go(str(logs))
    began = time.monotonic()
    assert module.forgotten("camp", str(logs)) == ""
    assert time.monotonic() - began < unanswered.SETTLE_S, "it is not asked for again"


def test_a_controller_that_hangs_has_taken_it(folder: str, tmp_path: Path) -> None:
    control(folder, signal.SIGSTOP)
    threading.Timer(5.0, lambda: control(folder, signal.SIGCONT)).start()
    job_id = take(tmp_path / "hold")
    assert queue() == [job_id]
    module.release(job_id)


def test_one_that_arrives_too_late_ends_by_itself(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "AWAY_S", 1.0)
    monkeypatch.setattr(submission, "SUBMIT_S", 3.0)
    control(folder, signal.SIGSTOP)
    with pytest.raises(TryAgain, match="it ends by itself"):
        take(tmp_path / "hold")
    control(folder, signal.SIGCONT)
    time.sleep(1.0)
    wait_until(lambda: queue() == [])
    assert module.forgotten("camp", str(tmp_path / "hold")) == ""


def test_one_that_slurm_refuses_is_not_looked_for_later(tmp_path: Path) -> None:
    logs = tmp_path / "hold"
    logs.mkdir()
    settings = {"SLURM_ARGS": "--partition=nope"}
    with pytest.raises(AutoresearchError, match="partition"):
        module.hold(settings, name="camp", tree="/tmp", logs=str(logs), env=os.environ)
    assert len(list(logs.glob("*.cancelled"))) == 1


def test_runs_that_share_it_say_so(tmp_path: Path) -> None:
    job_id = take(tmp_path / "hold")
    launcher, settings = Slurm(Limits(last_poll_s=1.0)), {"SLURM_HOLD": job_id}
    try:
        until_go = ["sh", "-c", 'until [ -e "$1" ]; do sleep 0.1; done', "sh", str(tmp_path / "go")]
        long = Run(launcher, make_job(tmp_path, until_go, "camp-long", settings=settings))
        long.wait_started()
        short = Run(launcher, make_job(tmp_path, ["sleep", "6"], "camp-short", settings=settings))
        assert short.result().reason == f"not alone in allocation {job_id}: camp-long"
        (tmp_path / "go").touch()
        assert long.result().reason == f"not alone in allocation {job_id}: camp-short"
        alone = Run(launcher, make_job(tmp_path, ["sleep", "2"], "camp-alone", settings=settings)).result()
        assert (alone.end_cause, alone.reason) == ("ok", "")
    finally:
        module.release(job_id)


def test_it_is_given_back_whatever_has_become_of_the_plan(
    make_repo: Callable[..., Path], tmp_path: Path, hermetic: Path
) -> None:
    lab = Lab(train_repo(make_repo), tmp_path / "s", hermetic, name="held", LAUNCHER="slurm", stop="1 experiments")
    job_id = lab.ok("hold").strip()
    assert "is still held" in lab.ok("baseline")
    told = lab.status()
    assert told["held"] == job_id
    assert f"holds      allocation {job_id}" in lab.ok("status")
    subprocess.run(["scancel", job_id], timeout=60, check=True)
    until(lambda: queue() == [])
    again = lab.ok("hold").strip()
    assert (again != job_id, queue()) == (True, [again])
    lab.ok("plan", CAMPAIGN="held", LAUNCHER="local", DISK_RESERVE_GB="1000000")
    lab.ok("hold", RELEASE="1")
    assert queue() == []
    assert lab.status()["held"] == ""
    lab.ok("plan", CAMPAIGN="held", LAUNCHER="slurm", DISK_RESERVE_GB="0")
    lab.ok("approve", YES="1")
    calls = [lab.spawn("hold") for _ in range(3)]
    codes = sorted(call.wait(60) for call in calls)
    for call in calls:
        call.communicate()
    assert codes == [0, 3, 3]
    until(lambda: len(queue()) == 1)
    lab.ok("hold", RELEASE="1")


def test_no_other_launcher_is_approved_while_a_job_is_under_way(
    make_repo: Callable[..., Path], tmp_path: Path, hermetic: Path
) -> None:
    """A recovery would ask the wrong engine for it."""
    lab = Lab(train_repo(make_repo), tmp_path / "s", hermetic, name="moves", LAUNCHER="slurm")
    lab.ok("baseline")
    lab.ok("experiment", NAME="a", HYPOTHESIS="x: a", OVERRIDES="sleep=60", DETACH="1")
    for moved in ({"LAUNCHER": "local"}, {"SLURM_ARGS": "-N1"}):
        lab.ok("plan", CAMPAIGN="moves", **moved)
        done = lab.call("approve", YES="1")
        assert done.returncode == 3
        assert f"{next(iter(moved))} changed while a is under way" in done.stderr
        lab.ok("plan", CAMPAIGN="moves", LAUNCHER="slurm", SLURM_ARGS="")
    lab.ok("plan", CAMPAIGN="moves", OBJECTIVE="other words")
    lab.ok("approve", YES="1")
    lab.ok("stop", NAME="a")
    lab.ok("plan", CAMPAIGN="moves", LAUNCHER="local")
    lab.ok("approve", YES="1")
    assert lab.row("a").end_cause == "stopped"
