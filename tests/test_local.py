"""The launcher `local`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from autoresearch import launchers
from autoresearch.launchers import Job, Watch, local
from autoresearch.running import processes, runfile


def job(where: Path, **settings: str) -> Job:
    exports = {"CHECKPOINT_DIR": str(where / "checkpoints")}
    env = {"PATH": "/usr/bin:/bin"}
    log = str(where / "run.log")
    return Job("c-x", ["env"], str(where), env, exports, (), str(where), log, 9.0, 1.0, None, settings)


def smi(where: Path, monkeypatch: pytest.MonkeyPatch, gpus: str, apps: str = "", status: int = 0) -> None:
    """Put a stand-in for nvidia-smi on PATH."""
    where.mkdir(exist_ok=True)
    (where / "nvidia-smi").write_text(
        f"#!/bin/sh\ncase $1 in *query-gpu*) printf '{gpus}';; *) printf '{apps}';; esac\nexit {status}\n"
    )
    (where / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{where}:/usr/bin:/bin")


TWO = "0, GPU-a, NVIDIA H100\\n1, GPU-b, NVIDIA H100\\n"


def levels(gpus_needed: int, nodes: int = 1, **settings: str) -> list[tuple[str, str]]:
    return [(found.level, found.what) for found in local.launcher().check(settings, gpus_needed, nodes)]


def test_it_is_found_by_name() -> None:
    assert launchers.load("local").name == "local"


def test_no_gpu_needed() -> None:
    assert levels(0) == [("ok", "local")]


def test_gpus_needed_where_there_are_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (found,) = local.launcher().check({}, 8, 1)
    assert found.level == "FAIL"
    assert "LAUNCHER=slurm" in found.fix
    smi(tmp_path / "bin", monkeypatch, "NVIDIA-SMI has failed", status=9)
    assert levels(1) == [("FAIL", "GPUs")]


def test_more_than_there_are(monkeypatch: pytest.MonkeyPatch, hostile: Path) -> None:
    smi(hostile / "bin", monkeypatch, TWO)
    assert levels(2) == [("ok", "GPUs")]
    assert levels(8) == [("FAIL", "GPUs")]
    assert levels(2, GPUS="1") == [("FAIL", "GPUs")]
    assert levels(1, GPUS="GPU-b") == [("ok", "GPUs")]
    assert levels(0, GPUS="7")[0] == ("FAIL", "GPUs")
    assert levels(2, nodes=4)[0] == ("FAIL", "nodes")


def test_gpus_are_named_as_cuda_takes_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    smi(tmp_path / "bin", monkeypatch, TWO.replace("GPU-a", "GPU-aa11").replace("GPU-b", "GPU-bb22"))
    assert levels(1, GPUS="GPU-bb") == [("ok", "GPUs")]
    assert levels(1, GPUS="MIG-5") == [("ok", "GPUs")]
    assert levels(1, GPUS="GPU-c")[0] == ("FAIL", "GPUs")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert levels(1) == [("ok", "GPUs")]
    assert levels(2) == [("FAIL", "GPUs")], "the run would see one"
    assert levels(2, GPUS="0,1") == [("ok", "GPUs")]


def test_it_may_be_forced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for settings in ({"GPUS": "0"}, {}):
        assert levels(1, FORCE_LOCAL="1", **settings) == [("warn", "GPUs")]
        assert levels(1, FORCE_LOCAL="0", **settings) == [("FAIL", "GPUs")]


def test_somebody_else_computes_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    smi(tmp_path / "bin", monkeypatch, TWO, "GPU-b, 4711, python3, 12345 MiB\\n")
    assert levels(1) == [("warn", "GPUs")]
    assert levels(1, GPUS="0") == [("ok", "GPUs")]
    assert levels(1, GPUS="1") == [("warn", "GPUs")]


def test_a_job_becomes_a_command(tmp_path: Path) -> None:
    mark = processes.new_mark().text()
    made = local.command(job(tmp_path, GPUS="0,1", MARK=mark, STALL_MIN="5"))
    assert made.env["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert (made.mark, made.limits.stall_s, made.limits.devices) == (mark, 300.0, "0,1")
    assert made.limits.growing == (str(tmp_path), str(tmp_path / "checkpoints"))
    assert "CUDA_VISIBLE_DEVICES" not in local.command(job(tmp_path)).env


def test_submit_follow_cancel_collect(tmp_path: Path) -> None:
    launcher = local.launcher()
    ids: list[str] = []
    watch = Watch(lambda: False, ids.append, lambda at: None, lambda text: None)
    launcher.cancel(job(tmp_path), "none")  # nothing has been started
    assert launcher.submit(job(tmp_path), watch) == "none" == ids[0]
    raw = processes.bounded(lambda: launcher.follow(job(tmp_path), "none", watch).end_cause.encode(), 20)
    assert raw == b"ok"
    found = launcher.collect(job(tmp_path), "none")
    assert found is not None
    assert found.end_cause == "ok"
    assert launcher.describe("none", {}) == "on this machine"


def test_cancel_ends_what_carries_the_mark(tmp_path: Path) -> None:
    mark = processes.new_mark()
    runfile.write(str(tmp_path), runfile.Record(mark.text(), os.uname().nodename, 1.0, 1.0, ""))
    child = subprocess.Popen(["sleep", "60"], preexec_fn=lambda: processes.wear(mark))
    local.launcher().cancel(job(tmp_path), "none")
    assert child.wait(60) == -15
