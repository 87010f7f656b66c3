"""Verdicts: the rules one by one, then whole campaigns of useless ideas on a noisy baseline."""

from __future__ import annotations

import random
import statistics
from math import inf, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.rules import noise, verdict
from autoresearch.rules.noise import UNKNOWN, Noise
from autoresearch.rules.verdict import Confirmation, Measurement, Verdict, conclude, judge

KNOWN = Noise(0.01, 4, "measured")  # margin of one run a side: 2.132 * 0.01 * sqrt(2) = 0.0301
BASE = Measurement((0.5,), "ok", "baseline")


def run(value: float, end_cause: str = "ok") -> Measurement:
    return Measurement((value,), end_cause, "idea")


@pytest.mark.parametrize(
    ("value", "known", "lines", "status", "reason"),
    [
        (0.54, KNOWN, 0, "keep", "better than baseline by 0.04, noise 0.03015"),
        (0.52, KNOWN, 0, "discard", "within noise: better than baseline by 0.02, noise 0.03015"),
        (0.5, KNOWN, 0, "discard", "no better than baseline: equal"),
        (0.49, KNOWN, 0, "discard", "worse than baseline by 0.01, noise 0.03015"),
        (0.4, KNOWN, -9, "discard", "worse than baseline by 0.1, noise 0.03015"),
        (0.52, KNOWN, -9, "keep", "simpler: 9 fewer lines, +0.02 against baseline, noise 0.03015"),
        (0.49, KNOWN, -9, "keep", "simpler: 9 fewer lines, -0.01 against baseline, noise 0.03015"),
        (0.54, KNOWN, -9, "keep", "better than baseline by 0.04, noise 0.03015"),
        (0.51, UNKNOWN, 0, "keep", "unverified: better than baseline by 0.01, noise unknown"),
        (0.5, UNKNOWN, 0, "discard", "no better than baseline: equal"),
        (0.5, UNKNOWN, -1, "keep", "simpler: 1 fewer lines, equal against baseline"),
        (0.49, UNKNOWN, -9, "discard", "worse than baseline by 0.01"),
        (0.5001, Noise(0.0, inf, "declared"), 0, "keep", "better than baseline by 0.0001, noise 0"),
    ],
)
def test_one_run_a_side(value: float, known: Noise, lines: int, status: str, reason: str) -> None:
    found = judge(run(value), BASE, known, "max", lines_delta=lines)
    assert (found.status, found.reason, found.confirm) == (status, reason, False)
    flipped = judge(run(-value), BASE._replace(values=(-0.5,)), known, "min", lines_delta=lines)
    assert flipped == found


@pytest.mark.parametrize(
    "cause", ["exit 1", "signal 9", "timeout", "disk", "stopped", "stalled", "lost", "oom", "launcher"]
)
def test_a_run_that_did_not_end_well_is_a_crash_whatever_it_printed(cause: str) -> None:
    assert judge(run(99.0, cause), BASE, KNOWN, "max") == Verdict("crash", cause)


def test_a_recipe_that_stopped_itself_in_time_has_a_result() -> None:
    assert judge(run(0.54, "recipe-timeout"), BASE, KNOWN, "max").status == "keep"


@pytest.mark.parametrize("values", [(), (float("nan"),), (float("inf"),), (0.9, float("nan"))])
def test_no_valid_number_is_a_crash(values: tuple[float, ...]) -> None:
    gone = Measurement(values, "ok", "idea", "diverged: nan at step 12")
    assert judge(gone, BASE, KNOWN, "max") == Verdict("crash", "diverged: nan at step 12")
    assert judge(gone._replace(reason=""), BASE, KNOWN, "max").reason == "no valid value of the metric"


def test_baseline() -> None:
    assert verdict.judge_baseline(BASE) == Verdict("keep", "baseline")
    assert verdict.judge_baseline(Measurement((), "exit 1", reason="no module named x")).status == "crash"


