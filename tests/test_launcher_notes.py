"""What a run's script notes about its machine: the type of its GPUs, its peak memory, its id."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoresearch.launchers import Outcome, _script, nrl_k8s, ray
from autoresearch.launchers import _slurm_calls as calls
from autoresearch.launchers import _slurm_submit as submission
from autoresearch.launchers import slurm as module
from autoresearch.launchers._calls import Answer
from autoresearch.launchers._waiting import Limits
from autoresearch.launchers.slurm import Slurm
from tests.launching import Run, bring_up, engine_folder, make_job, python, take_down

NO_DRIVER = pytest.mark.skipif(os.path.exists("/proc/driver/nvidia"), reason="this machine has NVIDIA's driver")


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder at the head of PATH for a nvidia-smi of the test's own."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return folder / "nvidia-smi"


def noted(root: Path, alone: bool = True, **env: str) -> _script.Noted:
    job = make_job(root, ["true"])
    state = f"{job.logs}/x.state"
    text = _script.render(job, "0a1b2c3d", state, redirect=False, exports={}, needs=(), alone=alone)
    assert subprocess.run(["bash", "-c", text], env={**os.environ, **env}, check=False).returncode == 0
    found = _script.read_state(state)
    assert (found.exit_code, found.memory) == (0, None)
    return found


def write_smi(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/bash\n{body}\n")
    path.chmod(0o755)


def test_models_are_sorted_and_told_once(smi: Path, tmp_path: Path) -> None:
    write_smi(smi, r"printf 'NVIDIA H100 80GB HBM3\nNVIDIA A100-SXM4-80GB\nNVIDIA H100 80GB HBM3\n'")
    assert noted(tmp_path).device == "NVIDIA A100-SXM4-80GB + NVIDIA H100 80GB HBM3"
    assert noted(tmp_path, alone=False).device == "NVIDIA A100-SXM4-80GB + NVIDIA H100 80GB HBM3"


def test_only_the_gpus_of_the_run_are_told(smi: Path, tmp_path: Path) -> None:
    write_smi(smi, r'case $* in *"--id=1"*) echo B ;; *--id=*) exit 6 ;; *) printf "A\nB\n" ;; esac')
    assert noted(tmp_path, CUDA_VISIBLE_DEVICES="1").device == "B"
    assert noted(tmp_path, CUDA_VISIBLE_DEVICES="MIG-1").device == "A + B"


@NO_DRIVER
def test_what_cannot_be_known_stays_empty(smi: Path, tmp_path: Path) -> None:
    assert noted(tmp_path).device == "none"
    assert noted(tmp_path, alone=False).device == ""  # the workers may be elsewhere
    assert noted(tmp_path, SLURM_JOB_NUM_NODES="2").device == ""
    write_smi(smi, "echo NVIDIA-SMI has failed because it could not communicate with the driver; exit 9")
    assert noted(tmp_path).device == ""


@pytest.mark.slow
def test_a_driver_that_hangs_is_not_waited_for(smi: Path, tmp_path: Path) -> None:
    write_smi(smi, "trap '' TERM; exec sleep 60")
    began = time.monotonic()
    assert noted(tmp_path).device == ""
    assert time.monotonic() - began < 40.0


def test_notes_of_a_later_start_replace_those_before(tmp_path: Path) -> None:
    state = tmp_path / "state"
    first = "began 1.0 10 a\ndevice 1.1 10 NVIDIA A + NVIDIA B\njob 1.2 10 44\nmemory 2.0 10 1000 cgroup\n"
    state.write_text(first + "memory 3.0 10 2000 cgroup of 1 of 2 nodes\nmemory 4.0 10 x\nmemory 5.0 9 9 cgroup\n")
    found = _script.read_state(str(state))
    assert (found.device, found.job) == ("NVIDIA A + NVIDIA B", "44")
    assert (found.memory, found.memory_source) == (2000, "cgroup of 1 of 2 nodes")
    state.write_text(state.read_text() + "began 6.0 11 b\ndevice 6.1 11 \n")
    assert _script.read_state(str(state)) == _script.Noted(began=6.0, host="b")


def test_the_outcome_gets_what_was_noted(tmp_path: Path) -> None:
    job = make_job(tmp_path, ["true"])
    Path(ray.state_path(job)).write_text("began 1.0 10 a\ndevice 1.1 10 NVIDIA H100\n")
    outcome = Outcome("ok", 0, 1.0, 2.0, 1.0)
    assert ray.Ray()._noted(job, outcome) == outcome._replace(device="NVIDIA H100")
    assert nrl_k8s.NrlK8s()._noted(job, outcome) == outcome
    submission.prepare(job, {}, 1)
    Path(submission.files(job).state).write_text("began 1.0 10 a\nmemory 2.0 10 1610612736 cgroup\n")
    assert Slurm()._noted(job, outcome)[5:7] == (1.5, "cgroup")


@pytest.mark.parametrize(
    ("out", "gib"),
    [("\n1048576K\n524288K\n", 1.0), ("2G\n", 2.0), ("1024.50M\n0\n", 1.00048828125), ("\n\n", None), ("0\n", None)],
)
def test_max_rss(monkeypatch: pytest.MonkeyPatch, out: str, gib: float | None) -> None:
    monkeypatch.setattr(calls, "call", lambda argv, **more: Answer(0, out, ""))
    assert calls.max_rss("7") == gib
    monkeypatch.setattr(calls, "call", lambda argv, **more: Answer(1, out, "Slurm accounting storage is disabled"))
    assert calls.max_rss("7") is None


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    for folder in engine_folder():
        os.environ.pop("SLURM_CONF", None)
        yield bring_up("slurm", folder, SLURM_MEMORY="4096")
        take_down("slurm", folder)


@pytest.fixture
def real(cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", cluster)


HOLD_300_MB = "import time; x = b'x' * (300 << 20); time.sleep(5)"
CGROUP = pytest.mark.skipif(
    not os.access("/sys/fs/cgroup/memory/cgroup.procs", os.W_OK), reason="needs root and cgroup v1"
)


@pytest.mark.engine
@NO_DRIVER
def test_a_job_of_slurm_knows_its_memory_and_its_gpus(real: None, tmp_path: Path) -> None:
    job = make_job(tmp_path, python(HOLD_300_MB), settings={"SLURM_ARGS": "--mem=1000"})
    cached = tmp_path / "cached"  # cached files are no memory of the run
    cached.write_bytes(b"x" * (200 << 20))
    job = job._replace(argv=["sh", "-c", f'cat "{cached}" >"{cached}.2"; exec "$@"', "sh", *job.argv])
    run = Run(Slurm(Limits(last_poll_s=1.0)), job)
    outcome = run.result()
    assert (outcome.end_cause, outcome.device) == ("ok", "none")
    assert _script.read_state(submission.files(job).state).job == run.job_id
    if CGROUP.args[0]:
        assert outcome.memory_gb is None
    else:
        assert outcome.memory_source == "cgroup"
        assert outcome.memory_gb == pytest.approx(0.30, abs=0.04)
    short = Run(Slurm(Limits(last_poll_s=1.0)), make_job(tmp_path, ["true"], "short")).result()
    assert (short.memory_gb, short.memory_source) == (None, "")


@pytest.mark.engine
@CGROUP
def test_a_step_of_a_held_allocation_counts_its_own_memory_only(real: None, tmp_path: Path) -> None:
    logs = tmp_path / "hold"
    logs.mkdir()
    settings = {"SLURM_ARGS": "--mem=2000"}
    held = module.hold(settings, name="camp", tree=str(tmp_path), logs=str(logs), env=os.environ)
    try:
        launcher = Slurm(Limits(last_poll_s=1.0))
        jobs = [
            make_job(tmp_path, python(code), name, settings={"SLURM_HOLD": held})
            for name, code in (("one", HOLD_300_MB), ("two", "import time; time.sleep(5)"))
        ]
        one, two = [run.result() for run in [Run(launcher, job) for job in jobs]]
    finally:
        module.release(held)
    assert one.memory_gb == pytest.approx(0.30, abs=0.04)
    assert two.memory_gb is not None
    assert two.memory_gb < 0.05
    assert (one.memory_source, two.device) == ("cgroup", "none")
