"""A ledger that one process reads again and again: never stale, whatever happens to the file between two reads."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from autoresearch import ledger
from autoresearch.ledger import Book
from autoresearch.rows import HEADER, Row, encode


def rows(*names: str) -> list[Row]:
    """Rows of these experiments, as they are written one after the other."""
    return [Row(index=str(n), experiment=name, attempt="1", status="keep") for n, name in enumerate(names, 1)]


def test_it_sees_appended_rows_without_touching_a_list_it_gave_out(tmp_path: Path) -> None:
    path = str(tmp_path / "results.tsv")
    book = Book(path)
    assert book.read().rows == []
    ledger.append(path, rows("a")[0])
    first = book.read().rows
    ledger.append(path, rows("b")[0])
    assert [row.experiment for row in book.read().rows] == ["a", "b"]
    assert [row.experiment for row in first] == ["a"]


def test_what_did_not_change_is_not_parsed_again(tmp_path: Path) -> None:
    path = str(tmp_path / "results.tsv")
    ledger.append(path, rows("a")[0])
    book = Book(path)
    assert book.read().rows is book.read().rows


def test_a_replaced_an_edited_and_a_shortened_file_are_seen(tmp_path: Path) -> None:
    path = str(tmp_path / "results.tsv")
    ledger.rewrite(path, rows("aa", "bb", "cc"))
    book = Book(path)
    book.read()
    ledger.rewrite(path, rows("aa", "xx", "cc"))
    assert [row.experiment for row in book.read().rows] == ["aa", "xx", "cc"]
    info = os.stat(path)
    data = (tmp_path / "results.tsv").read_bytes()
    with open(path, "r+b") as file:  # same file, same size, same times: only its bytes differ
        file.write(data.replace(b"aa", b"zz"))
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
    assert [row.experiment for row in book.read().rows] == ["zz", "xx", "cc"]
    ledger.rewrite(path, rows("aa"))
    assert [row.experiment for row in book.read().rows] == ["aa"]
    os.unlink(path)
    assert book.read().rows == []


@given(st.lists(st.tuples(st.binary(max_size=60), st.booleans()), max_size=8))
def test_reading_in_steps_gives_what_reading_at_once_gives(
    tmp_path_factory: object, steps: list[tuple[bytes, bool]]
) -> None:
    path = tmp_path_factory.mktemp("steps") / "results.tsv"  # type: ignore[attr-defined]
    book = Book(str(path))
    whole = b""
    for junk, is_row in steps:
        whole += encode(Row(experiment=junk.hex(), attempt="1")) if is_row else junk
        path.write_bytes(HEADER + whole)
        assert book.read() == Book(str(path)).read()
