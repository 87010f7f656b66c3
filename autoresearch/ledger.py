"""The ledger: one TSV row an attempt, escaped, appended under the campaign's lock, readable without one.

Format (DESIGN section 6): UTF-8, LF, a header line, the columns of `rows.Row`. A field holds no tab or line end: they
and the backslash are written as \\t, \\n, \\r and \\\\. Readers skip a torn row and say so.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from io import FileIO
from typing import NamedTuple

from autoresearch import clock, files
from autoresearch.rows import HEADER, Reader, Row, Rows, column, encode, places

PIECE = 1 << 18  # bytes of a file that are compared at a time
RACY_NS = 20_000_000  # a file system's clock moves in steps of up to 10 ms: two changes within one look the same
SECOND_NS = 1_000_000_000  # or it counts whole seconds


class Ledger(NamedTuple):
    """What a ledger file holds: the whole rows in order, and the numbers of lines that are torn."""

    rows: Sequence[Row]
    torn: list[int]
    has_header: bool = False
    unended: Row | None = None  # a last line that lacks only its line end: cut off in its last field, or edited by hand


class Book:
    """One ledger that a process reads again and again: what is byte for byte as before is not parsed again."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._forget()

    def _forget(self) -> None:
        self._parsed: list[bytes] = []  # the file up to its last line end, as it was read
        self._reader = Reader()
        self._seen = Ledger(Rows(), [])
        self._stamp: tuple[int, ...] = ()

    def read(self) -> Ledger:
        """Return the rows; an absent file is an empty ledger. Takes no lock.

        A row that another writer is appending right now (no line end yet) is not there yet.

        Raises:
            Refused: it has columns that this version does not know.
        """
        try:
            with open(self.path, "rb", buffering=0) as file:
                stamp = _stamp(file)
                if stamp != self._stamp or not stamp:
                    self._seen = self._look(file)
                    self._stamp = stamp
        except FileNotFoundError:
            self._forget()
        return self._seen

    def _look(self, file: FileIO) -> Ledger:
        """Read what follows the lines that were parsed; all of it when these are not there as they were."""
        if not self._stands(file):
            self._forget()
            file.seek(0)
        rest, reader = file.readall(), self._reader
        end = rest.rfind(b"\n") + 1
        if end:
            whole = rest if end == len(rest) else rest[:end]
            reader.take(whole)
            self._parsed.append(whole)
        if end == len(rest):
            return Ledger(reader.rows, reader.torn, reader.has_header)
        torn = [*reader.torn, reader.lines + 1]
        return Ledger(reader.rows, torn, reader.has_header, reader.cut_off(rest[end:]))

    def _stands(self, file: FileIO) -> bool:
        """Compare the file's beginning with what was parsed, and stop behind it; in pieces, to touch little memory."""
        piece = memoryview(bytearray(min(PIECE, max(map(len, self._parsed), default=0))))
        for part in self._parsed:
            at = 0
            while at < len(part):
                count = file.readinto(piece[: len(part) - at])
                if not count or not part.startswith(piece[:count], at):
                    return False
                at += count
        return True

    def append(self, row: Row) -> Row:
        """Append `row` with the next index unless its (experiment, attempt) is there; return the row as written.

        The caller holds the campaign's lock.

        Raises:
            OSError: the disk is full; nothing of the row stays.
        """
        book = self.read()
        rows, cut = book.rows, book.unended
        present = find(rows, row.experiment, row.number)
        if present:
            return present
        again = cut is not None and _same(cut, row)
        if cut and not again:
            rows = [*rows, cut]
        last = max((int(index) for index in column(rows, "index") if index.isdecimal()), default=0)
        row = row._replace(index=str(last + 1))
        if book.has_header and not again:
            files.append(self.path, encode(row))
        else:  # new, of an earlier version, its very first write was cut off, or this row's was in its last field
            self.rewrite([*rows, row])
        return row

    def rewrite(self, rows: Iterable[Row]) -> None:
        """Replace all rows; a last row that lacks its line end stays, and so does the old file where lines are torn.

        The caller holds the campaign's lock.
        """
        rows, cut = list(rows), self.read().unended
        if cut and not any(_same(cut, row) for row in rows):
            rows.append(cut)
        if self._reader.torn:
            keep_aside(self.path)
        files.replace(self.path, HEADER + b"".join(map(encode, rows)))


def _same(one: Row, other: Row) -> bool:
    return (one.experiment, one.attempt) == (other.experiment, other.attempt)


def keep_aside(path: str) -> None:
    """Copy a ledger to a new file beside it that is named after the time."""
    aside = at = f"{path}.{clock.stamp(clock.now()).replace(':', '')}"
    turn = 1
    while os.path.lexists(at):  # of the same second
        turn += 1
        at = f"{aside}-{turn}"
    with open(path, "rb") as file:
        files.replace(at, file.read())


def _stamp(file: FileIO) -> tuple[int, ...]:
    """Return what changes with a file; nothing while it is so young that a further change may not show in it."""
    info = os.fstat(file.fileno())
    if time.time_ns() - info.st_ctime_ns < RACY_NS or info.st_ctime_ns % SECOND_NS == 0:
        return ()
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns


_books: dict[str, Book] = {}  # of this process; a supervisor inherits what its client has parsed


def _book(path: str) -> Book:
    return _books.setdefault(path, Book(path))


def read(path: str) -> Ledger:
    """Return the rows of a ledger, see `Book.read`."""
    return _book(path).read()


def append(path: str, row: Row) -> Row:
    """Append a row to a ledger, see `Book.append`."""
    return _book(path).append(row)


def find(rows: Sequence[Row], experiment: str, attempt: int) -> Row | None:
    """Return the row of one attempt, None while it has none."""
    wanted = str(attempt)
    attempts = column(rows, "attempt")
    return next((rows[at] for at in reversed(places(rows, "experiment", experiment)) if attempts[at] == wanted), None)


def rewrite(path: str, rows: Iterable[Row]) -> None:
    """Replace the whole ledger, see `Book.rewrite`."""
    _book(path).rewrite(rows)


def restore(path: str, rows: Iterable[Row]) -> None:
    """Write a ledger anew, whatever the old file holds, which is kept beside it; the caller holds the lock."""
    if os.path.exists(path):
        keep_aside(path)
    files.replace(path, HEADER + b"".join(map(encode, rows)))
