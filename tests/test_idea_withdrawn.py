"""An idea that was withdrawn before it ran, and is called again."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoresearch import experiment, idea
from autoresearch.errors import Refused
from autoresearch.git import hypothesis
from autoresearch.git.repository import BranchMoved
from autoresearch.parents import Parent
from autoresearch.verbs import experiment as verb
from tests.campaigns import approved, row
from tests.conftest import git


def test_an_idea_that_was_withdrawn_twice_keeps_its_parent(repo: Path, tmp_path: Path) -> None:
    opened = approved(repo, tmp_path / "scratch")
    base = tip = opened.plan.base
    for _ in range(2):
        message = f"area: change\n\nCampaign: c\nExperiment: y\nParent: {base}"
        tip = git(repo, "commit-tree", "-p", tip, "-m", message, f"{base}^{{tree}}")
    git(repo, "branch", "ar/c/y", tip)
    start = idea.adopted(opened, [row("baseline", 0.5, commit=base)], "y")
    assert (start.parent, start.tip) == (Parent(base, "baseline"), tip)


def test_a_fix_that_never_ran_is_no_repeat() -> None:
    """Its launch was cut off behind its branch, or it was looked at with SMOKE=1 alone."""
    ran = idea.Start("y", Parent("base", "baseline"), "tip", row("y", 0.5, commit="tip"), None, None)
    with pytest.raises(Refused, match="nothing changed since 'y' ran"):
        idea.run_the_tip(ran)
    idea.run_the_tip(ran._replace(tip="fix"))


def test_a_branch_that_start_left_is_gone_on_from(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tree was released unused, or never made: the idea starts there, and from nowhere else."""
    opened = approved(repo, tmp_path / "scratch")
    base = opened.plan.base
    other = git(repo, "commit-tree", "-p", base, "-m", "other", f"{base}^{{tree}}")
    rows = [row("baseline", 0.5, commit=base), row("x", 0.5, commit=other)]
    git(repo, "branch", "ar/c/y", base)
    start = idea.adopted(opened, rows, "y")
    assert (start.parent, start.tip, start.adopted) == (Parent(base, "baseline"), base, False)
    monkeypatch.setenv("AR_PARENT", "x")
    with pytest.raises(Refused, match="'y' started from baseline already"):
        idea.check_parent(opened, rows, start)
    git(repo, "branch", "ar/c/z", git(repo, "commit-tree", "-m", "theirs", f"{base}^{{tree}}"))
    with pytest.raises(Refused, match="not of this campaign"):
        idea.adopted(opened, rows, "z")


def test_a_branch_that_is_gone_is_named(repo: Path, tmp_path: Path) -> None:
    opened = approved(repo, tmp_path / "scratch")
    with pytest.raises(Refused, match=f"git branch ar/c/y {opened.plan.base}"):
        idea.find(opened, [row("y", 0.5, commit=opened.plan.base)], "y")


@pytest.mark.parametrize("ran", [False, True])
def test_a_commit_by_hand_changes_neither_the_words_nor_the_parent(repo: Path, tmp_path: Path, ran: bool) -> None:
    """Made in the tree of `start`: on top of the idea's own commit, or before it has one."""
    opened = approved(repo, tmp_path / "scratch")
    base, parent_words, words = opened.plan.base, ["lr=1"], ["lr=2"]
    tree = f"{base}^{{tree}}"

    def record(on: str, name: str, given: list[str]) -> str:
        trailers = experiment.trailers(opened, name, on, given)
        return git(repo, "commit-tree", "-p", on, "-m", hypothesis.message("area: x", trailers, "A <a@b>"), tree)

    x = record(base, "x", parent_words)
    at = record(x, "y", words) if ran else x
    rows = [row("baseline", 0.5, commit=base), row("x", 0.5, commit=x)]
    rows += [row("y", 0.5, commit=at, parent_commit=x)] if ran else []
    git(repo, "branch", "ar/c/y", at)
    opened.pool().open_for("y", at, "ar/c/y")
    git(repo, "update-ref", "refs/heads/ar/c/y", git(repo, "commit-tree", "-p", at, "-m", "by hand", tree))
    start = idea.find(opened, rows, "y")
    assert start.parent == Parent(x, "x")
    assert idea.chosen_overrides(opened, start) == (words if ran else parent_words)


def test_a_branch_that_a_killed_calls_git_has_moved_meanwhile_is_looked_at_again(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, seen = approved(repo, tmp_path / "scratch"), []

    def run_draft(_opened: object, draft: str, _publish: object) -> int:
        seen.append(draft)
        if len(seen) == 1:
            raise BranchMoved("branch", "ar/c/y is no longer at there")
        return 0

    monkeypatch.setattr(experiment, "open_for_launch", lambda: opened)
    monkeypatch.setattr(idea, "draft", lambda _opened: (f"draft {len(seen)}", experiment.nothing))
    monkeypatch.setattr(experiment, "run_draft", run_draft)
    assert verb.run() == 0
    assert seen == ["draft 0", "draft 1"]
