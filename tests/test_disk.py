"""Free space, asked so that nothing hangs."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from autoresearch.errors import Refused
from autoresearch.running import disk, processes
from tests.runs import root_only, tmpfs


def test_room_is_what_statvfs_says(hostile: Path) -> None:
    space = disk.free(str(hostile))
    found = os.statvfs(hostile)
    assert space.path == str(hostile)
    assert space.total_gb == pytest.approx(found.f_blocks * found.f_frsize / 2**30)
    assert space.free_gb == pytest.approx(shutil.disk_usage(hostile).free / 2**30, rel=0.05, abs=0.5)
    assert 0 <= space.free_pct <= 100
    assert not space.read_only
    assert not space.trouble


def test_what_does_not_exist_yet_has_the_room_of_its_parent(tmp_path: Path) -> None:
    assert disk.free(str(tmp_path / "a" / "b")).total_gb == disk.free(str(tmp_path)).total_gb
    (tmp_path / "file").touch()
    assert disk.free(str(tmp_path / "file" / "b")).total_gb == disk.free(str(tmp_path)).total_gb
    (tmp_path / "link").symlink_to("nowhere")
    assert disk.free(str(tmp_path / "link")).total_gb == disk.free(str(tmp_path)).total_gb


def test_a_hung_file_system_costs_its_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look = disk.look
    monkeypatch.setattr(disk, "look", lambda path: time.sleep(60) if path == "/hung" else look(path))
    started = time.monotonic()
    good, hung = disk.spaces([str(tmp_path), "/hung"], 0.2)
    assert time.monotonic() - started < 50
    assert good.total_gb > 0
    assert hung.trouble == "the file system has not answered for 0.2 s"
    monkeypatch.setattr(disk, "PROBE_S", 0.2)
    with pytest.raises(Refused, match="has not answered"):
        disk.check(["/hung"], 0, 0)


def test_a_probe_leaves_no_process(tmp_path: Path) -> None:
    before = processes.descendants()
    disk.free(str(tmp_path))
    assert processes.descendants() == before


def test_either_limit_refuses(tmp_path: Path) -> None:
    disk.check([str(tmp_path)], 0, 0)
    with pytest.raises(Refused, match="less than 1e"):
        disk.check([str(tmp_path)], 1e9, 0)
    with pytest.raises(Refused, match="less than 101 %"):
        disk.check([str(tmp_path)], 0, 101)


@pytest.mark.parametrize(
    ("space", "why"),
    [
        (disk.Space("x", 100, 200, 50, 10_000, 0.5), ""),
        (disk.Space("x", 100, 200, 50, 999, 0.5), "999 inodes left"),
        (disk.Space("x", 100, 200, 50, 9, 90.0), ""),
        (disk.Space("x", 100, 200, 50, None, 100.0), ""),
        (disk.Space("x", 100, 200, 50, None, 100.0, True), "read-only"),
        (disk.Space("x", 9.9, 200, 50), "9.9 GB free, less than 10 GB"),
        (disk.Space("x", 100, 20000, 0.5), "0.5 % free"),
        (disk.Space("x", trouble="broken"), "broken"),
    ],
)
def test_shortage(space: disk.Space, why: str) -> None:
    found = disk.shortage(space, 10, 5)
    assert why in found
    assert bool(found) == bool(why)


def test_mounts() -> None:
    assert disk.is_mount("/")
    assert disk.is_mount("/proc/")
    assert not disk.is_mount("/no/such")


@root_only
def test_a_mount_with_blanks_in_its_name(hostile: Path) -> None:
    with tmpfs(hostile / "a mount", "size=1m,nr_inodes=5") as where:
        assert disk.is_mount(str(where))
        assert not disk.is_mount(str(hostile))
        for name in "abcd":
            (where / name).touch()
        with pytest.raises(Refused, match="0 inodes left"):
            disk.check([str(where)], 0, 0)


@root_only
def test_a_read_only_disk(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "m", "size=1m,ro") as where, pytest.raises(Refused, match="read-only"):
        disk.check([str(where)], 0, 0)
