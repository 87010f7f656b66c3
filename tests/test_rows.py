"""Many rows read by column: the same as reading each of them, whatever a field holds and whoever wrote the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch import ledger
from autoresearch.errors import Refused
from autoresearch.rows import COLUMNS, HEADER, HOT, Row, Rows, column, distinct, places, values

FIELD = st.text(st.characters(codec="utf-8"), max_size=12)
ROWS = st.lists(
    st.builds(Row._make, st.lists(FIELD, min_size=len(COLUMNS), max_size=len(COLUMNS))).filter(
        lambda row: row.index != "index"
    ),
    max_size=6,
)


@given(ROWS)
def test_columns_and_rows_say_the_same(rows: list[Row]) -> None:
    read = Rows.of(rows)
    assert read == rows
    assert len(read) == len(rows)
    assert list(reversed(read)) == rows[::-1]
    assert read[1:] == rows[1:]
    assert read[-2:] == rows[-2:]
    for name in COLUMNS:
        assert column(read, name) == column(rows, name)
    everywhere = range(len(rows))
    assert values(read, everywhere) == values(rows, everywhere)
    for name in HOT:
        assert distinct(read, name) == distinct(rows, name)


@given(ROWS, st.sampled_from(HOT))
def test_places_are_where_a_value_stands(rows: list[Row], name: str) -> None:
    for row in rows:
        value = getattr(row, name)
        assert places(Rows.of(rows), name, value) == [at for at, one in enumerate(rows) if getattr(one, name) == value]
    assert places(Rows.of(rows), name, "no row has this") == []


def test_an_answer_grows_with_the_rows(hostile: Path) -> None:
    path = str(hostile / "results.tsv")
    for count, (name, attempt) in enumerate([("a", "1"), ("b", "1"), ("a", "2"), ("aa", "1"), ("b", "2")]):
        ledger.append(path, Row(experiment=name, attempt=attempt))
        assert distinct(ledger.read(path).rows, "experiment") == (1, 2, 2, 3, 3)[count]


def earlier(names: tuple[str, ...], *rows: Row) -> bytes:
    """A ledger as a version with these columns wrote it."""
    lines = [names, *([getattr(row, name) for name in names] for row in rows)]
    return "".join("\t".join(line) + "\n" for line in lines).encode()


def test_a_ledger_without_the_newest_column_is_read_and_goes_on_in_the_present_form(hostile: Path) -> None:
    path = hostile / "results.tsv"
    old = [
        Row(index=str(n), experiment=name, attempt="1", status="keep", reason="r") for n, name in ((1, "a"), (2, "b"))
    ]
    path.write_bytes(earlier(COLUMNS[:-1], *old) + b"torn\n")
    book = ledger.read(str(path))
    assert book.rows == old
    assert book.torn == [4]
    ledger.append(str(path), Row(experiment="c", attempt="1", device="NVIDIA H100"))
    assert path.read_bytes().startswith(HEADER)
    assert [(row.index, row.experiment, row.device) for row in ledger.read(str(path)).rows] == [
        ("1", "a", ""),
        ("2", "b", ""),
        ("3", "c", "NVIDIA H100"),
    ]


def test_columns_in_another_order_are_read_by_their_names(hostile: Path) -> None:
    path = hostile / "results.tsv"
    row = Row(index="1", experiment="a", attempt="1", metric_value="0.5", metric_source="log run.log:1")
    path.write_bytes(earlier(("index", *COLUMNS[:0:-1]), row))
    assert ledger.read(str(path)).rows == [row]


def test_a_column_of_somebody_else_is_refused_and_stays(hostile: Path) -> None:
    path = hostile / "results.tsv"
    row = Row(index="1", experiment="a", attempt="1")
    text = "\t".join((*COLUMNS, "my_note")) + "\n" + "\t".join((*row, "worth keeping")) + "\n"
    path.write_text(text)
    with pytest.raises(Refused, match="my_note"):
        ledger.append(str(path), Row(experiment="b", attempt="1"))
    assert path.read_text() == text
