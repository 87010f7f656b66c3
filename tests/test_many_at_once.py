"""Many launches in one instant: each gets its own branch, tree, row and note; a stop rule lets no one too many by."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from autoresearch.git import treerecords
from tests.conftest import git
from tests.faults import Lab, ended, idea, train_repo

MANY = 8


@pytest.fixture
def lab_of(make_repo: Callable[..., Path], tmp_path: Path, hermetic: Path) -> Callable[[str], Lab]:
    """A factory: a campaign with a stop rule and its baseline."""

    def build(stop: str) -> Lab:
        lab = Lab(train_repo(make_repo), tmp_path / "s", hermetic, stop=stop, SLOTS=str(MANY))
        lab.ok("baseline")
        return lab

    return build


def at_once(lab: Lab, names: list[str], words: str = "sleep=0.5") -> list[int]:
    """Start an experiment of each name in the same instant; returns the exit codes."""
    calls = [lab.spawn("experiment", **idea(name, words)) for name in names]
    done = [ended(call) for call in calls]
    assert all(one.returncode in (0, 3) for one in done), done
    assert "Traceback" not in "".join(one.stderr for one in done)
    return [one.returncode for one in done]


def branches(lab: Lab) -> set[str]:
    return set(git(lab.repo, "for-each-ref", "--format=%(refname:lstrip=4)", "refs/heads/ar").split())


def test_eight_at_once(lab_of: Callable[[str], Lab]) -> None:
    lab = lab_of("20 experiments")
    names = [f"e{n}" for n in range(MANY)]
    assert at_once(lab, names) == [0] * MANY
    rows = lab.check()
    assert {row.experiment for row in rows} == {"baseline", *names}
    assert branches(lab) == {"baseline", *names}
    assert len({row.commit for row in rows}) == MANY + 1
    assert len(treerecords.listing(str(lab.root / ".trees"))) == MANY
    assert lab.status()["attempted"] == MANY + 1


def test_three_left(lab_of: Callable[[str], Lab]) -> None:
    lab = lab_of("4 experiments")
    codes = at_once(lab, [f"e{n}" for n in range(MANY)], "sleep=0.2")
    assert sorted(codes) == [0, 0, 0, *[3] * (MANY - 3)]
    assert len(lab.check()) == 4
    assert len(branches(lab)) == 4
    assert lab.status()["stop_condition_met"]


def test_one_name_twice_at_once(lab_of: Callable[[str], Lab]) -> None:
    lab = lab_of("20 experiments")
    assert sorted(at_once(lab, ["y"] * 4)) == [0, 3, 3, 3]
    assert len(lab.check()) == 2
