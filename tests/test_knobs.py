"""knobs.py: values arrive as they were given, and nonsense is named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch import knobs
from autoresearch.errors import Usage

# What an environment can hold: no NUL, no lone surrogates.
VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\0"))


@given(VALUES)
def test_a_value_comes_back_as_it_was_given(value: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AR_NOTE", value)
        assert knobs.get("NOTE") == value
        assert knobs.text("NOTE", "default") == (value or "default")


def test_not_given_and_empty_stay_different(monkeypatch: pytest.MonkeyPatch) -> None:
    assert knobs.get("NOTE") is None
    assert knobs.is_given("NOTE") == []
    monkeypatch.setenv("AR_NOTE", "")
    assert knobs.get("NOTE") == ""
    assert knobs.is_given("NOTE") == []
    monkeypatch.setenv("AR_NOTE", "x")
    assert knobs.is_given("OTHER", "NOTE") == ["NOTE"]


def test_a_plain_variable_is_pointed_out_and_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAME", "from-wsl")
    with pytest.raises(Usage) as caught:
        knobs.required("NAME", "y")
    assert "only AR_NAME is read" in str(caught.value)
    assert "from-wsl" not in str(caught.value)
    monkeypatch.setenv("AR_NAME", "mine")
    assert knobs.required("NAME", "y") == "mine"


@pytest.mark.parametrize(
    ("value", "is_set"),
    [
        ("1", True),
        ("yes", True),
        ("TRUE", True),
        ("on", True),
        ("", False),
        ("0", False),
        ("No", False),
        ("off", False),
    ],
)
def test_a_flag_is_yes_or_no(monkeypatch: pytest.MonkeyPatch, value: str, is_set: bool) -> None:
    monkeypatch.setenv("AR_YES", value)
    assert knobs.flag("YES") is is_set


@pytest.mark.parametrize("value", ["maybe", "2", "y", " 1", "1\n"])
def test_a_flag_that_is_neither_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("AR_YES", value)
    with pytest.raises(Usage):
        knobs.flag("YES")


@pytest.mark.parametrize(
    "value", ["nan", "inf", "-1", "+1", "1_0", "1e3", "１", "0x1", " 1", "1\n", ".", "1,5", "1 GB", "9" * 400]
)
def test_numbers_are_plain(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("AR_MIN_FREE_GB", value)
    with pytest.raises(Usage) as caught:
        knobs.number("MIN_FREE_GB", 10.0)
    assert "MIN_FREE_GB" in str(caught.value)


@given(st.floats(0, 1e9).map(lambda number: f"{number:.3f}"))
def test_a_plain_number_is_read(text: str) -> None:
    assert knobs.parse_number("X", text) == float(text)


@pytest.mark.parametrize(
    ("value", "least"), [("0", 1), ("-1", 0), ("1.0", 1), ("٣", 1), ("1 2", 1), ("9" * 5000, 1), ("", 1)]
)
def test_a_count_is_whole(monkeypatch: pytest.MonkeyPatch, value: str, least: int) -> None:
    monkeypatch.setenv("AR_REPEATS", value)
    if not value:
        assert knobs.count("REPEATS", 7, least=least) == 7
        return
    with pytest.raises(Usage):
        knobs.count("REPEATS", 7, least=least)


def test_words_are_split_without_a_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AR_OVERRIDES", "a=$(touch x) 'b c' d\\ e `f` #g $HOME *")
    assert knobs.words("OVERRIDES") == ["a=$(touch", "x)", "b c", "d e", "`f`", "#g", "$HOME", "*"]
    monkeypatch.setenv("AR_OVERRIDES", "a 'b")
    with pytest.raises(Usage) as caught:
        knobs.words("OVERRIDES")
    assert "close the quote" in str(caught.value)


@given(st.lists(VALUES))
def test_quoted_words_come_back(words: list[str]) -> None:
    import shlex

    assert knobs.split("X", shlex.join(words)) == words
