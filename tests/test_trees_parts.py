"""The parts below the pool: records beside the trees, and the removal of what can be made again."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from autoresearch.git import strays, treerecords


def test_records_survive_their_json(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    record = treerecords.reserve(str(tmp_path / "p"), "owner é", "run", 1.5)
    assert treerecords.read(str(tmp_path / "p"), 1, "owner") == record
    assert json.loads((tmp_path / "p/1.owner").read_text())["owner"] == "owner é"


def test_discard_follows_nothing_out(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/keep").write_text("x")
    (tmp_path / "d").mkdir()
    (tmp_path / "d/link").symlink_to(tmp_path / "outside")
    strays.discard(str(tmp_path / "d"))
    (tmp_path / "l").symlink_to(tmp_path / "outside")
    strays.discard(str(tmp_path / "l"))
    assert (tmp_path / "outside/keep").exists()
    assert sorted(os.listdir(tmp_path)) == ["outside"]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_discard_refuses_a_mount_below(tmp_path: Path) -> None:
    (tmp_path / "d/m").mkdir(parents=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "none", str(tmp_path / "d/m")], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("mount is not allowed here")
    try:
        (tmp_path / "d/m/keep").write_text("x")
        with pytest.raises(OSError, match="mounted"):
            strays.discard(str(tmp_path / "d"))
        assert (tmp_path / "d/m/keep").exists()
    finally:
        subprocess.run(["umount", str(tmp_path / "d/m")], check=True)
