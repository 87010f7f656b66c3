"""kill -9 of our process alone at each of its git calls, while that git goes on: the next call meets it at work."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import git
from tests.faults import Lab, train_repo

pytestmark = pytest.mark.slow

# Numbers the calls; the one whose number `at` holds loses its caller, and begins a moment later.
DEADLY_GIT = """#!/bin/sh
set -C
n=1
until {{ true > {where}/$n; }} 2>/dev/null; do n=$((n + 1)); done
read -r at < {where}/at
if [ "$n" = "$at" ]; then kill -9 $PPID; sleep 0.3; fi
exec {git} "$@"
"""
CMD = """python3 train.py log_dir={log_dir} "code=given['value'] = open('value').read().strip()" {overrides}"""


class Killed:
    """A campaign whose verbs are killed at one git call after the other."""

    def __init__(self, repo: Path, tmp_path: Path, home: Path) -> None:
        (repo / "value").write_text("0.5\n")
        git(repo, "add", "value")
        git(repo, "commit", "-qm", "value", "value")
        self.lab = Lab(repo, tmp_path / "s", home, stop="99 experiments", CMD=CMD)
        self.lab.ok("baseline")
        self.calls, tools = tmp_path / "calls", tmp_path / "tools"
        tools.mkdir()
        words = {"where": shlex.quote(str(self.calls)), "git": shlex.quote(str(shutil.which("git")))}
        (tools / "git").write_text(DEADLY_GIT.format(**words))
        (tools / "git").chmod(0o755)
        self.plain = self.lab.env
        self.deadly = {**self.plain, "PATH": f"{tools}:{self.plain['PATH']}"}

    def moments(self) -> Iterator[int]:
        """Yield the numbers of the git calls of what is called through `dies`, and one more."""
        for at in range(1, 60):
            yield at
            if not (self.calls / str(at)).exists():
                return
        raise AssertionError("it calls git without end")

    def dies(self, at: int, verb: str, **knobs: str) -> None:
        """Run a verb that is killed at git call `at`."""
        shutil.rmtree(self.calls, ignore_errors=True)
        self.calls.mkdir()
        (self.calls / "at").write_text(f"{at}\n")
        self.lab.env = self.deadly
        self.lab.call(verb, **knobs)
        self.lab.env = self.plain

    def goes_on(self, name: str, value: str, **knobs: str) -> None:
        """Give the call of an experiment once more: it goes on by itself, or has been recorded."""
        done = self.lab.call("experiment", NAME=name, **knobs)
        assert done.returncode == 0 or f"nothing changed since '{name}' ran" in done.stderr, done
        (row,) = [row for row in self.lab.rows() if row.experiment == name and row.metric_value == value]
        assert git(self.lab.repo, "show", f"{row.commit}:value") == value

    def ends(self, *, wiped: bool = False) -> None:
        """Assert all that must hold at the end, and that everything can be removed. `wiped`: it was before."""
        self.lab.check(wiped=wiped)
        repo = self.lab.repo
        git(repo, "fsck", "--strict", "--no-dangling")
        assert [path.name for path in (repo / ".git").rglob("*.lock")] == ["autoresearch.lock"]
        self.lab.ok("clean-campaign", YES="1")
        for folder in (repo, *repo.glob("libs/sub")):
            assert str(self.lab.root) not in git(folder, "worktree", "list")


@pytest.fixture
def killed(make_repo: Callable[..., Path], tmp_path: Path, hermetic: Path) -> Killed:
    return Killed(train_repo(make_repo), tmp_path, hermetic)


def test_fixes_in_a_tree_with_hooks(killed: Killed) -> None:
    """A commit that git itself makes, because of the hook, and its run."""
    hook = killed.lab.repo / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\nexit 0\n")
    hook.chmod(0o755)
    tree = Path(killed.lab.ok("start", NAME="y").strip())
    for at in killed.moments():
        (tree / "value").write_text(f"0.{at + 100}\n")
        killed.dies(at, "experiment", NAME="y")
        killed.goes_on("y", f"0.{at + 100}")
        assert (tree / "value").read_text() == f"0.{at + 100}\n"
        assert git(tree, "status", "--porcelain") == ""
    killed.lab.ok("release", NAME="y")
    killed.ends()


def test_a_patch_in_a_repository_with_a_submodule(
    make_repo: Callable[..., Path], tmp_path: Path, hermetic: Path
) -> None:
    repo, sub = train_repo(make_repo), make_repo(name="sub-origin")
    git(repo, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(sub), "libs/sub")
    git(repo, "commit", "-qm", "submodule", "libs/sub", ".gitmodules")
    killed = Killed(repo, tmp_path, hermetic)
    patch = tmp_path / "x.diff"
    for at in killed.moments():
        patch.write_text(f"--- a/value\n+++ b/value\n@@ -1 +1 @@\n-0.5\n+0.{at + 100}\n")
        knobs = {"PATCH": str(patch), "PARENT": "baseline"}
        killed.dies(at, "experiment", NAME=f"e{at}", **knobs)
        killed.goes_on(f"e{at}", f"0.{at + 100}", **knobs)
    killed.ends()


def test_start_and_release(killed: Killed) -> None:
    for at in killed.moments():
        killed.dies(at, "start", NAME=f"e{at}")
        tree = Path(killed.lab.ok("start", NAME=f"e{at}").strip())
        assert git(tree, "status", "--porcelain") == ""
        (tree / "value").write_text(f"0.{at + 100}\n")
        killed.goes_on(f"e{at}", f"0.{at + 100}")
        killed.lab.ok("release", NAME=f"e{at}")
    for at in killed.moments():
        tree = Path(killed.lab.ok("start", NAME="e1").strip())
        (tree / "left.ignored").write_text(f"{at}\n")
        killed.dies(at, "release", NAME="e1")
        done = killed.lab.call("release", NAME="e1")
        assert done.returncode == 0 or "has no tree" in done.stderr, done
    kept = [path.read_text() for path in killed.lab.root.glob("e1/artifacts/*/left.ignored")]
    assert sorted(map(int, kept)) == list(range(1, at + 1))
    killed.ends()


def test_what_rewrites_the_record(killed: Killed) -> None:
    lab, book = killed.lab, killed.lab.records / "results.tsv"
    killed.goes_on("y", "0.5", OVERRIDES="a=1")
    for at in killed.moments():
        knobs = {"NAME": "y", "STATUS": "keep" if at % 2 else "discard", "REASON": f"for {at}"}
        killed.dies(at, "mark", **knobs)
        lab.settled()
        lab.ok("ledger", YES="1")
        assert (lab.row("y").status, lab.row("y").verdict_by) == (knobs["STATUS"], "ubuntu")
    for at in killed.moments():
        written = book.read_bytes()
        book.write_bytes(b"".join(written.splitlines(keepends=True)[:2]))
        killed.dies(at, "ledger", YES="1")
        lab.ok("ledger", YES="1")
        assert book.read_bytes() == written
    killed.ends()


def test_start_before_clean_campaign(killed: Killed) -> None:
    for at in killed.moments():
        killed.dies(at, "start", NAME=f"e{at}")
        killed.lab.ok("clean-campaign", YES="1")
        killed.goes_on(f"e{at}", "0.5", OVERRIDES=f"a={at}")
    killed.ends(wiped=True)


def test_clean_campaign(killed: Killed) -> None:
    for at in killed.moments():
        killed.lab.ok("start", NAME=f"s{at}")
        killed.goes_on(f"e{at}", "0.5", OVERRIDES=f"a={at}")
        killed.dies(at, "clean-campaign", YES="1")
        killed.lab.ok("clean-campaign", YES="1")
        assert str(killed.lab.root) not in git(killed.lab.repo, "worktree", "list")
    assert not os.path.exists(killed.lab.root / ".trees")
