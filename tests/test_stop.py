"""Accounting of stop rules: exact lines, and random campaigns against a plain model of the rules."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoresearch.errors import Usage
from autoresearch.rules import explicit, stop
from autoresearch.rules.stop import Facts, Rules

START = 1_790_000_000.0


class Idea(NamedTuple):
    """A row of the ledger with what the rules ask of it."""

    experiment: str
    value: float | None
    status: str
    end_cause: str
    commit: str = ""
    reason: str = ""
    attempt: str = "1"

    @property
    def id(self) -> str:
        """As of a row."""
        return self.experiment if self.attempt == "1" else f"{self.experiment}.{self.attempt}"


def ideas(count: int, **more: Any) -> list[Idea]:
    return [Idea(f"idea{i}", 0.5, "discard", "ok")._replace(**more) for i in range(count)]


def line(rules: Rules, **facts: Any) -> str:
    return stop.standing(rules, Facts(**{"now": START, **facts})).line


def test_the_lines_of_the_manual() -> None:
    rules = Rules(experiments=24, total_s=36000)
    now = START + 36000 - 22345.6
    told = line(rules, now=now, first_launch=START, attempts=ideas(17))
    assert told == "stop condition not yet met: 17/24 attempted, 6h12m remaining"
    told = line(rules, now=now, first_launch=START, attempts=ideas(24))
    assert told == "stop condition met: 24/24 attempted"


@pytest.mark.parametrize(
    ("rules", "facts", "told"),
    [
        (Rules(experiments=24), {"attempts": ideas(3)}, "not yet met: 3/24 attempted"),
        (Rules(total_s=36000), {"first_launch": START}, "not yet met: 0 attempted, 10h remaining"),
        (Rules(total_s=36000), {"attempts": []}, "not yet met: 0 attempted, 10h remaining"),
        (Rules(total_s=60), {"first_launch": START - 60}, "met: deadline reached, 0 attempted"),
        (
            Rules(total_s=36000, each_s=3600),
            {"first_launch": START - 33600, "attempts": ideas(9)},
            "met: 40m remaining cannot hold one more run of 1h, 9 attempted",
        ),
        (
            Rules(total_s=36000, each_s=3600),
            {"first_launch": START - 32400, "attempts": ideas(9)},
            "not yet met: 9 attempted, 1h remaining",
        ),
        (
            Rules(target=("acc", ">=", 0.8)),
            {"attempts": ideas(1, value=0.8, status="keep")},
            "met: acc 0.8 reaches >= 0.8, 1 attempted",
        ),
        (
            Rules(experiments=9, plateau=8, crashes_in_a_row=5, gpu_hours=10),
            {"attempts": ideas(2, value=None, status="crash"), "gpu_hours_used": 2.5},
            "not yet met: 2/9 attempted, 2/8 ideas without a new best, 2/5 crashes in a row, 2.5/10 GPU-hours",
        ),
        (Rules(plateau=2), {"attempts": ideas(2)}, "met: 2/2 ideas without a new best, 2 attempted"),
        (Rules(gpu_hours=10), {"gpu_hours_used": 10.0}, "met: 10/10 GPU-hours, 0 attempted"),
        (
            Rules(gpu_hours=10, each_s=3600),
            {"gpu_hours_used": 4.0, "gpus": 8},
            "met: 4/10 GPU-hours cannot hold one more run of 1h on 8, 0 attempted",
        ),
        (Rules(), {"attempts": ideas(3)}, "not yet met: 3 attempted"),
    ],
)
def test_lines(rules: Rules, facts: dict[str, Any], told: str) -> None:
    assert line(rules, **facts) == f"stop condition {told}"


def test_the_default_rule_is_the_baseline_and_three_then_a_question() -> None:
    rules = stop.parse("", now=START)
    attempts = [Idea("baseline", 0.5, "keep", "ok"), *ideas(2)]
    assert stop.may_launch(rules, Facts(START, attempts=attempts), cap_s=None, is_new_idea=True).ok
    answer = stop.may_launch(rules, Facts(START, attempts=[*attempts, *ideas(3)]), cap_s=None, is_new_idea=True)
    assert not answer.ok
    assert answer.why == "stop condition met: 4/4 attempted"
    assert "ask" in answer.fix


def test_limit_5_run_3_kill_go_on_exactly_2_more() -> None:
    rules = stop.parse("5 experiments", now=START)
    rows = [Idea("baseline", 0.5, "keep", "ok"), Idea("a", 0.6, "keep", "ok"), Idea("b", None, "crash", "lost")]
    launched = []
    for name in ("c", "d", "e", "f"):
        if stop.may_launch(rules, Facts(START, attempts=rows), cap_s=None, is_new_idea=True).ok:
            launched.append(name)
            rows.append(Idea(name, 0.5, "discard", "ok"))
    assert launched == ["c", "d"]


def test_running_ones_count_so_that_eight_callers_do_not_overrun_three_places() -> None:
    rules, running = Rules(experiments=10), []
    for name in "abcdefgh":
        if stop.may_launch(rules, Facts(START, attempts=ideas(7), running=running), cap_s=None, is_new_idea=True).ok:
            running = [*running, name]
    assert running == ["a", "b", "c"]
    held = Facts(START, attempts=ideas(7), running=running)
    assert stop.may_launch(rules, held, cap_s=None, is_new_idea=False).ok  # the second check of one that holds a place


def test_a_rerun_is_free_of_the_count_and_of_nothing_else() -> None:
    done = Facts(START, first_launch=START - 50, attempts=ideas(5))
    assert stop.may_launch(Rules(experiments=5), done, cap_s=None, is_new_idea=False).ok
    for rules in (
        Rules(total_s=50),
        Rules(gpu_hours=0.0),
        Rules(plateau=5),
        Rules(experiments=5, total_s=100, each_s=60),
    ):
        assert not stop.may_launch(rules, done, cap_s=None, is_new_idea=False).ok
    broken = done._replace(attempts=ideas(5, value=None, status="crash"))
    assert not stop.may_launch(Rules(crashes_in_a_row=5), broken, cap_s=None, is_new_idea=False).ok


def test_a_run_must_fit() -> None:
    rules, facts = Rules(total_s=100.0), Facts(START, first_launch=START - 40)
    assert stop.may_launch(rules, facts, cap_s=60.0, is_new_idea=True).ok
    assert not stop.may_launch(rules, facts, cap_s=60.1, is_new_idea=True).ok
    assert stop.may_launch(rules, facts, cap_s=None, is_new_idea=True).ok  # it gets what is left


def test_runs_side_by_side_cannot_use_more_gpu_hours_than_there_are() -> None:
    rules = Rules(gpu_hours=10.0, each_s=3600)
    facts = Facts(START, gpus=4, gpu_hours_used=1.0, gpu_hours_held=4.0)
    assert stop.may_launch(rules, facts, cap_s=None, is_new_idea=True).ok
    held = stop.may_launch(rules, facts._replace(gpu_hours_held=8.0), cap_s=None, is_new_idea=True)
    assert (held.ok, held.standing.met) == (False, False)  # what runs may end early: the campaign is not over
    assert held.why.endswith("0 attempted, 1/10 GPU-hours; the runs under way may need the rest of the GPU-hours")
    assert stop.cap(Rules(gpu_hours=10.0), facts) == 4500
    assert not stop.may_launch(Rules(gpu_hours=10.0), facts._replace(gpu_hours_held=9.0), cap_s=0, is_new_idea=True).ok


def test_caps() -> None:
    facts = Facts(START, first_launch=START - 40)
    assert stop.cap(Rules(total_s=100.0), facts) == 60
    assert stop.cap(Rules(total_s=100.0, each_s=10), facts) == 10
    assert stop.cap(Rules(experiments=3), facts) is None
    assert stop.cap(Rules(gpu_hours=2.0), facts._replace(gpus=4, gpu_hours_used=1.0)) == 900
    assert stop.cap(Rules(gpu_hours=2.0), facts) is None


@pytest.mark.parametrize("direction", ["max", "min"])
@pytest.mark.parametrize("offset", [-5.0, 0.0, 5.0])
def test_a_crash_is_never_the_best_nor_the_target(direction: str, offset: float) -> None:
    sign = 1 if direction == "max" else -1
    rows = [
        Idea("baseline", offset, "keep", "ok"),
        Idea("crash", None, "crash", "exit 1"),
        Idea("better", offset + sign * 0.5, "keep", "ok"),
        Idea("lucky", offset + sign * 2.0, "discard", "ok"),
        Idea("crash2", None, "crash", "timeout"),
    ]
    facts = Facts(START, attempts=rows, direction=direction)
    assert stop.ideas_since_best(facts) == 2
    target = stop.standing(Rules(target=("", "", offset + sign * 1.0)), facts)
    assert not target.met
    assert stop.standing(Rules(target=("", "", offset + sign * 0.5)), facts).met


def test_target_and_plateau_follow_a_commit_s_newest_verdict_and_the_runs_that_count() -> None:
    rules = Rules(target=("m", ">=", 0.8), plateau=2)
    rows = [Idea("baseline", 0.5, "keep", "ok", "c0"), Idea("a", 0.9, "keep", "ok", "c1")]
    assert stop.standing(rules, Facts(START, attempts=rows)).met
    fresh = [Idea("a", v, "keep", "ok", "c1", "better; fresh run of a", n) for v, n in ((0.7, "2"), (0.72, "3"))]
    lucky = stop.standing(rules, Facts(START, attempts=[*rows, *fresh]))
    assert (lucky.met, lucky.triggers[0].detail) == (False, "m 0.71 of >= 0.8")
    marked = [*rows, Idea("a", 0.91, "discard", "ok", "c1", "it cheats", "2"), *ideas(1)]
    found = stop.standing(rules, Facts(START, attempts=marked))
    assert [(trigger.name, trigger.met) for trigger in found.triggers] == [("target_metric", False), ("plateau", True)]


def test_what_an_open_verdict_waits_for_is_not_ended_by_target_or_plateau() -> None:
    flat = Facts(START, START, START + 60, [Idea("baseline", 0.5, "keep", "ok"), *ideas(2)])
    for rules in (Rules(plateau=2), Rules(target=("m", ">=", 0.5))):
        assert not stop.may_launch(rules, flat, cap_s=None, is_new_idea=False).ok
        assert stop.may_launch(rules, flat, cap_s=None, is_new_idea=False, is_open=True).ok
    late = flat._replace(now=START + 61)
    assert not stop.may_launch(Rules(total_s=60), late, cap_s=None, is_new_idea=False, is_open=True).ok


def test_measuring_the_best_again_is_no_new_best() -> None:
    rows = [
        Idea("baseline", 0.5, "keep", "ok", "c0"),
        Idea("a", 0.9, "keep", "ok", "c1"),
        Idea("a", 0.7, "keep", "ok", "c1"),
        Idea("b", 0.6, "discard", "ok", "c2"),
        Idea("a", 1.1, "keep", "ok", "c1"),
        Idea("b", None, "crash", "exit 1", "c3"),
    ]
    assert stop.ideas_since_best(Facts(START, attempts=rows)) == 1
    rows.append(Idea("c", 0.91, "keep", "ok", "c4"))  # above the mean of a (0.9), below its luckiest run
    assert stop.ideas_since_best(Facts(START, attempts=rows)) == 0
    rows.append(Idea("d", 0.91, "keep", "ok", "c5"))  # as good, simpler: kept, and no new best
    assert stop.ideas_since_best(Facts(START, attempts=rows)) == 1


def test_crashes_in_a_row_are_ideas() -> None:
    crash = [Idea("a", None, "crash", "exit 1"), Idea("a", None, "crash", "exit 1"), Idea("b", None, "crash", "lost")]
    assert stop.crashes_in_a_row(Facts(START, attempts=crash)) == 2
    stopped = [*crash, Idea("c", None, "crash", "stopped")]
    assert stop.crashes_in_a_row(Facts(START, attempts=stopped)) == 2
    assert stop.crashes_in_a_row(Facts(START, attempts=[*crash, *ideas(1)])) == 0


def test_time_is_an_absolute_deadline() -> None:
    rules = Rules(total_s=3600.0)
    end = stop.deadline(rules, START)
    assert end == START + 3600
    facts = Facts(START + 3000, first_launch=START, deadline=end)
    assert stop.remaining(rules, facts) == 600  # paused time is not given back
    longer = Rules(total_s=7200.0)
    assert stop.remaining(longer, facts._replace(deadline=stop.deadline(longer, START))) == 4200
    assert stop.remaining(rules, facts._replace(now=START - 86400)) == 3600  # a clock set back gives no more
    assert stop.deadline(Rules(total_s=3600.0, until=START + 60), START) == START + 60


def test_plan_values() -> None:
    rules = stop.parse("50 experiments or 10h total, 1h each", now=START)
    assert explicit.describe(rules) == [
        ("target_experiment_count", "50"),
        ("campaign_deadline", "10h after the first launch"),
        ("per_experiment_timeout", "1h"),
    ]
    assert dict(explicit.describe(rules, deadline_at=START))["campaign_deadline"].startswith("2026-09-21T14:13:20Z")
    assert "time left" in dict(explicit.describe(Rules(total_s=60)))["per_experiment_timeout"]
    assert dict(explicit.describe(Rules(experiments=3)))["per_experiment_timeout"].startswith("none")
    assert "then ask" in dict(explicit.describe(stop.parse("", now=START)))["target_experiment_count"]


def test_targets_are_bound_to_the_campaigns_metric() -> None:
    bare = Rules(target=("", "", 0.8))
    assert explicit.resolve(bare, metric="acc", direction="max").target == ("acc", ">=", 0.8)
    assert explicit.resolve(bare, metric="loss", direction="min").target == ("loss", "<=", 0.8)
    named = Rules(target=("acc", ">", 0.8))
    assert explicit.resolve(named, metric="console:acc", direction="max").target == ("acc", ">", 0.8)
    with pytest.raises(Usage, match="not 'acc'"):
        explicit.resolve(named, metric="loss", direction="max")
    with pytest.raises(Usage, match="against the direction"):
        explicit.resolve(named, metric="acc", direction="min")


def test_json_of_another_version_is_refused() -> None:
    with pytest.raises(Usage, match="unknown field"):
        Rules.from_json({"moon": "full"})


def test_import_is_light() -> None:
    """A launch and `status` load the accounting without the language, dataclasses, pathlib or the like."""
    code = "import sys; from autoresearch.rules import guards, stop, verdict; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    bare = subprocess.run(
        [sys.executable, "-I", "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True
    )
    extra = loaded - set(bare.stdout.split())
    heavy = {
        "dataclasses",
        "pathlib",
        "argparse",
        "datetime",
        "inspect",
        "json",
        "autoresearch.rules.stop_language",
        "zoneinfo",
    }
    assert not extra & heavy


# A campaign drawn at random, and a plain model that keeps nothing but what the rules talk about.
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["new", "rerun", "repeat", "kill", "clock", "wait", "parallel"]),
        st.sampled_from(["keep", "discard", "crash", "stopped"]),
        st.floats(-2, 2, allow_nan=False),
        st.integers(1, 4000),
    ),
    max_size=40,
)
RULES = st.builds(
    Rules,
    experiments=st.none() | st.integers(1, 8),
    total_s=st.none() | st.floats(1000, 40000),
    each_s=st.none() | st.floats(100, 4000),
    plateau=st.none() | st.integers(1, 5),
    crashes_in_a_row=st.none() | st.integers(1, 4),
    until=st.none(),
    gpu_hours=st.none(),
    default=st.just(False),
    until_text=st.just(""),
    target=st.none() | st.tuples(st.just("m"), st.sampled_from([">=", ">"]), st.floats(-1, 2, allow_nan=False)),
)


class Model:
    """The rules in their plainest form: sets, lists and one loop a question."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.rows: list[tuple[str, float | None, str, str]] = []
        self.alive: list[str] = []
        self.end: float | None = None

    def met(self, now: float, *, new: bool) -> bool:
        rules, rows = self.rules, self.rows
        if new and rules.experiments is not None and len({r[0] for r in rows} | set(self.alive)) >= rules.experiments:
            return True
        if rules.total_s is not None:
            left = rules.total_s if self.end is None else min(self.end - now, rules.total_s)
            if left <= 0 or left < (rules.each_s or 0):
                return True
        kept = [r[1] for r in rows if r[2] == "keep" and r[1] is not None]
        if rules.target and any(
            v > rules.target[2] or (v == rules.target[2] and rules.target[1] == ">=") for v in kept
        ):
            return True
        healthy = [i for i, r in enumerate(rows) if r[2] != "crash"]
        tail = rows[healthy[-1] + 1 if healthy else 0 :]
        broken = {r[0] for r in tail if r[3] != "stopped"}
        if rules.crashes_in_a_row is not None and len(broken) >= rules.crashes_in_a_row:
            return True
        last = max((i for i, r in enumerate(rows) if self.sets_best(i)), default=-1)
        before = {r[0] for r in rows[: last + 1]}
        return rules.plateau is not None and len({r[0] for r in rows} - before) >= rules.plateau

    def sets_best(self, place: int) -> bool:
        _, value, status, _ = self.rows[place]
        kept = [r[1] for r in self.rows[:place] if r[2] == "keep" and r[1] is not None]
        return status == "keep" and value is not None and all(value > old for old in kept)


