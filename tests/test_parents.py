"""parents.py: which commit an idea starts from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from autoresearch import parents
from autoresearch.campaign import Campaign
from autoresearch.errors import AutoresearchError, Refused
from autoresearch.parents import Parent
from tests.campaigns import approved, row
from tests.conftest import git

BASE = row("baseline", 0.5)


@pytest.fixture
def opened(make_repo: Callable[..., Path], hostile: Path) -> Campaign:
    """A campaign where a higher metric is better."""
    return approved(make_repo(), hostile / "scratch")


def test_the_best_kept_result_is_the_parent(opened: Campaign) -> None:
    rows = [BASE, row("a", 0.7), row("b", 0.9, "discard"), row("c", 0.8), row("d", None)]
    for wanted in ("", "best"):
        assert parents.choose(opened, rows, wanted).experiment == "c"
    assert parents.choose(opened, rows, "baseline").experiment == "baseline"
    assert parents.choose(opened, rows, "d").experiment == "d"


def test_lower_can_be_better() -> None:
    rows = [row("baseline", 0.5), row("a", 0.3), row("b", 0.4)]
    assert parents.best_kept(rows, "min") == rows[1]
    assert parents.best_kept(rows, "max") == rows[0]


def test_a_crash_is_never_the_best_although_zero_is_low() -> None:
    rows = [row("baseline", 0.5), row("a", None), row("b", 0.1, "crash")]
    assert parents.best_kept(rows, "min") == rows[0]


def test_repeats_of_a_commit_count_by_their_mean_and_its_newest_verdict() -> None:
    lucky = [row("a", 0.9), row("a", 0.5, attempt=2), row("b", 0.8)]
    assert parents.best_kept(lucky, "max") == lucky[2]
    demoted = [BASE, row("a", 0.9), row("a", 0.9, "discard", attempt=2)]
    assert parents.best_kept(demoted, "max") == demoted[0]
    crashed_later = [BASE, row("a", 0.9), row("a", None, attempt=2)]
    assert parents.best_kept(crashed_later, "max") == crashed_later[1]


def test_without_a_kept_result_the_baseline_is_meant_but_best_is_not(opened: Campaign) -> None:
    rows = [row("baseline", None)]
    assert parents.choose(opened, rows, "").experiment == "baseline"
    with pytest.raises(Refused):
        parents.choose(opened, rows, "best")
    with pytest.raises(Refused, match="make baseline"):
        parents.choose(opened, [], "")
    with pytest.raises(Refused):
        parents.require_baseline(opened, [])
    assert parents.require_baseline(opened, rows) == rows[0]


def test_a_commit_is_a_parent_and_belongs_to_whom_it_belongs(opened: Campaign) -> None:
    repo = Path(opened.where.repository)
    head = git(repo, "rev-parse", "HEAD")
    for name in ("HEAD", head, head[:10], "main"):
        assert parents.choose(opened, [BASE], name) == Parent(head, "")
    assert parents.choose(opened, [BASE, row("a", 0.1, commit=head)], head) == Parent(head, "a")


@pytest.mark.parametrize("name", ["nothing", "-x", "--output=pwned", "--all", "..", "HEAD~9", "", "a b", ":/", "$(id)"])
def test_what_is_no_commit_is_refused(
    opened: Campaign, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.rglob("*"))
    with pytest.raises(AutoresearchError):
        parents.choose(opened, [] if name == "" else [BASE], name)
    assert {path for path in tmp_path.rglob("*") if ".git" not in path.parts} == {
        path for path in before if ".git" not in path.parts
    }


def test_override_words_come_back_from_the_commit(opened: Campaign) -> None:
    import json

    from autoresearch.git.hypothesis import build

    words = ["a=it's", 'b="x y"', "c=\\n", "d=$(id)", "é=1"]
    base = opened.plan.base
    made = build(
        opened.git,
        parent=base,
        base=base,
        subject="area: x",
        trailers=[("Campaign", "c"), ("Overrides", json.dumps(words))],
        allow_empty=True,
    )
    assert parents.recorded_overrides(opened, made.commit) == words
    assert parents.overrides_of(opened, Parent(made.commit, "a")) == words
    assert parents.overrides_of(opened, Parent(made.commit, "baseline")) == []
    assert parents.overrides_of(opened, Parent(made.commit, "")) == []
    assert parents.recorded_overrides(opened, base) == []
