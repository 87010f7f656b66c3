"""Disks that are full, have no inodes left, or cannot be written: the row comes all the same, at the latest later."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import git
from tests.faults import Lab, train_repo, until
from tests.runs import root_only, tmpfs

pytestmark = [pytest.mark.slow, root_only]


def filling(where: Path, size: int = 1 << 16, pause: float = 0.0) -> str:
    """Return the argument of a training that writes files until it is ended or the disk is full."""
    lines = (
        "n = 0",
        "while True:",
        f"  open({str(where)!r} + '/fill%d' % n, 'wb').write(bytes({size}))",
        "  n += 1",
        f"  time.sleep({pause})",
    )
    code = "\n".join(lines).encode().hex()
    return f"\"code=exec(bytes.fromhex('{code}'))\""


def fill(where: Path) -> Path:
    """Take all the space of a disk."""
    path = where / "everything"
    with open(path, "wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                pass
    return path


def free(where: Path) -> None:
    for path in where.glob("fill*"):
        path.unlink()


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """20 MB."""
    with tmpfs(tmp_path / "s", "size=20m,nr_inodes=1500") as where:
        yield where


@pytest.fixture
def small_repo(make_repo: Callable[..., Path], hostile: Path) -> Iterator[Path]:
    """A repository on 20 MB."""
    with tmpfs(hostile / "disk", "size=20m,nr_inodes=3000"):
        yield train_repo(make_repo, "disk/repo")


def branches(lab: Lab) -> str:
    return git(lab.repo, "for-each-ref", "refs/heads/ar")


@pytest.mark.parametrize("reserve", ["0.005", "0"])
def test_the_run_fills_scratch(make_repo: Callable[..., Path], scratch: Path, hermetic: Path, reserve: str) -> None:
    """Ended in time to save where there is a reserve; else it meets the full disk. Both are the cause `disk`."""
    lab = Lab(train_repo(make_repo), scratch, hermetic, DISK_RESERVE_GB=reserve, DISK_CHECK_S="0.1")
    lab.ok("baseline")
    done = lab.idea("y", filling(scratch, pause=0.001 if reserve != "0" else 0))
    assert done.returncode == 4, done
    row = lab.row("y")
    assert (row.status, row.end_cause) == ("crash", "disk"), row
    left = os.statvfs(scratch)
    assert left.f_bavail * left.f_frsize < 6 << 20
    if reserve != "0":
        refused = lab.idea("z")
        assert refused.returncode == 3
        assert "DISK_RESERVE_GB" in refused.stderr or "free" in refused.stderr
    # The row is there; what else is left to do is done when there is room.
    assert lab.status()["attempted"] == 2
    free(scratch)
    assert lab.idea("z").returncode == 0
    lab.check()


def test_scratch_is_full_before_the_launch(make_repo: Callable[..., Path], scratch: Path, hermetic: Path) -> None:
    """Without a reserve a launch gets as far as it can; it leaves no row, no place taken, and a plain message."""
    lab = Lab(train_repo(make_repo), scratch, hermetic, stop="2 experiments")
    lab.ok("baseline")
    everything = fill(scratch)
    done = lab.idea("y")
    assert done.returncode in (1, 3), done
    assert "Traceback" not in done.stderr
    assert lab.status()["attempted"] == 1
    everything.unlink()
    assert lab.idea("y").returncode == 0
    assert len(lab.check()) == 2


def test_the_run_uses_up_the_inodes(make_repo: Callable[..., Path], scratch: Path, hermetic: Path) -> None:
    lab = Lab(train_repo(make_repo), scratch, hermetic)
    lab.ok("baseline")
    done = lab.idea("y", filling(scratch, size=1))
    assert done.returncode == 4, done
    assert lab.row("y").end_cause == "disk"
    assert os.statvfs(scratch).f_favail < 100
    # The row is there; what else is left to do is done when there is room.
    assert lab.status()["attempted"] == 2
    free(scratch)
    assert lab.idea("z").returncode == 0
    lab.check()


def test_the_ledger_itself_lies_on_the_full_scratch(
    make_repo: Callable[..., Path], scratch: Path, hermetic: Path
) -> None:
    """The row waits in the state file, which is in the repository, and counts as attempted."""
    lab = Lab(train_repo(make_repo), scratch, hermetic, stop="3 experiments", LEDGER="scratch")
    lab.ok("baseline")
    # Its command makes the row longer than what the ledger's last page has left.
    done = lab.idea("y", f"{filling(scratch)} pad={'x' * 5000}")
    assert done.returncode == 1, done
    assert "y.json" in done.stderr
    assert lab.status()["attempted"] == 2
    free(scratch)
    assert lab.call("wait", NAME="y").returncode == 4
    assert lab.row("y").end_cause == "disk"
    assert lab.idea("z").returncode == 0
    assert lab.idea("more").returncode == 3
    lab.check()


@pytest.mark.parametrize("size", [1 << 16, 0], ids=["space", "inodes"])
def test_the_repository_disk_is_full(small_repo: Path, tmp_path: Path, hermetic: Path, size: int) -> None:
    """The row is kept, and the next verb writes it when there is room again; a reader says so meanwhile."""
    lab = Lab(small_repo, tmp_path / "s", hermetic, stop="3 experiments")
    lab.ok("baseline")
    # The training reports its number, then somebody else takes the last bit of the disk.
    done = lab.idea("y", filling(small_repo.parent, size=size))
    row = [row for row in lab.rows() if row.experiment == "y"]
    assert done.returncode == (4 if row else 1), done
    assert "Traceback" not in done.stderr
    assert lab.status()["attempted"] == 2
    assert lab.call("experiment", NAME="z", OVERRIDES="idea=z").returncode in (1, 3)
    free(small_repo.parent)
    assert lab.idea("z").returncode == 0
    lab.check()
    assert lab.row("y").end_cause == "disk"
    assert lab.idea("more").returncode == 3


def test_a_result_outlives_a_full_repository_disk(small_repo: Path, tmp_path: Path, hermetic: Path) -> None:
    """A run that ends well while nothing can be written keeps its true number."""
    lab = Lab(small_repo, tmp_path / "s", hermetic, stop="3 experiments")
    lab.ok("baseline")
    lab.ok("experiment", DETACH="1", NAME="y", OVERRIDES="idea=y sleep=1.5 value=0.875")
    until(lambda: any("/y/" in path for path in lab.began()))
    everything = fill(small_repo.parent)
    waited = lab.call("wait", NAME="y")
    assert waited.returncode in (0, 1, 3), waited
    assert not waited.returncode or "space" in waited.stderr
    assert "Traceback" not in waited.stderr
    everything.unlink()
    assert lab.call("wait", NAME="y").returncode == 0
    row = lab.row("y")
    assert (row.metric_value, row.status, row.end_cause) == ("0.875", "keep", "ok")
    lab.check()


@pytest.mark.parametrize("which", ["scratch", "repository"])
def test_a_disk_that_is_read_only(small_repo: Path, scratch: Path, hermetic: Path, which: str) -> None:
    """A refusal before anything is made."""
    lab = Lab(small_repo, scratch, hermetic)
    lab.ok("baseline")
    before = branches(lab)
    disk = str(scratch if which == "scratch" else small_repo.parent)
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    done = lab.idea("y")
    started = lab.call("start", NAME="x")
    subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
    for one in (done, started):
        assert one.returncode == 3, one
        assert "read-only" in one.stderr.lower(), one
    assert branches(lab) == before
    assert lab.states() == []
    assert lab.idea("y").returncode == 0
    lab.check()
