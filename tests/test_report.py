"""report.py: the summary in figures, for a terminal, a file and a program."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from autoresearch import report
from autoresearch.campaign import Campaign
from tests.campaigns import approved, row

ROWS = [
    row("baseline", 0.5, index="1"),
    row("up", 0.75, index="2", parent_metric="0.5", command="python3 train.py 'a b'"),
    row("down", 0.25, "discard", index="3", parent_metric="0.75", reason="worse | than <b>up</b>"),
    row("boom", None, index="4", parent_metric="0.75", description="area: a\tb\x1b[31m"),
]


@pytest.fixture
def opened(make_repo: Callable[..., Path], hostile: Path) -> Campaign:
    """A campaign with an objective."""
    return approved(make_repo(), hostile / "scratch", rules="24 experiments", objective="more | accuracy")


def test_the_figures(opened: Campaign) -> None:
    facts = report.data(opened, ROWS, [])
    assert facts["verdicts"] == {"keep": 2, "discard": 1, "crash": 1}
    assert (facts["baseline"], facts["best"], facts["gain"]) == (0.5, 0.75, 0.25)
    assert (facts["best_experiment"], facts["best_branch"], facts["minutes"]) == ("up", "ar/c/up", 6.0)
    assert (facts["rows"], facts["attempted"]) == (4, 4)
    assert facts["line"] == "stop condition not yet met: 4/24 attempted"
    json.dumps(facts, allow_nan=False)


def test_lower_can_be_the_best(opened: Campaign) -> None:
    opened.plan = opened.plan._replace(direction="min")
    facts = report.data(opened, [*ROWS, row("low", 0.1)], [])
    assert (facts["best"], facts["gain"]) == (0.1, pytest.approx(-0.4))


def test_nothing_measured_is_nothing_and_not_zero(opened: Campaign) -> None:
    for rows in ([], [row("baseline", None)]):
        facts = report.data(opened, rows, [])
        assert facts["best"] is None
        assert facts["baseline"] is None
        assert facts["gain"] is None
        text = report.markdown(opened, rows, facts)
        assert "0.000000" not in text
        assert report.lines(facts)


def test_a_table_s_cells_are_as_they_are_written() -> None:
    assert report.cells(ROWS[1])[:7] == ["2", "up", "0.75", "+0.25", "1.5", "1.50", "keep"]
    assert report.cells(ROWS[3])[2:8] == ["-", "", "", "1.50", "crash", "exit 1"]
    assert "\x1b" not in report.cells(ROWS[3])[8]


def test_the_summary_is_enough_to_reproduce(opened: Campaign) -> None:
    text = report.markdown(opened, ROWS, report.data(opened, ROWS, []))
    for wanted in (opened.where.repository, opened.plan.base, "ar/c/", opened.ledger_path, "24 experiments"):
        assert wanted in text
    assert "python3 train.py 'a b'" in text
    assert ROWS[1].commit in text
    table = [line for line in text.splitlines() if line.startswith("| ") and "down" in line]
    assert len(table) == 1
    assert table[0].replace("\\|", "").count("|") == 12
    assert "<b>" not in text


def test_a_directory_s_size(hostile: Path) -> None:
    (hostile / "a").mkdir()
    (hostile / "a" / "f").write_bytes(b"x" * 100_000)
    os.link(hostile / "a" / "f", hostile / "a" / "g")
    (hostile / "a" / "up").symlink_to("/")
    (hostile / "sparse").touch()
    os.truncate(hostile / "sparse", 1 << 40)
    assert 100_000 <= report.directory_size(str(hostile)) < 200_000
    assert report.directory_size(str(hostile / "none")) == 0


def test_what_is_held_on_disk_is_by_experiment(opened: Campaign) -> None:
    Path(opened.where.experiment("up")).mkdir()
    (Path(opened.where.experiment("up")) / "f").write_bytes(b"x" * 5000)
    held = report.held_on_disk(opened, ROWS, within_s=60)
    assert [name for name, _ in held.sizes] == ["up"]
    assert held.looked == held.of == len({row.experiment for row in ROWS})


def test_the_look_at_the_disk_ends_in_time(opened: Campaign) -> None:
    held = report.held_on_disk(opened, ROWS, within_s=0)
    assert (held.sizes, held.looked) == ([], 0)
