"""entries.py: what a kill or a power cut leaves half written in .git/worktrees harms neither the user nor us."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

from autoresearch.git import Git, entries, eviction, treerecords
from autoresearch.git.trees import Pool
from tests.conftest import git
from tests.test_trees_submodules import nested

ZEROS = "0" * 40 + "\n"
# In the order in which `git worktree add` writes them; None: not there yet.
CUT_OFF = [(None, None), ("", None), (ZEROS, None), (ZEROS, ""), (ZEROS, "../..\n")]
PARTS = ("", "libs/sub", "libs/sub/inner")


@pytest.fixture
def repo(make_repo: Callable[..., Path]) -> Path:
    """A repository with nested submodules."""
    return nested(make_repo)


def entry(tree: Path) -> Path:
    """Return the entry of a tree in its repository."""
    return Path((tree / ".git").read_text().removeprefix("gitdir: ").strip())


def leave(directory: Path, **texts: str | None) -> None:
    """Set what is in the files of an entry; None: no file."""
    for name, text in texts.items():
        (directory / name).unlink() if text is None else (directory / name).write_text(text)


def assert_users_git_works(repo: Path) -> None:
    for part in PARTS:
        for words in ("gc --quiet --prune=now", "fetch --quiet .", "branch --all", "fsck --no-dangling"):
            git(repo / part, *words.split())


@pytest.mark.parametrize(("head", "commondir"), CUT_OFF)
def test_a_tree_that_was_never_finished(
    repo: Path, pool: Pool, tmp_path: Path, head: str | None, commondir: str | None
) -> None:
    """A call is killed together with its git, in the middle of `worktree add`."""
    Path(pool.directory).mkdir(parents=True)
    record = treerecords.reserve(pool.directory, "v", "moving", 0.0)
    tree = Path(treerecords.root(pool.directory, record.number))
    git(repo, "worktree", "add", "-q", "--no-checkout", "--detach", "--lock", str(tree), "HEAD")
    leave(entry(tree), HEAD=head, commondir=commondir)
    mine = pool.acquire(git(repo, "rev-parse", "HEAD"), "mine")
    assert Path(mine.path, "train.py").read_text() == "2\n"
    assert_users_git_works(repo)
    pool.give_back("v", str(tmp_path / "artifacts"))
    assert eviction.tidy(pool) == []
    assert treerecords.listing(pool.directory) == {mine.number: "owner"}
    assert git(repo, "worktree", "list").count("\n") == 1


@pytest.mark.parametrize(("head", "commondir"), [("", ""), (ZEROS, ""), (None, None)])
@pytest.mark.parametrize("part", PARTS)
def test_a_free_tree_after_a_power_cut(
    repo: Path, pool: Pool, tmp_path: Path, part: str, head: str | None, commondir: str | None
) -> None:
    """It is used again or removed, and it is what it should be."""
    commit, artifacts = git(repo, "rev-parse", "HEAD"), str(tmp_path / "artifacts")
    tree = Path(pool.acquire(commit, "y").path)
    pool.give_back("y", artifacts)
    leave(entry(tree / part), HEAD=head, commondir=commondir)
    mine = pool.acquire(commit, "mine")
    assert git(Path(mine.path), "status", "--porcelain", "--ignored") == ""
    assert Path(mine.path, "libs/sub/inner/deep.py").read_text() == "deep\n"
    pool.give_back("mine", artifacts)
    eviction.evict(pool)
    assert_users_git_works(repo)
    for folder in PARTS:
        assert "\n" not in git(repo / folder, "worktree", "list")


def test_the_tree_of_start_after_a_power_cut(repo: Path, pool: Pool) -> None:
    """What was edited in it counts as before."""
    git(repo, "branch", "ar/c/y")
    tree = Path(pool.open_for("y", git(repo, "rev-parse", "HEAD"), "ar/c/y").path)
    (tree / "train.py").write_text("3\n")
    leave(entry(tree), HEAD="", commondir="")
    assert pool.find("y")
    assert git(tree, "status", "--porcelain") == " M train.py"
    record = treerecords.read(pool.directory, 1, "owner")
    assert record
    assert eviction.unique_work(pool, record) == ["train.py"]


def test_an_entry_whose_scratch_was_wiped(repo: Path, pool: Pool) -> None:
    tree = Path(pool.acquire(git(repo, "rev-parse", "HEAD"), "y").path)
    leave(entry(tree), HEAD="", commondir="")
    Path(pool.directory).rename(f"{pool.directory}.lost")
    assert Path(pool.acquire(git(repo, "rev-parse", "HEAD"), "z").path, "libs/sub/lib.py").exists()
    assert_users_git_works(repo)


def test_an_entry_of_the_user_is_not_touched(repo: Path, tmp_path: Path) -> None:
    for name in ("hers", ".trees/mine", "x.trees/1"):
        git(repo, "worktree", "add", "-q", "--detach", str(tmp_path / name))
    for name in ("hers", ".trees/mine", "x.trees/1"):
        leave(entry(tmp_path / name), HEAD="", commondir="")
    common = Git(str(repo)).common
    before = {path: path.read_bytes() for path in Path(common, "worktrees").rglob("*") if path.is_file()}
    entries.mend(common)
    assert {path: path.read_bytes() for path in Path(common, "worktrees").rglob("*") if path.is_file()} == before


def test_what_cannot_be_read_for_a_moment_is_left_alone(
    repo: Path, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(path: str, **given: Any) -> IO[str]:
        if path.endswith("/HEAD"):
            raise OSError(errno.EIO, "Input/output error", path)
        return open(path, **given)

    git(repo, "branch", "ar/c/y")
    tree = Path(pool.open_for("y", git(repo, "rev-parse", "HEAD"), "ar/c/y").path)
    with monkeypatch.context() as disk:
        disk.setattr(entries, "open", fails, raising=False)
        entries.mend(pool.common)
    assert git(tree, "symbolic-ref", "HEAD") == "refs/heads/ar/c/y"
