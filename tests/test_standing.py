"""standing.py: the facts for the stop rules; what counts, what does not, and how long a run may take."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autoresearch import campaign, plan
from autoresearch.campaign import Campaign
from autoresearch.rules import standing, stop
from tests.campaigns import approved, row, state

NOW = 1_800_000_000.0
Make = Callable[..., Campaign]


@pytest.fixture
def make(make_repo: Callable[..., Path], hostile: Path) -> Make:
    """A factory of campaigns: `make(rules, **fields of the plan)`."""
    return lambda rules="", **fields: approved(make_repo(), hostile / "scratch", rules=rules, **fields)


def test_ideas_are_counted_and_nothing_else(make: Make) -> None:
    opened = make("4 experiments")
    rows = [row("baseline", 0.5), row("a", 0.6), row("a", 0.6, attempt=2), row("b", None)]
    known = standing.facts(opened, rows, [state("a", 3), state("s", smoke=True)], NOW)
    assert known.running == ["a"]
    assert standing.line(opened, rows, []).line == "stop condition not yet met: 3/4 attempted"
    more = standing.line(opened, [*rows, row("c", 0.1, "discard")], [])
    assert more.line == "stop condition met: 4/4 attempted"
    assert more.met


def test_an_attempt_with_its_row_written_is_not_counted_twice(make: Make) -> None:
    rows = [row("baseline", 0.5), row("a", 0.6)]
    assert standing.facts(make(), rows, [state("a", 1, phase="concluded")], NOW).running == []


def test_the_clock_starts_with_the_first_launch_and_survives_a_lost_file(make: Make) -> None:
    opened = make("10h total, 1h each")
    assert standing.facts(opened, [], [], NOW).first_launch is None
    opened.write_started(NOW - 3600)
    known = standing.facts(opened, [], [], NOW)
    assert (known.first_launch, known.deadline) == (NOW - 3600, NOW + 9 * 3600)
    Path(opened.where.started).unlink()
    from autoresearch import clock, ledger

    ledger.append(opened.ledger_path, row("baseline", 0.5, started_at=clock.stamp(NOW - 3600)))
    assert opened.started() == (NOW - 3600, NOW + 9 * 3600)


def test_a_crash_gives_no_value_to_the_rules(make: Make) -> None:
    known = standing.facts(make("target 0.1"), [row("baseline", None)], [], NOW)
    assert known.attempts[0].value is None
    assert known.attempts[0].status == "crash"


def test_gpu_hours_are_used_by_rows_and_by_what_runs(make: Make) -> None:
    opened = make("10 GPU-hours", gpus=4, nodes=2)
    running = state("b", started_at=NOW - 1800, phase="launched", cap_s=2700.0)
    known = standing.facts(opened, [row("baseline", 0.5, elapsed_min="30.00")], [running], NOW)
    assert known.gpu_hours_used == pytest.approx(8.0)
    assert known.gpu_hours_held == pytest.approx(2.0)
    assert known.gpus == 8


def test_a_run_may_take_what_the_tighter_limit_says(make: Make) -> None:
    opened = make("10h total, 1h each", recipe_timeout_s=1200.0)
    known = standing.facts(opened, [], [], NOW)
    assert standing.run_cap(opened, known) == 1800.0  # 20 minutes of its own, and room to save
    longer = opened.plan._replace(recipe_timeout_s=36_000.0)
    opened.plan = longer
    assert standing.run_cap(opened, known) == 3600.0
    opened.plan = longer._replace(rules={}, recipe_timeout_s=0.0)
    assert standing.run_cap(opened, known) is None
    assert standing.outer_limit(opened.plan) is None


def test_without_any_rule_three_ideas_then_a_question(make: Make) -> None:
    opened = make("")
    rows = [row("baseline", 0.5), row("a", 0.1, "discard"), row("b", 0.2, "discard")]
    assert not standing.line(opened, rows, []).met
    found = standing.line(opened, [*rows, row("c", 0.3, "discard")], [])
    assert found.met
    assert found.note


def test_the_deadline_follows_the_rule_that_was_approved_last(make: Make) -> None:
    opened = make("10h total, 1h each")
    opened.write_started(NOW - 3600)
    for rule, deadline in (("3h total", NOW + 2 * 3600), ("9 experiments", None), ("20h total", NOW + 19 * 3600)):
        made = opened.plan._replace(stop=rule, rules=stop.parse(rule, now=NOW).to_json())
        opened = campaign.approve(opened.where, made, plan.save(opened.where, made), "me")
        assert standing.facts(opened, [], [], NOW).deadline == deadline
        assert json.loads(Path(opened.where.started).read_text())["deadline"] == (deadline or 0.0)


@pytest.mark.parametrize(
    ("fields", "number"),
    [
        ({}, 0),
        ({"gpus": 4, "nodes": 2, "settings": {"GPUS": "0"}}, 8),
        ({"settings": {"GPUS": "0,1, 1"}}, 2),
        ({"settings": {"GPUS": "0,1"}, "launcher": "slurm"}, 0),
        ({"settings": {"RAY_GPUS": "0.5"}, "launcher": "ray"}, 0.5),
    ],
)
def test_the_gpus_of_a_run_are_what_the_plan_says(make: Make, fields: dict[str, Any], number: float) -> None:
    assert standing.gpus(make(**fields).plan) == number
