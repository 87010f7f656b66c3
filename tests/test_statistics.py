"""Student's t against scipy, and pooled noise against hand-made numbers."""

from __future__ import annotations

from math import inf, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.errors import Usage
from autoresearch.rules import noise
from autoresearch.rules.statistics import mean, t_quantile

DOFS = [*range(1, 200), 250, 400, 1000, 10_000, 1_000_000]


@pytest.mark.parametrize("level", [0.95, 0.99])
def test_against_scipy(level: float) -> None:
    stats = pytest.importorskip("scipy.stats")
    for dof in DOFS:
        assert t_quantile(dof, level) == pytest.approx(float(stats.t.ppf(level, dof)), rel=1e-5)
    assert t_quantile(inf, level) == pytest.approx(float(stats.norm.ppf(level)), rel=1e-12)


def test_known_values_without_scipy() -> None:
    """From the tables every textbook has."""
    assert [round(t_quantile(dof), 3) for dof in (1, 4, 10, 30, 60, 120)] == [6.314, 2.132, 1.812, 1.697, 1.671, 1.658]
    assert [round(t_quantile(dof, 0.99), 3) for dof in (1, 4, 10, 30, 60, 120)] == [
        31.821,
        3.747,
        2.764,
        2.457,
        2.390,
        2.358,
    ]


@pytest.mark.parametrize("level", [0.95, 0.99])
def test_it_falls_towards_the_normal_value(level: float) -> None:
    values = [t_quantile(dof, level) for dof in (*DOFS, inf)]
    assert values == sorted(values, reverse=True)


def test_a_fraction_is_rounded_down() -> None:
    assert t_quantile(4.9) == t_quantile(4)


@pytest.mark.parametrize(("dof", "level"), [(0, 0.95), (0.5, 0.95), (-1, 0.95), (float("nan"), 0.95), (5, 0.9)])
def test_nonsense_is_an_error(dof: float, level: float) -> None:
    with pytest.raises(ValueError, match="no t value"):
        t_quantile(dof, level)


def test_pooled_noise() -> None:
    assert noise.pooled([[1.0, 3.0]]) == noise.Noise(sqrt(2), 1, "measured")
    two = noise.pooled([[1.0, 3.0], [10.0, 10.0, 13.0], [99.0], []])
    assert two.dof == 3
    assert two.spread == pytest.approx(sqrt((2 + 6) / 3))
    assert noise.pooled([[1.0], [2.0]]) == noise.UNKNOWN
    assert noise.pooled([]) == noise.UNKNOWN
    assert noise.pooled([[0.5, 0.5, 0.5]]) == noise.Noise(0.0, 2, "measured")


@pytest.mark.parametrize("size", [1e-300, 1e-170, 1.0, 1e170, 1e300])
def test_the_size_of_the_numbers_does_not_matter(size: float) -> None:
    assert noise.pooled([[size, 3 * size], [7 * size]]).spread == pytest.approx(sqrt(2) * size, rel=1e-12)
    assert noise.pooled([[size] * 5]).spread == 0


def test_numbers_too_far_apart_for_a_number_are_all_within_the_noise() -> None:
    most = 1.7e308
    assert mean([most, most]) == most
    assert noise.pooled([[most, *[-most] * 9]]).margin(1, 1) == inf


@given(st.lists(st.lists(st.floats(-1e6, 1e6), max_size=5), max_size=6), st.floats(-1e6, 1e6))
def test_the_level_of_a_commit_does_not_matter(groups: list[list[float]], shift: float) -> None:
    here, there = noise.pooled(groups), noise.pooled([[value + shift for value in values] for values in groups])
    assert here.dof == there.dof
    assert (here.spread is None) == (there.spread is None)
    if here.spread is not None:
        assert here.spread == pytest.approx(there.spread, abs=1e-6)


def test_rows_are_grouped_and_invalid_ones_left_out() -> None:
    rows = [("a", 0.5), ("b", 0.1), ("a", None), ("a", 0.7), ("a", float("nan"))]
    assert noise.grouped(rows) == {"a": [0.5, 0.7], "b": [0.1]}


def test_declared_noise_wins_and_has_no_doubt() -> None:
    assert noise.known("0.004", [[1.0, 3.0]]) == noise.Noise(0.004, inf, "declared")
    assert noise.known(" ", [[1.0, 3.0]]).source == "measured"
    assert noise.declared("4e-3").margin(1, 1) == pytest.approx(1.6448536 * 0.004 * sqrt(2))
    assert noise.declared("0").margin(1, 1) == 0


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "1e999", "x", "0.1%", "１", "1_0", "", "0x1"])
def test_declared_nonsense_is_refused(text: str) -> None:
    with pytest.raises(Usage):
        noise.declared(text)


def test_an_unknown_noise_has_no_margin() -> None:
    with pytest.raises(ValueError, match="unknown"):
        noise.UNKNOWN.margin(1, 1)


@given(st.floats(-1e6, 1e6), st.integers(1, 9))
def test_the_mean_of_equal_values_is_that_value(value: float, count: int) -> None:
    assert mean([value] * count) == value
