"""reservation.py: a place for one launch is given in one transaction, or nothing is changed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from autoresearch import attempts, ledger, reservation
from autoresearch.campaign import Campaign
from autoresearch.errors import Refused
from autoresearch.reservation import Draft
from tests.campaigns import approved, row, state, under_way

Make = Callable[..., Campaign]


@pytest.fixture
def make(make_repo: Callable[..., Path], hostile: Path) -> Make:
    """A factory of campaigns: `make(rules, **fields of the plan)`."""
    return lambda rules="", **fields: approved(make_repo(), hostile / "scratch", rules=rules, **fields)


def draft(experiment: str = "y", **more: object) -> Draft:
    """Return what is to be run."""
    fields = {"commit": "c" * 40, "parent_commit": "p" * 40, "parent": "baseline", "description": "a: b"}
    return Draft(experiment=experiment, overrides=["lr={seed}"], **{**fields, **more})  # type: ignore[arg-type]


def nothing() -> None:
    """Publish nothing."""


def test_a_place_is_a_state_with_the_command(make: Make) -> None:
    opened = make(command="python3 train.py --out {log_dir} {overrides}")
    made = reservation.reserve(opened, draft(), nothing)
    assert attempts.every(opened.where) == [made]
    log_dir = opened.where.attempt("y", 1).logs
    assert made.argv == ["python3", "train.py", "--out", log_dir, "lr=1"]
    assert (made.phase, made.attempt, made.branch, made.id) == ("reserved", 1, "ar/c/y", "y")


def test_a_stop_rule_that_is_met_changes_nothing(make: Make) -> None:
    opened = make("2 experiments")
    for one in (row("baseline", 0.5), row("a", 0.6)):
        ledger.append(opened.ledger_path, one)
    published: list[int] = []
    with pytest.raises(Refused, match="2/2"):
        reservation.reserve(opened, draft("b"), lambda: published.append(1))
    assert published == []
    assert attempts.every(opened.where) == []
    reservation.reserve(opened, draft("a"), nothing)  # a rerun is no new idea
    reservation.reserve(opened, draft("b", smoke=True), nothing)  # plumbing counts for nothing


def test_what_is_under_way_counts(make: Make) -> None:
    opened = make("2 experiments")
    ledger.append(opened.ledger_path, row("baseline", 0.5))
    under_way(opened, state("a"))
    with pytest.raises(Refused):
        reservation.reserve(opened, draft("b"), nothing)


def test_a_branch_that_cannot_be_made_leaves_no_place(make: Make) -> None:
    opened = make()

    def refuse() -> None:
        raise Refused("branch", "it exists", "")

    with pytest.raises(Refused):
        reservation.reserve(opened, draft(), refuse)
    assert attempts.every(opened.where) == []


def test_one_experiment_runs_once_at_a_time(make: Make) -> None:
    opened = make()
    made = reservation.reserve(opened, draft(), nothing)
    with pytest.raises(Refused, match="under way"):
        reservation.reserve(opened, draft(), nothing)
    chained = reservation.reserve(opened, draft(lock=made.lock), nothing)
    assert (chained.id, chained.lock) == ("y.2", made.lock)


def test_numbers_follow_rows_states_and_directories(make: Make) -> None:
    opened = make()
    ledger.append(opened.ledger_path, row("y", 0.5))
    assert reservation.reserve(opened, draft(smoke=True), nothing).id == "y.smoke-1"
    attempts.remove(opened.where, state("y", 1, smoke=True))
    second = reservation.reserve(opened, draft(), nothing)
    assert second.attempt == 2
    attempts.remove(opened.where, second)
    used = Path(opened.where.attempt("y", 2).log)
    used.parent.mkdir(parents=True)
    used.write_text("")
    assert reservation.reserve(opened, draft(), nothing).attempt == 3


RESERVE = """
import sys
from pathlib import Path
from autoresearch import campaign, paths, plan, reservation
from autoresearch.errors import Refused
from tests.test_reservation import draft, nothing
where = paths.Campaign(sys.argv[1], sys.argv[2], "c")
opened = campaign.Campaign(where, plan.approved(where))
try:
    print(reservation.reserve(opened, draft(sys.argv[3]), nothing).id)
except Refused as error:
    print("refused", error.what)
"""


def test_of_many_at_once_as_many_as_the_rule_allows_get_a_place(make: Make) -> None:
    opened = make("5 experiments")
    ledger.append(opened.ledger_path, row("baseline", 0.5))
    root = Path(__file__).parent.parent
    words = [sys.executable, "-c", RESERVE, opened.where.repository, opened.where.scratch]
    callers = [
        subprocess.Popen([*words, name], cwd=root, stdout=subprocess.PIPE, text=True)
        for name in ("a", "b", "c", "d", "e", "f", "a", "b")
    ]
    said = [caller.communicate(timeout=60)[0].strip() for caller in callers]
    given = [text for text in said if not text.startswith("refused")]
    assert len(given) == len(set(given)) == 4
    assert sorted(one.id for one in attempts.every(opened.where)) == sorted(given)
