"""Submissions that Slurm did not answer: waited for, found again or made anew, and never run twice."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoresearch.errors import TryAgain
from autoresearch.launchers import Job
from autoresearch.launchers import _slurm_submit as submission
from autoresearch.launchers import _slurm_unanswered as unanswered
from autoresearch.launchers._waiting import Limits
from autoresearch.launchers.slurm import Slurm
from tests.launching import (
    Recorder,
    Run,
    bring_up,
    make_job,
    marked,
    slurm_cluster,
    wait_until,
)
from tests.test_launcher_slurm import CONTACT, Programs

LOST = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    monkeypatch.setattr(unanswered, "SETTLE_S", 0.05)
    return Programs(monkeypatch).on("sacct", code=1, err="disabled")


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return make_job(tmp_path, ["python", "train.py"])


def names(programs: Programs) -> list[str]:
    return [word[11:] for call in programs.calls for word in call if word.startswith("--job-name=")]


def submitted(programs: Programs) -> int:
    return sum(call[0] == "sbatch" for call in programs.calls)


@pytest.mark.parametrize(("code", "err"), [(1, LOST), (1, CONTACT), (-9, ""), (137, "Killed"), (0, ""), (124, "")])
def test_it_is_looked_for_by_its_name(programs: Programs, job: Job, code: int, err: str) -> None:
    programs.on("sbatch", code=code, err=err)
    programs.on("squeue", code=1, err=CONTACT).on("squeue", out="").on("squeue", out="41|NAME\n")
    recorder = Recorder()
    assert Slurm().submit(job, recorder.watch()) == "41"
    assert recorder.ids == ["41"]
    assert submitted(programs) == 1
    assert ["squeue", "-h", "-t", "all", "--name", names(programs)[0], "-o", "%A|%j"] in programs.calls
    assert any("Unable to contact" in said for said in recorder.said)


def test_what_was_not_taken_is_submitted_anew_and_cannot_begin_later(programs: Programs, job: Job) -> None:
    programs.on("sbatch", code=1, err=CONTACT).on("sbatch", out="43\n")
    programs.on("squeue", code=1, err=CONTACT).on("squeue", out="").on("scancel")
    assert Slurm().submit(job, Recorder().watch()) == "43"
    first, second = names(programs)
    assert first != second
    assert ["scancel", f"--name={first}"] in programs.calls
    states = {token: Path(job.logs, f"slurm.{token}.state.cancelled").exists() for token in (first[-8:], second[-8:])}
    assert list(states.values()) == [True, False]


def test_a_controller_that_stays_away_is_told_as_it_is(programs: Programs, job: Job) -> None:
    programs.on("sbatch", code=1, err=CONTACT).on("squeue", code=1, err=CONTACT)
    settings = {"ENGINE_PATIENCE": "1s"}
    for limited in (job._replace(settings=settings), job._replace(deadline=time.time() + 1)):
        with pytest.raises(TryAgain, match="Unable to contact") as told:
            Slurm().submit(limited, Recorder().watch())
        assert "may have been taken; if so, it ends by itself" in str(told.value)
        assert Path(submission.files(job).state + ".cancelled").exists()


def test_a_stop_ends_the_wait(programs: Programs, job: Job) -> None:
    programs.on("sbatch", code=1, err=LOST).on("squeue", code=1, err=CONTACT)
    recorder = Recorder()
    threading.Timer(0.3, recorder.stop).start()
    with pytest.raises(TryAgain, match="a stop was asked for"):
        Slurm().submit(job, recorder.watch())
    assert Path(submission.files(job).state + ".cancelled").exists()


def test_a_script_that_has_begun_tells_its_id(programs: Programs, job: Job) -> None:
    programs.on("sbatch", code=1, err=LOST).on("squeue", code=1, err=CONTACT)

    def begin() -> None:
        Path(submission.files(job).state).write_text("began 5.0 77 n1\njob 5.1 77 12\n")

    threading.Timer(0.3, begin).start()
    assert Slurm().submit(job, Recorder().watch()) == "12"


def test_whoever_comes_after_a_kill_does_not_submit_twice(programs: Programs, job: Job) -> None:
    programs.on("squeue", code=1, err=CONTACT)
    made = submission.prepare(job, {}, 1)  # killed before its sbatch was answered
    assert Slurm().collect(job, "") is None
    with pytest.raises(TryAgain, match="cannot be asked"):
        Slurm().follow(job, "", Recorder().watch())
    programs.answers[-1][1][:] = []
    programs.on("squeue", code=1, err=CONTACT).on("squeue", code=1, err=CONTACT).on("squeue", out="44|NAME\n")
    assert Slurm().submit(job, Recorder().watch()) == "44"
    assert submitted(programs) == 0
    assert names(programs) == []
    assert made.name.startswith("camp-idea-")


def test_a_second_start_that_was_not_recorded_takes_the_place_of_the_first(programs: Programs, job: Job) -> None:
    for attempt in (1, 2):
        submission.prepare(job, {}, attempt)
    programs.on("squeue", out="51|NAME\n").on("squeue", out="")
    assert Slurm().current(job, "50") == "51"
    assert Slurm().current(job, "50") == "50"
    assert unanswered.is_withdrawn(submission.files(job, 2).state)
    assert not unanswered.is_withdrawn(submission.files(job, 1).state)


@pytest.fixture(scope="module")
def real() -> Iterator[str]:
    yield from slurm_cluster(SLURM_JOB_AGE="2", SLURM_MEMORY="2048")


class Site:
    """The real Slurm of this module; `pause` stops its controller for a while, `job` counts how often it ran."""

    def __init__(self, folder: str, root: Path) -> None:
        self.folder, self.ran = folder, root / "ran"
        self.ran.touch()
        self.launcher = Slurm(Limits(gone_s=8.0, last_poll_s=1.0))
        self.job = make_job(root, ["sh", "-c", f"echo ran >>{self.ran}; sleep 2; exit 5"], root.name, cap_s=60.0)

    def signal(self, number: int) -> None:
        pid = int(Path(self.folder, "run", "slurmctld.pid").read_text())
        os.kill(pid, number)
        if number in (signal.SIGTERM, signal.SIGKILL):
            wait_until(lambda: not Path(f"/proc/{pid}/cmdline").exists())

    def queue(self) -> list[str]:
        """Jobs of this test; a controller that was killed may have brought back one of another."""
        argv = ["squeue", "-h", "-o", "%i %j %T %r"]
        told = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout
        return [line for line in told.splitlines() if self.job.id in line]

    def settled(self, times: int) -> None:
        """Nothing is left in Slurm or of its processes, and the job ran that often."""
        wait_until(lambda: self.queue() == [])
        time.sleep(1.5)  # a late one would begin now
        assert self.queue() == []
        assert self.ran.read_text() == "ran\n" * times
        assert not marked(str(self.ran))


@pytest.fixture
def site(real: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("SLURM_CONF", f"{real}/slurm.conf")
    monkeypatch.setattr(unanswered, "SETTLE_S", 4.0)
    made = Site(real, tmp_path)
    yield made
    if Path(real, "run", "slurmctld.pid").exists():
        made.signal(signal.SIGCONT)
    bring_up("slurm", real)
    subprocess.run(["scancel", "--me"], timeout=60, check=False)


def waits(run: Run) -> bool:
    return any(said.startswith("submitting: ") for said in run.recorder.said) or run.error is not None


@pytest.mark.engine
def test_a_controller_that_hangs_has_taken_the_job(site: Site) -> None:
    site.signal(signal.SIGSTOP)
    run = Run(site.launcher, site.job)
    wait_until(lambda: waits(run))
    assert run.recorder.ids == []
    site.signal(signal.SIGCONT)
    assert run.result().end_cause == "exit 5"
    assert len(run.recorder.ids) == 1
    site.settled(1)


@pytest.mark.engine
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_controller_that_is_gone_is_waited_for(site: Site, number: int) -> None:
    site.signal(number)
    run = Run(site.launcher, site.job)
    wait_until(lambda: waits(run))
    bring_up("slurm", site.folder)
    assert run.result().end_cause == "exit 5"
    assert len(run.recorder.ids) == 1
    assert len(list(Path(site.job.logs).glob("*.cancelled"))) == 1
    site.settled(1)


@pytest.mark.engine
@pytest.mark.parametrize("end", [f"echo '{LOST}' >&2; exit 1", "kill -9 $$", "sleep 600"])
def test_an_answer_that_is_lost(site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, end: str) -> None:
    wrapper = tmp_path / "bin" / "sbatch"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/bash\n/usr/bin/sbatch "$@" >/dev/null\n{end}\n')
    wrapper.chmod(0o755)
    monkeypatch.setattr(submission, "SUBMIT_S", 3.0)
    path = f"{wrapper.parent}:{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    run = Run(site.launcher, site.job._replace(env={**site.job.env, "PATH": path}))
    assert run.result().end_cause == "exit 5"
    assert len(run.recorder.ids) == 1
    site.settled(1)


@pytest.mark.engine
def test_a_job_that_arrives_after_it_was_given_up_does_not_begin(site: Site) -> None:
    site.signal(signal.SIGSTOP)
    run = Run(site.launcher, site.job)
    wait_until(lambda: waits(run))
    run.recorder.stop()
    with pytest.raises(TryAgain, match="it ends by itself"):
        run.result()
    site.signal(signal.SIGCONT)
    time.sleep(1.0)
    site.settled(0)


@pytest.mark.engine
@pytest.mark.parametrize("gone", [False, True])
def test_a_supervisor_that_dies_while_it_waits(site: Site, gone: bool) -> None:
    site.signal(signal.SIGKILL if gone else signal.SIGSTOP)

    def drive() -> None:
        os.setsid()
        Run(site.launcher, site.job).result(100)

    supervisor = multiprocessing.get_context("fork").Process(target=drive)
    supervisor.start()
    script = Path(submission.files(site.job).script)
    wait_until(script.exists)
    time.sleep(2.0)  # its sbatch waits for the answer
    assert supervisor.pid is not None
    os.killpg(supervisor.pid, signal.SIGKILL)
    supervisor.join()
    assert site.launcher.collect(site.job, "") is None
    again = Run(site.launcher, site.job)
    time.sleep(1.0)
    if gone:
        bring_up("slurm", site.folder)
    else:
        site.signal(signal.SIGCONT)
    assert again.result().end_cause == "exit 5"
    assert len(again.recorder.ids) == 1
    site.settled(1)
