"""A campaign whose Slurm goes away at a submission: one true row, one job, whoever is killed meanwhile."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults import Lab, train_repo, until
from tests.launching import bring_up, engine_folder, take_down
from tests.test_engines_end_to_end import Site, killed, launch, useful

pytestmark = pytest.mark.engine
# Stops the controller before the submission, once, and lets it go on a while after that was given up.
SBATCH = """#!/bin/bash
read -r pid <{folder}/run/slurmctld.pid
if [[ $* == *--parsable* ]] && rmdir {home}/armed 2>/dev/null; then
  kill -STOP "$pid"
  (exec </dev/null >/dev/null 2>&1; sleep 16; kill -CONT "$pid") &
fi
exec {sbatch} "$@"
"""


@pytest.fixture
def site() -> Iterator[Site]:
    for folder in engine_folder():
        bring_up("slurm", folder, SLURM_KILL_WAIT="2", SLURM_MEMORY="3000")
        yield Site("slurm", {"LAUNCHER": "slurm"}, {"SLURM_CONF": f"{folder}/slurm.conf"}, folder)
        take_down("slurm", folder)


def test_one_row_and_one_job(site: Site, make_repo: Callable[..., Path], tmp_path: Path, hermetic: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    real = shutil.which("sbatch")
    (folder / "sbatch").write_text(SBATCH.format(home=folder, folder=site.folder, sbatch=real))
    (folder / "sbatch").chmod(0o755)
    env = {**os.environ, **site.env, "PATH": f"{folder}:{os.environ['PATH']}"}
    name = "slurm-unanswered"
    lab = Lab(train_repo(make_repo), tmp_path / "s", hermetic, stop="30 experiments", name=name, env=env, **site.knobs)
    lab.ok("baseline")
    (folder / "armed").mkdir()
    launch(lab, "waits", "value=0.6 sleep=4")
    told = until(lambda: [one for one in lab.status()["running"] if "submitting" in str(one)], 40, lab.status)
    assert "Socket timed out" in str(told)
    assert lab.call("wait", NAME="waits").returncode == 0
    (folder / "armed").mkdir()
    launch(lab, "killed", "value=0.7 sleep=4")
    until(lambda: not (folder / "armed").exists())
    killed(lab)
    assert lab.call("wait", NAME="killed").returncode == 0
    rows = {row.experiment: row for row in lab.check()}
    assert {one: (row.end_cause, row.metric_value) for one, row in rows.items()} == {
        "baseline": ("ok", "0.5"),
        "waits": ("ok", "0.6"),
        "killed": ("ok", "0.7"),
    }
    for row in rows.values():
        useful(lab, site, row)
    assert site.names(name) == sorted(f"{name}-{one}" for one in rows)
    assert site.live() == []
    if not os.path.exists("/proc/driver/nvidia") and not shutil.which("nvidia-smi"):
        assert {row.device for row in rows.values()} == {"none"}
    if os.access("/sys/fs/cgroup/memory/cgroup.procs", os.W_OK):
        assert rows["waits"].memory_source == "cgroup"
        assert 0 < float(rows["waits"].memory_gb) < 0.5