@settings(max_examples=400)
@given(RULES, EVENTS)
def test_never_earlier_never_later(rules: Rules, events: list[tuple[str, str, float, int]]) -> None:
    model, now, first, serial = Model(rules), START, None, 0
    for kind, status, value, seconds in events:
        if kind in ("clock", "wait"):
            now += -seconds if kind == "clock" else seconds
            continue
        again = kind in ("rerun", "repeat") and model.rows
        name = model.rows[-1][0] if again else f"x{serial}"
        serial += 1
        attempts = [Idea(*row) for row in model.rows]
        facts = Facts(now, first, model.end, attempts, model.alive)
        answer = stop.may_launch(rules, facts, cap_s=rules.each_s, is_new_idea=not again)
        assert answer.ok == (not model.met(now, new=not again))
        assert answer.standing.met == model.met(now, new=True)
        assert answer.standing.attempted == len({row[0] for row in model.rows} | set(model.alive))
        if not answer.ok:
            continue
        if first is None:
            first = now
            model.end = stop.deadline(rules, first)
        cap = stop.cap(rules, facts)
        if kind == "parallel":
            model.alive.append(name)
            continue
        now += min(seconds, cap) if cap is not None else seconds
        if kind == "kill":  # everything died; what ran is found again and written down as lost
            model.rows += [(lost, None, "crash", "lost") for lost in (*model.alive, name)]
            model.alive = []
        elif status == "stopped":
            model.rows.append((name, None, "crash", "stopped"))
        else:
            valid = None if status == "crash" else value
            model.rows.append((name, valid, status, "ok" if valid is not None else "exit 1"))
    if rules.experiments is not None:
        assert len({row[0] for row in model.rows} | set(model.alive)) <= rules.experiments