def test_a_crashed_parent_is_replaced_by_the_baseline() -> None:
    """A minimised metric would lose to the 0.000000 of a crash's row, a maximised negative one too."""
    crashed = Measurement((), "exit 1", "parent")
    for direction, value in (("min", 0.4), ("max", 0.6)):
        parent = verdict.comparison_parent(crashed, BASE)
        assert parent == BASE
        assert judge(run(value), parent, KNOWN, direction).status == "keep"
    assert verdict.comparison_parent(None, BASE) == BASE
    assert verdict.comparison_parent(run(0.6), BASE) == run(0.6)


def test_with_nothing_to_compare_the_first_number_is_an_unverified_keep() -> None:
    found = judge(run(0.1), Measurement((), "exit 1"), KNOWN, "max")
    assert found.status == "keep"
    assert found.reason.startswith("unverified")


def test_repeats_on_both_sides_narrow_the_margin() -> None:
    three = Measurement((0.52, 0.53, 0.525), "ok", "idea")
    five = Measurement((0.5, 0.51, 0.49, 0.505, 0.495), "ok", "baseline")
    assert judge(three, five, KNOWN, "max").reason.endswith(f"noise {2.131847 * 0.01 * sqrt(1 / 3 + 1 / 5):.4g}")
    assert judge(three, five, KNOWN, "max").status == "keep"
    assert judge(three, five, UNKNOWN, "max").reason.startswith("better than")  # the repeats show the noise


def test_guards_must_hold_for_a_keep_and_only_for_a_keep() -> None:
    broken = ("memory_gb 73.2, not <= 70",)
    found = judge(run(0.54), BASE, KNOWN, "max", guards=broken)
    assert found.status == "discard"
    assert found.reason.startswith("guard: memory_gb 73.2")
    assert judge(run(0.4), BASE, KNOWN, "max", guards=broken).reason.startswith("worse")
    assert judge(run(0.5), BASE, KNOWN, "max", guards=broken, lines_delta=-3).status == "discard"


def test_what_cannot_be_compared_is_not_kept() -> None:
    found = judge(run(0.9), BASE, KNOWN, "max", comparable="slurm against the parent's local")
    assert found.status == "discard"
    assert found.reason.startswith("not comparable: slurm against")


def test_confirm_asks_for_every_apparent_gain_and_for_nothing_else() -> None:
    assert judge(run(0.54), BASE, KNOWN, "max", confirm=True).confirm
    assert judge(run(0.52), BASE, KNOWN, "max", confirm=True).confirm
    assert judge(run(0.51), BASE, UNKNOWN, "max", confirm=True).confirm
    assert not judge(run(0.5), BASE, KNOWN, "max", confirm=True).confirm
    assert not judge(run(0.49), BASE, KNOWN, "max", confirm=True).confirm
    assert not judge(run(0.52), BASE, KNOWN, "max", confirm=True, lines_delta=-1).confirm
    assert not judge(run(0.54), BASE, KNOWN, "max", confirm=True, guards=("x",)).confirm
    assert not judge(run(0.54), BASE, KNOWN, "max", confirm=True, comparable="x").confirm
    assert not judge(run(0.54, "timeout"), BASE, KNOWN, "max", confirm=True).confirm
    waiting = judge(run(0.54), BASE, KNOWN, "max", confirm=True)
    assert (waiting.status, waiting.reason[:24]) == ("discard", "unconfirmed: better than")


def play(confirmation: Confirmation, values: dict[str, list[float | None]]) -> Confirmation:
    while need := confirmation.needed():
        confirmation = confirmation._replace(runs=(*confirmation.runs, (need[0], values[need[0]].pop(0))))
    return confirmation


def test_pairs_alternate_and_survive_a_kill() -> None:
    asked = Confirmation(3)
    assert asked.needed() == ["parent", "candidate", "candidate", "parent", "parent", "candidate"]
    half = asked._replace(runs=(("parent", 0.5), ("candidate", 0.6)))
    assert half.needed() == ["candidate", "parent", "parent", "candidate"]
    assert Confirmation(3, (*half.runs, ("candidate", None))).needed()[0] == "candidate"  # one failure is repeated
    done = play(half, {"parent": [0.5, 0.5], "candidate": [0.6, 0.6]})
    assert (done.needed(), len(done.runs)) == ([], 6)


