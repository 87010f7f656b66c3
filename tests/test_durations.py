"""Lengths of time: what is read, what is refused, and that what is written reads back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch import durations
from autoresearch.errors import Usage


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90m", 5400),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("2d", 172800),
        ("10h", 36000),
        ("45 s", 45),
        ("1.5h", 5400),
        ("90 minutes", 5400),
        ("1 hour 30 mins", 5400),
        ("2 Days", 172800),
        ("1w", 604800),
        ("0", 0),
        ("0s", 0),
        ("  5m ", 300),
        ("1時間30分", 5400),
        ("10時間", 36000),
        ("１０時間", 36000),
        ("1時間半", 5400),
        ("2日", 172800),
        ("2日間", 172800),
        ("45秒", 45),
        ("９０ｍ", 5400),
    ],
)
def test_reads(text: str, seconds: float) -> None:
    assert durations.parse(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "90",
        "h",
        "-5m",
        "+5m",
        "1h30",
        "30m1h",
        "1h1h",
        "1:30",
        "5 fortnights",
        "1e3s",
        "٣h",
        "nan s",
        "inf",
        "1_0s",
        "5000d",
        "10h total",
        "1h\n;rm",
        "$(id)",
        ".5h",
        "5.h",
        "十時間",
        "5 months",
    ],
)
def test_refuses(text: str) -> None:
    with pytest.raises(Usage) as caught:
        durations.parse(text)
    assert caught.value.fix


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (22320.0, "6h12m"),
        (3600, "1h"),
        (5400, "1h30m"),
        (0, "0s"),
        (0.5, "0.5s"),
        (45, "45s"),
        (59.96, "59.9s"),
        (3599.7, "1h"),
        (129600, "36h"),
        (172800, "2d"),
        (183900, "2d3h5m"),
        (3605, "1h5s"),
        (-300, "-5m"),
    ],
)
def test_writes(seconds: float, text: str) -> None:
    assert durations.format(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(22345.9, "6h12m"), (3605, "1h"), (3599.9, "59m59s"), (183900, "2d3h")])
def test_two_parts_never_promise_more(seconds: float, text: str) -> None:
    assert durations.format(seconds, 2) == text


@given(st.integers(0, int(durations.LONGEST_S)))
def test_whole_seconds_read_back(seconds: int) -> None:
    assert durations.parse(durations.format(seconds)) == seconds


@given(st.floats(0, durations.LONGEST_S, allow_nan=False))
def test_shortened_is_at_most_the_truth(seconds: float) -> None:
    assert durations.parse(durations.format(seconds, 2)) <= seconds


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        assert 0 <= durations.parse(text) <= durations.LONGEST_S
    except Usage:
        pass
