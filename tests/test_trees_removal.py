"""eviction.py: a removal that was cut off is taken up again; and several callers that mean one tree."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from autoresearch.errors import Refused, TryAgain
from autoresearch.git import Git, eviction, strays, treerecords
from autoresearch.git.trees import Pool
from tests.conftest import git
from tests.runs import root_only, tmpfs, until
from tests.test_trees_submodules import nested


@pytest.fixture
def repo(make_repo: Callable[..., Path]) -> Path:
    """A repository with nested submodules."""
    return nested(make_repo)


@pytest.fixture
def pool(repo: Path, tmp_path: Path) -> Pool:
    """A pool with one free tree."""
    pool = Pool(Git(str(repo)), str(tmp_path / "p"))
    pool.acquire(git(repo, "rev-parse", "HEAD"), "y")
    assert pool.give_back("y", str(tmp_path / "artifacts")).reused
    return pool


def cut_off(pool: Pool, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a removal killed together with its git, when that had removed a part of the tree."""
    tree = Path(treerecords.root(pool.directory, 1))

    def remove(*_: object, **__: object) -> None:
        (tree / "train.py").unlink()
        if where == "entry":
            shutil.rmtree((tree / ".git").read_text()[8:].strip())
        elif where != "file":
            (tree / where / ".git").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Pool, "remove", remove)
        with pytest.raises(KeyboardInterrupt):
            eviction.evict(pool)


@pytest.mark.parametrize("again", ["evict", "tidy"])
@pytest.mark.parametrize("where", ["file", "", "libs/sub", "libs/sub/inner", "entry"])
def test_a_removal_that_was_cut_off_is_finished(
    repo: Path, pool: Pool, monkeypatch: pytest.MonkeyPatch, where: str, again: str
) -> None:
    cut_off(pool, where, monkeypatch)
    eviction.evict(pool) if again == "evict" else eviction.tidy(pool)
    assert os.listdir(pool.directory) == ["lock"]
    for folder in (repo, repo / "libs/sub", repo / "libs/sub/inner"):
        assert pool.directory not in git(folder, "worktree", "list")


def test_a_number_that_is_used_again_is_not_removed(repo: Path, pool: Pool) -> None:
    """Two callers want to remove one tree; when the second gets to it, it is the tree of a third."""
    record = treerecords.read(pool.directory, 1, "free")
    assert record
    treerecords.change(pool.directory, record._replace(collected=True, reason="old"), "retired")
    second = threading.Thread(target=eviction.evict, args=(pool,))
    with treerecords.writing(pool.directory, 1):
        second.start()
        until(lambda: second.native_id and f"{pool.directory}/1.lock" in opened())
        pool.remove(record)
        mine = pool.acquire(record.commit, "z")
    second.join()
    assert mine.number == 1
    assert Path(mine.path, "train.py").exists()
    assert treerecords.listing(pool.directory) == {1: "owner"}


def test_one_experiment_started_many_times_at_once_gets_one_tree(repo: Path, pool: Pool) -> None:
    paths: list[str] = []
    commit = git(repo, "rev-parse", "HEAD")
    threads = [threading.Thread(target=lambda: paths.append(pool.open_for("y", commit).path)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(paths) == 4
    assert len(set(paths)) == 1
    assert sorted(name for name in os.listdir(pool.directory) if name.endswith(".lock")) == ["1.lock"]


def opened() -> list[str]:
    """Return the files that this process has open, one of them twice for two times."""
    names = [
        os.readlink(f"/proc/self/fd/{fd}")
        for fd in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{fd}")
    ]
    return [name for name in names if names.count(name) > 1]


def test_a_tree_in_which_git_still_works_is_not_removed(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(treerecords, "WRITING_WAIT_S", 0.05)
    with treerecords.writing(pool.directory, 1), pytest.raises(TryAgain, match="still works in"):
        eviction.evict(pool)
    assert treerecords.listing(pool.directory) == {1: "free"}


@root_only
def test_a_mount_is_found_whatever_is_in_its_path(tmp_path: Path) -> None:
    ours = tmp_path / "a b\\040\tc\nd"
    ours.mkdir()
    with tmpfs(ours / "mounted", "size=1m") as mounted:
        assert strays.mounts_below(str(ours)) == [str(mounted)]
        (mounted / "theirs").touch()
        with pytest.raises(OSError, match="is mounted in it"):
            strays.erase(str(ours))
        assert (mounted / "theirs").exists()


@root_only
def test_what_lies_on_a_mount_of_the_run_is_left_alone(make_repo: Callable[..., Path], tmp_path: Path) -> None:
    """Mounted over a directory of the commit: its files are strays of the tree, and another file system's."""
    repo = make_repo({"data/a": "a\n"})
    pool = Pool(Git(str(repo)), str(tmp_path / "p"))
    tree = pool.acquire(git(repo, "rev-parse", "HEAD"), "y")
    shutil.rmtree(os.path.join(tree.path, "data"))
    with tmpfs(Path(tree.path, "data"), "size=1m") as mounted:
        (mounted / "a").write_text("a\n")
        (mounted / "theirs").write_text("theirs\n")
        assert pool.give_back("y", str(tmp_path / "artifacts")).stuck
        assert (mounted / "theirs").read_text() == "theirs\n"
        with pytest.raises(Refused):
            eviction.evict(pool)
        assert (mounted / "theirs").exists()