FIRST = judge(run(0.54), BASE, KNOWN, "max", confirm=True)
UNSURE = judge(run(0.52), BASE, KNOWN, "max", confirm=True)


@pytest.mark.parametrize(
    ("candidate", "first", "status", "start"),
    [
        ([0.54, 0.55, 0.53], FIRST, "keep", "confirmed: better than baseline by 0.04 in 3 fresh pairs"),
        ([0.52, 0.52, 0.52], FIRST, "keep", "confirmed"),
        ([0.52, 0.52, 0.52], UNSURE, "discard", "within noise: +0.02"),
        ([0.51, 0.49, 0.51], FIRST, "discard", "within noise"),
        ([0.48, 0.49, 0.47], FIRST, "discard", "worse: -0.02"),
        ([0.54, None, 0.54, 0.54], FIRST, "keep", "confirmed"),
        ([0.54, None, None], FIRST, "discard", "unconfirmed: the candidate's"),
    ],
)
def test_only_the_fresh_pairs_decide(candidate: list[float | None], first: Verdict, status: str, start: str) -> None:
    done = play(Confirmation(3), {"parent": [0.5, 0.5, 0.5], "candidate": list(candidate)})
    found = conclude(done, KNOWN, "max", first=first, name="baseline")
    assert found.status == status
    assert found.reason.startswith(start)
    turned = Confirmation(3, tuple((side, None if value is None else -value) for side, value in done.runs))
    assert conclude(turned, KNOWN, "min", first=first, name="baseline") == found


def test_a_confirmation_cut_short_keeps_nothing() -> None:
    half = Confirmation(3, (("parent", 0.5), ("candidate", 0.9)))
    assert conclude(half, KNOWN, "max", first=FIRST) == Verdict(
        "discard", "unconfirmed: 2 of 6 confirming runs were made"
    )


def test_confirmed_results_still_need_their_guards_and_may_be_simpler() -> None:
    done = play(Confirmation(3), {"parent": [0.5] * 3, "candidate": [0.6] * 3})
    assert conclude(done, KNOWN, "max", first=FIRST, guards=("memory_gb 80, not <= 70",)).reason.startswith("guard")
    flat = play(Confirmation(3), {"parent": [0.5] * 3, "candidate": [0.499] * 3})
    assert conclude(flat, KNOWN, "max", first=FIRST, lines_delta=-4).reason.startswith("simpler")
    one = Confirmation(1, (("parent", 0.5), ("candidate", 0.6)))
    assert conclude(one, UNKNOWN, "max", first=FIRST).reason.startswith("unverified")


VALUES = st.floats(-1e6, 1e6)


@given(VALUES, VALUES, st.floats(0, 1e3), st.integers(1, 40), st.integers(-5, 5), st.booleans())
def test_the_rule_in_one_line_a_case(a: float, b: float, spread: float, dof: int, lines: int, confirm: bool) -> None:
    known = Noise(spread, dof, "measured")
    found = judge(run(a), Measurement((b,), "ok", "p"), known, "max", lines_delta=lines, confirm=confirm)
    g, margin = a - b, known.margin(1, 1)
    plain = "keep" if g > margin or (abs(g) <= margin and lines < 0) else "discard"
    assert found.status == ("discard" if found.confirm else plain)
    assert found.confirm == (confirm and g > 0 and not (g <= margin and lines < 0))
    assert judge(run(-a), Measurement((-b,), "ok", "p"), known, "min", lines_delta=lines, confirm=confirm) == found


def test_a_keep_is_measured_again_when_repeats_are_on() -> None:
    kept = judge(run(0.54), BASE, KNOWN, "max")
    assert verdict.remeasurements(kept, 5) == 5
    assert verdict.remeasurements(kept, 1) == 0
    assert verdict.remeasurements(judge(run(0.4), BASE, KNOWN, "max"), 5) == 0
    assert verdict.remeasurements(Verdict("keep", "confirmed: better"), 5) == 0


