"""hooked.py: commits that the repository's own hooks look at."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from autoresearch.errors import AutoresearchError, Refused
from autoresearch.git import eviction, treerecords
from autoresearch.git.hypothesis import Hypothesis
from autoresearch.git.trees import Pool
from tests.conftest import GIT_CONFIG, git
from tests.test_commit_building import FILES, build, show


@pytest.fixture
def repo(make_repo: Callable[..., Path]) -> Path:
    """A repository with nested files."""
    return make_repo(FILES)


def hook(repo: Path, name: str, text: str) -> None:
    """Enable a hook."""
    path = repo / ".git/hooks" / name
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


def hooked(repo: Path, pool: Pool, **more: object) -> Hypothesis:
    """Build from an edit of train.py, with hooks."""
    (repo / "train.py").write_text("edited  \n")
    return build(repo, files=["train.py"], pool=pool, **more)


def test_hooks_run_and_their_message_counts(repo: Path, pool: Pool) -> None:
    hook(repo, "commit-msg", 'echo "Change-Id: 1" >> "$1"')
    hook(repo, "post-checkout", "exit 1")
    made = hooked(repo, pool)
    assert git(repo, "log", "-1", "--format=%B", made.commit).endswith("Change-Id: 1")
    assert show(repo, made.commit, "train.py") == "edited  "
    assert treerecords.listing(pool.directory) == {1: "free"}


def test_a_hook_that_rewrites_gets_a_second_try(repo: Path, pool: Pool) -> None:
    hook(repo, "pre-commit", "grep -q ' $' train.py || exit 0; sed -i 's/ *$//' train.py; exit 1")
    assert show(repo, hooked(repo, pool).commit, "train.py") == "edited"


def test_a_hook_that_rewrites_silently_is_committed_too(repo: Path, pool: Pool) -> None:
    hook(repo, "pre-commit", "sed -i 's/ *$//' train.py")
    made = hooked(repo, pool)
    assert show(repo, made.commit, "train.py") == "edited"
    assert made.parent == git(repo, "rev-parse", "HEAD") == git(repo, "rev-parse", f"{made.commit}^")


@pytest.mark.parametrize("text", ["echo 'not so' >&2; exit 1", "date +%N >> train.py; exit 1", "date +%N >> train.py"])
def test_a_hook_that_says_no_is_a_refusal(repo: Path, pool: Pool, text: str) -> None:
    hook(repo, "pre-commit", text)
    with pytest.raises(Refused, match="commit hook"):
        hooked(repo, pool)
    assert [tree for tree in pool.trees() if tree.kind != "start"] == []
    assert eviction.tidy(pool) == []
    eviction.evict(pool)


def test_the_tree_of_a_killed_hook_run_comes_back(repo: Path, pool: Pool) -> None:
    pool.acquire(git(repo, "rev-parse", "HEAD"), "hooks:999999999:1")
    pool.acquire(git(repo, "rev-parse", "HEAD"), f"hooks:{os.getpid()}:1")
    assert eviction.tidy(pool) == []
    assert treerecords.listing(pool.directory) == {1: "free", 2: "owner"}


def test_a_hook_run_that_outlived_its_caller_comes_back(repo: Path, pool: Pool) -> None:
    """Its git has made the commit that nobody knows of any more: the tree is no obstacle to anything."""
    owner = "hooks:999999999:1"
    tree = Path(pool.acquire(git(repo, "rev-parse", "HEAD"), owner).path)
    (tree / "train.py").write_text("edited\n")
    git(tree, "commit", "-qam", "by the git that went on")
    with treerecords.writing(pool.directory, 1):
        assert eviction.tidy(pool) == []  # it does not wait for that git
        assert pool.trees()[0].owner == owner
    assert eviction.tidy(pool) == []
    assert treerecords.listing(pool.directory) == {}
    assert (Path(pool.directory) / "left_by_hooks/left_in_tree/train.py").read_text() == "edited\n"


def test_a_hook_that_starts_a_daemon_holds_nothing_up(repo: Path, pool: Pool, tmp_path: Path) -> None:
    hook(repo, "pre-commit", f"setsid sleep 300 <&- >&- 2>&- & echo $! > '{tmp_path}/pid'")
    hooked(repo, pool)
    try:
        assert treerecords.listing(pool.directory) == {1: "retired"}  # the daemon may write there at any time
        assert eviction.tidy(pool) == []
        assert treerecords.listing(pool.directory) == {}
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_a_relative_hooks_path_and_a_hook_without_execute_bit(repo: Path, pool: Pool) -> None:
    hook(repo, "pre-commit", "exit 1")
    (repo / ".git/hooks/pre-commit").chmod(0o644)
    (repo / "train.py").write_text("x\n")
    build(repo, files=["train.py"], pool=pool)
    (repo / "githooks").mkdir()
    git(repo, "config", "core.hooksPath", "githooks")
    (repo / "githooks/pre-commit").write_text("#!/bin/sh\nexit 1\n")
    (repo / "githooks/pre-commit").chmod(0o755)
    with pytest.raises(Refused, match="commit hook"):
        hooked(repo, pool)


def test_hooks_that_git_does_not_know_run_too(repo: Path, pool: Pool) -> None:
    """They are made by an installer in the checkout, at a relative path that is in no tree."""
    git(repo, "config", "core.hooksPath", ".tool/_")
    (repo / ".tool/_").mkdir(parents=True)
    (repo / ".tool/_/pre-commit").write_text("#!/bin/sh\nexit 1\n")
    (repo / ".tool/_/pre-commit").chmod(0o755)
    with pytest.raises(Refused, match="commit hook"):
        hooked(repo, pool)


def test_who_commits_is_decided_in_the_checkout(repo: Path, pool: Pool, hermetic: Path) -> None:
    """A condition of the config files may hold there and in no tree."""
    escaped = str(repo).replace('"', '\\"')
    (hermetic / ".gitconfig").write_text(f'[includeIf "gitdir:{escaped}/.git"]\n\tpath = me\n')
    (hermetic / "me").write_text(GIT_CONFIG)
    hook(repo, "pre-commit", "exit 0")
    form = "--format=%an <%ae> %cn <%ce>"
    who = "A Researcher <researcher@example.org>"
    assert git(repo, "show", "-s", form, hooked(repo, pool).commit) == f"{who} {who}"


def test_an_empty_commit_is_bookkeeping_and_runs_no_hook(repo: Path) -> None:
    hook(repo, "pre-commit", "exit 1")
    build(repo, allow_empty=True)
    (repo / "train.py").write_text("x\n")
    with pytest.raises(AutoresearchError, match="no pool"):
        build(repo, files=["train.py"])
