"""The benchmark's own tools: what they build is the same each time and right, what they report is what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autoresearch import ledger, metrics
from tests.bench import logs, measure, results, trackers, worlds
from tests.bench.measure import Cost, Costs
from tests.bench.results import Figure


def test_a_repository_is_the_same_for_the_same_seed(tmp_path: Path) -> None:
    env = worlds.environment(str(tmp_path / "home"))
    trees = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        worlds.generate(str(tmp_path / name), 20, env)
        trees.append(worlds.git(str(tmp_path / name), env, "rev-parse", "HEAD^{tree}"))
    assert trees[0] == trees[1]
    assert len(worlds.git(str(tmp_path / "one"), env, "ls-files").splitlines()) == 22


def test_sides_take_turns_and_the_first_turn_is_only_for_warmth() -> None:
    seen: list[str] = []

    def side(name: str) -> Cost:
        seen.append(name)
        return Cost(float(len(seen)), 0.0)

    costs = measure.turns({"a": lambda: side("a"), "b": lambda: side("b")}, 2)
    assert seen == ["a", "b"] * 3
    assert [cost.wall_s for cost in costs["a"].every] == [3.0, 5.0]


def test_a_command_that_fails_is_not_a_time() -> None:
    with pytest.raises(measure.Failed, match="ended with 3"):
        measure.command(["sh", "-c", "exit 3"], {"PATH": "/usr/bin:/bin"})
    assert measure.command(["sh", "-c", "exit 1"], {"PATH": "/usr/bin:/bin"}, codes=(1,)).wall_s > 0


def test_median_best_and_processor_time() -> None:
    costs = Costs([Cost(0.3, 0.03), Cost(0.1, 0.01), Cost(0.2, 0.02)])
    assert (round(costs.wall_ms), round(costs.best_ms), round(costs.cpu_ms)) == (200, 100, 20)


def test_the_table_says_what_was_missed(tmp_path: Path) -> None:
    figures = [
        Figure("kept", 5.0, theirs=10.0, limit=6.0, budget="6 ms"),
        Figure("not kept", 7.0, limit=6.0, budget="6 ms"),
        Figure("not measured", None, note="why"),
    ]
    lines = results.table(figures).splitlines()
    assert " ok" in lines[2]
    assert "0.50" in lines[2]
    assert "MISSED" in lines[3]
    assert "MISSED" not in lines[4]
    with open(results.write(str(tmp_path / "new"), figures, {"cores": 2}), encoding="utf-8") as file:
        found = json.load(file)
    assert [figure["met"] for figure in found["figures"]] == [True, False, None]


def test_recorded_ideas_look_like_those_that_ran(tmp_path: Path) -> None:
    world = worlds.campaign(str(tmp_path), 3)
    worlds.record(world, 5)
    book = ledger.read(world.ledger)
    assert [row.index for row in book.rows] == ["1", "2", "3", "4", "5", "6"]
    assert book.torn == []
    world.verb("status")
    world.verb("experiment", "NAME=next", "OVERRIDES=x")
    assert ledger.read(world.ledger).rows[-1].index == "7"
    notes = worlds.git(world.repository, world.env, "notes", "--ref=autoresearch", "list").splitlines()
    assert len(notes) == 7


def test_event_and_wandb_files_hold_what_they_should(tmp_path: Path) -> None:
    trackers.write_events(str(tmp_path / "events.out.tfevents.1.host"), 1000)
    trackers.write_wandb(str(tmp_path / "run-abcdefgh.wandb"), 2000)
    where = metrics.Where("", str(tmp_path), "", "", "")
    for metric, count, last in (
        ("tensorboard:validation/accuracy", 1000, trackers.value_of(999)),
        ("wandb:accuracy", 2000, 0.5 + 1999 / 1e6),
    ):
        points = metrics.series(metrics.Spec(metric, "max"), where)
        assert len(points) == count
        assert points[-1].value == pytest.approx(last)


def test_a_log_holds_its_metric_where_it_is_asked_to(tmp_path: Path) -> None:
    path = str(tmp_path / "run.log")
    logs.make(path, 3 << 20, first="first\n", last="last\n", each="each\n")
    text = Path(path).read_text()
    assert text.startswith("first\n")
    assert text.endswith("last\n")
    assert text.count("each\n") == 3 or text.count("each\n") == 2
    env = worlds.environment(str(tmp_path / "home"))
    logs.make(path, 1 << 20, last=logs.NEEDLE)
    cost = logs.reader("last", path, f"log:{logs.METRIC}", env, 0.7421)()
    assert 0 < cost.peak_mib < logs.MEMORY_MIB
    with pytest.raises(measure.Failed, match="instead of"):
        logs.reader("last", path, f"log:{logs.METRIC}", env, 0.5)()