def no_ops(rng: random.Random, repeats: int, pairs: int, direction: str, again: int = 1) -> tuple[int, float]:
    """Run one campaign of fifty useless ideas on a metric that is normal about 0 with deviation 1.

    As in `parents.counted`, a run that was picked for being high counts for nothing once there are fresh ones.
    Returns how many were kept, and by how much the best that is reported at the end is too good.
    """
    groups = [[rng.gauss(0, 1) for _ in range(repeats)]]
    values = {"baseline": tuple(groups[0])}  # of each kept idea, what counts for it
    group_of, parent = {"baseline": groups[0]}, "baseline"
    for number in range(50):
        name, first, fresh = f"idea{number}", rng.gauss(0, 1), []
        against = Measurement(values[parent], "ok", parent)
        found = judge(run(first), against, noise.pooled(groups), direction, confirm=pairs > 0)
        groups.append([first])
        if found.confirm:
            groups[-1].clear()
            asked = Confirmation(pairs)
            while need := asked.needed():
                value = rng.gauss(0, 1)
                (group_of[parent] if need[0] == "parent" else groups[-1]).append(value)
                asked = asked._replace(runs=(*asked.runs, (need[0], value)))
            found = conclude(asked, noise.pooled(groups), direction, first=found)
            fresh = [*asked.values("candidate")]
            values[parent] += asked.values("parent")
        if found.status == "keep":
            more = [rng.gauss(0, 1) for _ in range(verdict.remeasurements(found, again))]
            groups[-1] = more or groups[-1]
            values[name], group_of[name] = (*fresh, *more) or (first,), groups[-1]
        sign = -1 if direction == "min" else 1
        parent = max(values, key=lambda kept: sign * statistics.mean(values[kept]))
    excess = statistics.mean(values[parent])
    return len(values) - 1, excess if direction == "max" else -excess


def rate_of_first(rng: random.Random, repeats: int, trials: int) -> float:
    """Return how often one useless idea is kept against a fresh baseline of `repeats` runs."""
    kept = 0
    for _ in range(trials):
        base = [rng.gauss(0, 1) for _ in range(repeats)]
        kept += judge(run(rng.gauss(0, 1)), Measurement(tuple(base)), noise.pooled([base]), "max").status == "keep"
    return kept / trials


def check_no_ops(campaigns: int, trials: int) -> None:
    rng = random.Random(20260324)
    for repeats in (3, 5):
        assert rate_of_first(rng, repeats, trials) <= 0.05 + 3 * sqrt(0.05 * 0.95 / trials)  # five per cent exactly
        for direction in ("max", "min"):
            kept = [no_ops(rng, repeats, 0, direction)[0] for _ in range(campaigns)]
            assert sum(kept) / (50 * campaigns) <= 0.05
            again = [no_ops(rng, repeats, 0, direction, repeats)[1] for _ in range(campaigns)]
            assert statistics.mean(again) < 1
            confirmed = [no_ops(rng, repeats, 3, direction) for _ in range(campaigns)]
            assert sum(keeps for keeps, _ in confirmed) / (50 * campaigns) <= 0.01
            excess = sorted(over for _, over in confirmed)
            assert statistics.mean(excess) < 0.5
            if campaigns >= 400:  # with fewer the tail is chance
                assert excess[int(0.9 * campaigns)] < 1


def test_fifty_useless_ideas() -> None:
    check_no_ops(campaigns=40, trials=4000)


@pytest.mark.slow
def test_fifty_useless_ideas_many_times() -> None:
    check_no_ops(campaigns=400, trials=50_000)


def test_a_real_gain_is_found() -> None:
    """Three deviations better: CONFIRM must not throw it away (it keeps about nine of ten)."""
    rng, kept = random.Random(7), 0
    for _ in range(300):
        base = [rng.gauss(0, 1) for _ in range(5)]
        first = run(rng.gauss(3, 1))
        found = judge(first, Measurement(tuple(base)), noise.pooled([base]), "max", confirm=True)
        if found.confirm:
            done = play(
                Confirmation(3),
                {"parent": [rng.gauss(0, 1) for _ in range(3)], "candidate": [rng.gauss(3, 1) for _ in range(3)]},
            )
            groups = [[*base, *done.values("parent")], [*first.values, *done.values("candidate")]]
            found = conclude(done, noise.pooled(groups), "max", first=found)
        kept += found.status == "keep"
    assert kept / 300 > 0.8
