"""Numbers, directions and METRIC_AT: exact, strict, and one answer to what is better."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch import direction
from autoresearch.errors import Usage
from autoresearch.metrics import aggregate, numbers

FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(FINITE)
def test_rendered_number_reads_back(value: float) -> None:
    assert numbers.strict(numbers.render(value)) == value
    assert math.copysign(1, numbers.strict(numbers.render(value))) == math.copysign(1, value)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_shortest_single_stands_for_the_same_bits(value: float) -> None:
    short = numbers.shortest_single(value)
    assert struct.pack("<f", short) == struct.pack("<f", value)
    assert numbers.shortest_single(short) == short or struct.unpack("<f", struct.pack("<f", short))[0] == value


@pytest.mark.parametrize("text", ["0.7421", "6.05e-06", "77.", ".5", "-0.0", "+1E+3", "1e400"])
def test_strict_takes_numbers(text: str) -> None:
    assert numbers.strict(text) == float(text)


@pytest.mark.parametrize(
    "text", ["", " 1", "1_000", "１２", "1,5", "0x1p3", "1e", "--1", "1.2.3", "infinit", "nano", "1 "]
)
def test_strict_refuses_the_rest(text: str) -> None:
    with pytest.raises(ValueError, match="not a number"):
        numbers.strict(text)


@pytest.mark.parametrize("text", ["nan", "NaN", "-nan", "nan(ind)", "1.#QNAN", "-1.#IND"])
def test_spellings_of_nan(text: str) -> None:
    assert math.isnan(numbers.strict(text))


@pytest.mark.parametrize(("text", "value"), [("inf", math.inf), ("-Infinity", -math.inf), ("1.#INF", math.inf)])
def test_spellings_of_infinity(text: str, value: float) -> None:
    assert numbers.strict(text) == value


@given(st.decimals(-1000, 1000, places=4))
def test_fraction_is_shifted_in_decimal(percent: object) -> None:
    parsed = numbers.follow(str(percent), "%", ("fraction",))
    assert parsed.value == float(f"{percent}e-2")


def test_options_are_checked() -> None:
    numbers.check_options(("percent", "thousands", "unit:ms"))
    for wrong in (("percents",), ("unit:",), ("percent", "fraction")):
        with pytest.raises(Usage):
            numbers.check_options(wrong)


@pytest.mark.parametrize(
    ("name", "guess"),
    [
        ("val_accuracy", "max"),
        ("val_bpb", "min"),
        ("val_loss", "min"),
        ("tokens_per_sec", "max"),
        ("performance/tokens_per_sec_per_gpu", "max"),
        ("val:accuracy", "max"),
        ("reward_loss", "min"),
        ("total_reward/mean", "max"),
        ("latencyMs", "min"),
        ("something", None),
    ],
)
def test_direction_is_guessed_from_words(name: str, guess: str | None) -> None:
    assert direction.guess_direction(name) == guess


@given(st.lists(st.floats(), max_size=30), st.sampled_from(["max", "min"]))
def test_best_is_finite_and_nothing_is_better(values: list[float], wanted: str) -> None:
    index = direction.best_index(values, wanted)
    finite = [value for value in values if math.isfinite(value)]
    if index is None:
        assert not finite
        return
    assert not any(direction.better(value, values[index], wanted) for value in values)
    assert values[index] not in values[index + 1 :]  # the later of equals


def test_one_function_for_direction() -> None:
    assert direction.better(0.2, 0.1, "max")
    assert direction.better(0.1, 0.2, "min")
    assert not direction.better(math.nan, 0.2, "min")
    assert direction.meets(0.7, ">=", 0.7)
    assert not direction.meets(math.nan, "<", 1)
    with pytest.raises(Usage):
        direction.gain(1, 2, "up")


def _found(*values: float) -> aggregate.Found:
    return aggregate.Found("test", list(values), list(range(1, len(values) + 1)))


@pytest.mark.parametrize(
    ("at", "value", "step"),
    [
        ("last", 3.0, 4),
        ("best", 1.0, 1),
        ("min", 1.0, 1),
        ("max", 4.0, 3),
        ("mean:2", 3.5, 4),
        ("median:3", 3.0, 4),
        ("median:4", 2.5, 4),
        ("step:2", 2.0, 2),
    ],
)
def test_aggregates(at: str, value: float, step: int) -> None:
    reading = aggregate.reading("m", _found(1.0, 2.0, 4.0, 3.0), at, "min")
    assert (reading.value, reading.step, reading.best, reading.n_values) == (value, step, 1.0, 4)


@pytest.mark.parametrize("at", ["last", "best", "min", "max", "mean:2", "median:1", "step:1"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_diverged_run_has_no_value(at: str, bad: float) -> None:
    reading = aggregate.reading("m", _found(0.5, 0.4, bad), at, "min")
    assert reading.value is None
    assert reading.text == ""
    assert reading.reason.startswith("diverged: ")
    assert "step 3" in reading.reason


def test_nan_in_the_window_is_a_divergence_before_it_is_not() -> None:
    assert aggregate.reading("m", _found(math.nan, 2.0, 1.0), "mean:2", "min").value == 1.5
    assert aggregate.reading("m", _found(1.0, math.nan, 1.0), "mean:2", "min").reason.startswith("diverged")


def test_too_few_values_and_missing_step_are_said() -> None:
    assert "mean:5 needs 5 values: 2 found" in aggregate.reading("m", _found(1.0, 2.0), "mean:5", "min").reason
    assert "steps 1 to 2" in aggregate.reading("m", _found(1.0, 2.0), "step:9", "min").reason


@pytest.mark.parametrize("at", ["", "first", "mean", "mean:0", "mean:-1", "step:x", "step:1.5", "last "])
def test_unknown_at_is_refused(at: str) -> None:
    with pytest.raises(Usage):
        aggregate.parse_at(at)
