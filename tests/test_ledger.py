"""ledger.py: any text comes back, no row is lost or torn, whoever writes at the same time or dies while writing."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autoresearch import files, ledger
from autoresearch.rows import COLUMNS, HEADER, Row, encode, escape, unescape
from tests.runs import root_only, tmpfs

TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
ROWS = st.builds(Row._make, st.lists(TEXT, min_size=len(COLUMNS), max_size=len(COLUMNS)))
FIRST = (
    "index branch parent_commit commit recipe metric_name metric_value memory_gb elapsed_min launcher job_id command "
    "log_path status description"
)
MORE = (
    "experiment attempt end_cause exit_code started_at finished_at metric_step metric_best metric_source parent_metric "
    "memory_source checkpoint_path artifacts_path cache_root host verdict_by reason device"
)


def row(experiment: str = "x", attempt: int = 1, **more: str) -> Row:
    """Return a row of one attempt."""
    return Row(experiment=experiment, attempt=str(attempt), **more)


def test_the_columns_are_those_that_others_read() -> None:
    assert list(COLUMNS) == FIRST.split() + MORE.split()
    assert HEADER.decode() == "\t".join(COLUMNS) + "\n"


@given(TEXT)
@example("\\n \\\\ \\t\t\n\r\\")
@example("a\u2028b\x85c\x1cd\x0be")
@example('"quoted')
def test_a_field_comes_back(text: str) -> None:
    written = escape(text)
    assert not set(written) & {"\t", "\n", "\r"}
    assert unescape(written) == text


@given(TEXT)
def test_unescape_takes_anything(text: str) -> None:
    unescape(text)


@given(st.lists(ROWS, max_size=4))
@settings(max_examples=60)
def test_rows_come_back(rows: list[Row]) -> None:
    import tempfile

    kept = [one for one in rows if one.index != "index"]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "results.tsv")
        ledger.rewrite(path, kept)
        book = ledger.read(path)
        assert book.rows == kept
        assert book.torn == []


def test_what_is_no_text_is_kept_as_a_replacement(hostile: Path) -> None:
    path = str(hostile / "results.tsv")
    ledger.append(path, row(log_path="/tmp/\udcff"))
    assert ledger.read(path).rows[0].log_path == "/tmp/?"


def test_the_index_counts_and_an_attempt_has_one_row(hostile: Path) -> None:
    path = str(hostile / "results.tsv")
    assert ledger.read(path) == ledger.Ledger([], [])
    assert [ledger.append(path, row(name, n)).index for name, n in (("a", 1), ("a", 2), ("b", 1))] == ["1", "2", "3"]
    again = ledger.append(path, row("a", 2, reason="another"))
    assert (again.index, again.reason) == ("2", "")
    book = ledger.read(path)
    assert len(book.rows) == 3
    assert Path(path).read_bytes().startswith(HEADER)
    assert Path(path).stat().st_mode & 0o777 == 0o600
    assert ledger.find(book.rows, "a", 2) == book.rows[1]
    assert ledger.find(book.rows, "a", 3) is None
    assert [one.id for one in book.rows] == ["a", "a.2", "b"]


@pytest.mark.parametrize("kept", range(0, 120, 7))
def test_a_torn_row_is_skipped_named_and_healed(hostile: Path, kept: int) -> None:
    path = hostile / "results.tsv"
    ledger.append(str(path), row("a"))
    whole = path.read_bytes()
    line = encode(row("b", reason="x" * 60, branch="b" * 30)._replace(index="2"))
    path.write_bytes(whole + line[:kept])
    book = ledger.read(str(path))
    assert [one.experiment for one in book.rows] == ["a"]
    assert book.torn == ([3] if kept else [])
    ledger.append(str(path), row("b", reason="x" * 60, branch="b" * 30))
    rows = ledger.read(str(path)).rows
    assert [(one.index, one.experiment) for one in rows] == [("1", "a"), ("2", "b")]
    assert rows[1].reason == "x" * 60
    assert path.read_bytes().endswith(b"\n")


def test_a_first_write_that_was_cut_off_gets_its_header(hostile: Path) -> None:
    path = hostile / "results.tsv"
    for cut in (0, 1, 40, len(HEADER) - 1):
        path.write_bytes(HEADER[:cut])
        ledger.append(str(path), row("a"))
        assert path.read_bytes().startswith(HEADER)
        assert [one.experiment for one in ledger.read(str(path)).rows] == ["a"]


def test_a_last_line_that_an_editor_left_open_is_a_row(hostile: Path) -> None:
    path = hostile / "results.tsv"
    ledger.append(str(path), row("a"))
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    ledger.append(str(path), row("b"))
    assert [(one.index, one.experiment) for one in ledger.read(str(path)).rows] == [("1", "a"), ("2", "b")]


def test_quotes_line_separators_and_carriage_returns_do_not_split_rows(hostile: Path) -> None:
    path = str(hostile / "results.tsv")
    for number, text in enumerate(('"open', "a\u2028b", "a\x0cb\x85", "\r\n", "\\t")):
        ledger.append(path, row(f"e{number}", description=text, reason="r"))
    assert [one.description for one in ledger.read(path).rows] == ['"open', "a\u2028b", "a\x0cb\x85", "\r\n", "\\t"]
    assert len(Path(path).read_bytes().split(b"\n")) == 7


def test_only_a_measured_value_is_a_value() -> None:
    assert row(metric_value="0.000000", status="crash").value is None
    assert row(metric_value="0.5", metric_source="console").value == 0.5
    assert row(metric_value="6.05e-06", metric_source="console", status="discard").value == 6.05e-06
    assert row(metric_value="", metric_source="console").value is None


WRITER = """
import os, signal, sys
from autoresearch import files, ledger
from autoresearch.rows import Row
path, name, dies = sys.argv[1], sys.argv[2], sys.argv[3] == "dies"
if dies:
    real, count = os.write, [0]
    def write(fd, data):
        if len(data) > 5000:
            count[0] += 1
            if count[0] == 4:
                real(fd, bytes(data)[:len(data) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
        return real(fd, data)
    os.write = write
for attempt in range(1, 11):
    with files.locked(path + ".lock"):
        ledger.append(path, Row(experiment=name, attempt=str(attempt), description=name * 9000 if dies else name * 50,
                                reason="end"))
"""


def test_twenty_writers_at_once_one_killed_in_mid_write_lose_and_tear_nothing(hostile: Path) -> None:
    path = str(hostile / "results.tsv")
    names = [f"e{number}" for number in range(20)]
    words = [sys.executable, "-c", WRITER, path]
    writers = [subprocess.Popen([*words, name, "dies" if name == "e7" else "lives"]) for name in names]
    codes = [writer.wait(120) for writer in writers]
    assert codes == [-signal.SIGKILL if name == "e7" else 0 for name in names]
    with files.locked(path + ".lock", wait_s=1):
        ledger.append(path, row("after"))
    book = ledger.read(path)
    assert len(book.torn) == 1
    ids = [(one.experiment, one.attempt) for one in book.rows]
    expected = {(name, str(n)) for name in names for n in range(1, 11) if name != "e7" or n < 4} | {("after", "1")}
    assert len(ids) == len(set(ids))
    assert set(ids) == expected
    assert [one.index for one in book.rows] == [str(n) for n in range(1, len(ids) + 1)]
    assert all(one.reason == "end" for one in book.rows if one.experiment != "after")


def test_a_reader_without_a_lock_never_meets_half_a_row(hostile: Path) -> None:
    path = str(hostile / "results.tsv")
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, path, name, "lives"]) for name in ("a", "b")]
    while any(writer.poll() is None for writer in writers):
        assert all(one.reason == "end" for one in ledger.read(path).rows)
    assert [writer.returncode for writer in writers] == [0, 0]
    assert len(ledger.read(path).rows) == 20


@pytest.mark.parametrize("written", [0, 1, 25])
def test_a_row_that_does_not_fit_leaves_the_ledger_as_it_was(
    hostile: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    path, real, calls = hostile / "results.tsv", os.write, []
    ledger.append(str(path), row("a"))
    before = path.read_bytes()

    def full(fd: int, data: bytes) -> int:
        calls.append(fd)
        if len(calls) > 1 or not written:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, bytes(data)[:written])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        ledger.append(str(path), row("b"))
    with pytest.raises(OSError, match="No space"):
        ledger.rewrite(str(path), [])
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert os.listdir(hostile) == ["results.tsv"]


def fill(path: str, size: int) -> int:
    """Append rows until the disk is full; return how many there are."""
    for number in range(10_000):
        try:
            ledger.append(path, row(f"e{number}", description="x" * size, reason="end"))
        except OSError:
            return number
    raise AssertionError("the disk never got full")


@root_only
@pytest.mark.parametrize("size", [10, 3000])
def test_a_full_disk_keeps_every_row_that_was_written(hostile: Path, size: int) -> None:
    with tmpfs(hostile / "disk", "size=40k") as disk:
        path = str(disk / "results.tsv")
        count = fill(path, size)
        book = ledger.read(path)
        assert (len(book.rows), book.torn) == (count, [])
        assert all(one.reason == "end" for one in book.rows)
        with pytest.raises(OSError, match="No space"):
            ledger.rewrite(path, [*book.rows, *book.rows])
        assert ledger.read(path) == book


def test_what_an_editor_or_a_spreadsheet_adds_is_no_part_of_a_row_and_goes_with_the_next_one(hostile: Path) -> None:
    path = hostile / "results.tsv"
    rows = [row("a", index="1", device="none"), row("b", index="2", device="none")]
    ledger.rewrite(str(path), rows)
    for mark, end in ((b"", b"\r\n"), (b"\xef\xbb\xbf", b"\n"), (b"\xef\xbb\xbf", b"\r\n")):
        path.write_bytes(mark + path.read_bytes().replace(b"\n", end))
        book = ledger.read(str(path))
        assert (book.rows, book.torn) == (rows, [])
        rows.append(ledger.append(str(path), row(f"e{len(rows)}", device="none")))
        assert path.read_bytes() == HEADER + b"".join(map(encode, rows))


def test_a_rewrite_keeps_a_last_row_without_its_line_end_and_lines_that_are_no_rows(hostile: Path) -> None:
    path = hostile / "results.tsv"
    ledger.rewrite(str(path), [row("a"), row("b")])
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    ledger.rewrite(str(path), [row("a", status="keep")])
    assert [one.id for one in ledger.read(str(path)).rows] == ["a", "b"]
    assert os.listdir(hostile) == ["results.tsv"]
    damaged = path.read_bytes().replace(b"\n", b"\n1\tby hand\n", 1)
    path.write_bytes(damaged)
    ledger.rewrite(str(path), ledger.read(str(path)).rows)
    (aside,) = (hostile / name for name in os.listdir(hostile) if name != "results.tsv")
    assert aside.read_bytes() == damaged
    for text in (b"1\n", b"2\n", b"3\n"):  # within one second
        path.write_bytes(text)
        ledger.keep_aside(str(path))
    kept = [(hostile / name).read_bytes() for name in os.listdir(hostile)]
    assert {damaged, b"1\n", b"2\n", b"3\n"} <= set(kept)


def test_a_field_that_a_hand_has_spoiled_is_no_number() -> None:
    assert [row(attempt=text).number for text in (2, "", "x", "\u00b2")] == [2, 1, 1, 1]  # type: ignore[arg-type]
    for text in ("abc", "", "nan", "1e999"):
        assert row(metric_value=text, metric_source="console").value is None
