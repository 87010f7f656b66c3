"""kill -9 in the middle of anything: the next caller gets fresh trees, and what a run left is still somewhere."""

from __future__ import annotations

import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from autoresearch.git import Git, eviction, treerecords
from autoresearch.git.trees import Pool
from tests.conftest import git, snapshot
from tests.test_trees import content, fresh
from tests.test_trees_submodules import nested

VICTIM = """
import itertools, sys
from autoresearch.git import Git
from autoresearch.git.trees import Pool
pool = Pool(Git(sys.argv[1]), sys.argv[2])
for n in itertools.count():
    owner = f"{sys.argv[3]}-{n}"
    tree = pool.acquire(sys.argv[5 + n % 2], owner)
    with open(f"{tree.path}/left-{owner}", "w") as file:
        file.write(owner)
    print(owner, flush=True)
    pool.give_back(owner, sys.argv[4])
"""


@pytest.mark.slow
def test_killed_at_any_moment(make_repo: Callable[..., Path], tmp_path: Path) -> None:
    repo = make_repo({f"d{n % 7}/f{n}.py": f"{n}\n" * 50 for n in range(300)})
    first = git(repo, "rev-parse", "HEAD")
    for n in range(0, 300, 3):
        (repo / f"d{n % 7}/f{n}.py").write_text("changed\n")
    git(repo, "commit", "-qam", "second")
    second = git(repo, "rev-parse", "HEAD")
    before = snapshot(repo)
    pool = Pool(Git(str(repo)), str(tmp_path / "p"))
    kept = tmp_path / "artifacts"
    chance, wrote = random.Random(7), []
    for round_ in range(25):
        victim = subprocess.Popen(
            [sys.executable, "-c", VICTIM, str(repo), pool.directory, f"v{round_}", str(kept), first, second],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
            start_new_session=True,
        )
        if round_ == 0:  # one has certainly written, also on a busy machine
            assert victim.stdout
            wrote += victim.stdout.readline().split()
        time.sleep(0.15 + chance.random() * 0.4)
        os.killpg(victim.pid, signal.SIGKILL)
        wrote += victim.communicate()[0].split()
        for tree in pool.trees():
            pool.give_back(tree.owner, str(kept))
        commit = (first, second)[round_ % 2]
        mine = pool.acquire(commit, "mine")
        assert content(mine.path) == fresh(repo, tmp_path, commit)
        pool.give_back("mine", str(kept))
    assert wrote
    found = {path.name for top in (kept, Path(pool.directory)) for path in top.rglob("left-*")}
    assert {f"left-{owner}" for owner in wrote} <= found
    assert not [n for n, state in treerecords.listing(pool.directory).items() if state == "owner"]
    git(repo, "fsck", "--strict", "--no-dangling")
    assert snapshot(repo) == before


DEADLY_GIT = """#!/bin/sh
case " $* " in
*"{words} "*) kill -9 $PPID; sleep 1 ;;
*" update-ref "*) test "{words}" != " read-tree" || exit 1 ;;
esac
exec {git} "$@"
"""


def die_in(words: str, pool: Pool, commit: str, kept: str, tmp_path: Path) -> None:
    """Have a process killed, alone, when it takes a tree and calls git with `words`; that git begins a second later."""
    deadly = tmp_path / "deadly" / "git"
    deadly.parent.mkdir()
    deadly.write_text(DEADLY_GIT.format(words=words, git=shlex.quote(str(shutil.which("git")))))
    deadly.chmod(0o755)
    victim = subprocess.run(
        [sys.executable, "-c", VICTIM, pool.git.repo, pool.directory, "v", kept, commit, commit],
        cwd=Path(__file__).parent.parent,
        env={**os.environ, "PATH": f"{deadly.parent}:{os.environ['PATH']}"},
        check=False,
    )
    assert victim.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("words", "is_warm"),
    [
        (" worktree", False),
        (" read-tree", False),
        ("/libs/sub worktree", False),
        ("/libs/sub/inner worktree", False),
        (" read-tree", True),
        (" update-ref", True),
    ],
)
def test_a_git_that_outlives_its_caller_is_waited_for(
    make_repo: Callable[..., Path], tmp_path: Path, words: str, is_warm: bool
) -> None:
    """It goes on writing, and must not do so in a tree that was handed on; nothing of it stays."""
    repo = nested(make_repo)
    second, first = git(repo, "rev-parse", "HEAD"), git(repo, "rev-parse", "HEAD~1")
    pool, kept = Pool(Git(str(repo)), str(tmp_path / "p")), str(tmp_path / "artifacts")
    if is_warm:
        pool.acquire(first, "before")
        assert pool.give_back("before", kept).reused
    die_in(words, pool, second, kept, tmp_path)
    pool.give_back("v-0", kept)
    mine = pool.acquire(first, "mine")
    time.sleep(1.5)  # whatever git is left would have written by now
    assert Path(mine.path, "train.py").read_text() == "1\n"
    assert Path(mine.path, "libs/sub/inner/deep.py").read_text() == "deep\n"
    pool.give_back("mine", kept)
    assert eviction.tidy(pool) == []
    assert treerecords.listing(pool.directory) == {mine.number: "free"}
    assert not Path(kept).exists()
    eviction.evict(pool)
    for folder in (repo, repo / "libs/sub", repo / "libs/sub/inner"):
        assert pool.directory not in git(folder, "worktree", "list")


def test_a_kill_between_the_two_records_of_a_tree(tmp_path: Path) -> None:
    """The owner's record counts, so the tree can be given back, and no stale record is ever followed."""
    pool = str(tmp_path)
    mine = treerecords.reserve(pool, "y", "run", 1.0)
    for state in ("free", "retired"):
        treerecords.write(pool, mine._replace(owner="", commit="old"), state)
        assert treerecords.listing(pool) == {1: "owner"}
        assert not treerecords.claim(pool, mine._replace(owner="z"))
    treerecords.change(pool, mine._replace(owner=""), "retired")
    assert sorted(path.name for path in tmp_path.glob("1.*")) == ["1.retired"]
    free = treerecords.reserve(pool, "", "", 1.0)
    treerecords.change(pool, free, "free")
    assert treerecords.claim(pool, free._replace(owner="z"))
    assert treerecords.listing(pool) == {1: "retired", 2: "owner"}
