"""The ledger: one TSV row an attempt, escaped, appended under the campaign's lock, readable without one.

Format (DESIGN section 6): UTF-8, LF, a header line, the columns of `Row`. A field holds no tab or line end: they
and the backslash are written as \\t, \\n, \\r and \\\\. Readers skip a torn row and say so.
"""

from __future__ import annotations

from io import BytesIO, FileIO
from typing import NamedTuple

from autoresearch import files


class Row(NamedTuple):
    """One attempt. Every field is text as written; unknown is empty."""

    index: str = ""  # type: ignore[assignment]  # the column's name, though tuple has a method of that name
    branch: str = ""
    parent_commit: str = ""
    commit: str = ""
    recipe: str = ""
    metric_name: str = ""
    metric_value: str = ""
    memory_gb: str = ""
    elapsed_min: str = ""
    launcher: str = ""
    job_id: str = ""
    command: str = ""
    log_path: str = ""
    status: str = ""
    description: str = ""
    experiment: str = ""
    attempt: str = ""
    end_cause: str = ""
    exit_code: str = ""
    started_at: str = ""
    finished_at: str = ""
    metric_step: str = ""
    metric_best: str = ""
    metric_source: str = ""
    parent_metric: str = ""
    memory_source: str = ""
    checkpoint_path: str = ""
    artifacts_path: str = ""
    cache_root: str = ""
    host: str = ""
    verdict_by: str = ""
    reason: str = ""

    @property
    def value(self) -> float | None:
        """The metric when it is valid (it has a source), else None; a crash's 0.000000 is never a value."""
        if not self.metric_source:
            return None
        try:
            return float(self.metric_value)
        except ValueError:
            return None

    @property
    def id(self) -> str:
        """`NAME`, or `NAME.n` for a later attempt."""
        return self.experiment if self.attempt in ("", "1") else f"{self.experiment}.{self.attempt}"


COLUMNS = Row._fields
PIECE = 1 << 18  # bytes of a file that are compared at a time
HEADER = ("\t".join(COLUMNS) + "\n").encode()
_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))


def escape(field: str) -> str:
    """Return a field as the file holds it."""
    for plain, written in _ESCAPES:
        if plain in field:
            field = field.replace(plain, written)
    return field


def unescape(field: str) -> str:
    """Return the text of a field as read from the file; an unknown escape stays as it is."""
    if "\\" not in field:
        return field
    plain = {"\\": "\\", "t": "\t", "n": "\n", "r": "\r"}
    out, i = [], 0
    while i < len(field):
        if field[i] == "\\" and i + 1 < len(field) and field[i + 1] in plain:
            out.append(plain[field[i + 1]])
            i += 2
        else:
            out.append(field[i])
            i += 1
    return "".join(out)


def encode(row: Row) -> bytes:
    """Return the line of a row; a byte that is not text (from a path, say) is kept as a replacement character."""
    return ("\t".join(map(escape, row)) + "\n").encode("utf-8", "replace")


class Ledger(NamedTuple):
    """What a ledger file holds: the whole rows in order, and the numbers of lines that are torn."""

    rows: list[Row]
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
        self._lines = 0
        self._seen = Ledger([], [])

    def read(self) -> Ledger:
        """Return the rows; an absent file is an empty ledger. Takes no lock.

        A row that another writer is appending right now (no line end yet) is not there yet.
        """
        rest = self._rest()
        end = rest.rfind(b"\n") + 1
        if end:
            self._take(rest if end == len(rest) else rest[:end])
        if end == len(rest):
            return self._seen
        last = rest[end:].decode("utf-8", "replace")
        fields = last.split("\t")
        unended = _row(last, fields) if len(fields) == len(COLUMNS) and fields[0] != "index" else None
        return self._seen._replace(torn=[*self._seen.torn, self._lines + 1], unended=unended)

    def _rest(self) -> bytes:
        """Return what follows the lines that were parsed; all of it when these are not there as they were."""
        try:
            with open(self.path, "rb", buffering=0) as file:
                if not self._stands(file):
                    self._forget()
                    file.seek(0)
                return file.readall()
        except FileNotFoundError:
            self._forget()
            return b""

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

    def _take(self, data: bytes) -> None:
        """Parse further whole lines; lists that a caller holds stay as they are."""
        before, rows, torn = self._seen, self._seen.rows.copy(), self._seen.torn.copy()
        width, has_header, make = len(COLUMNS), before.has_header, tuple.__new__
        for raw in BytesIO(data):
            self._lines += 1
            line = raw[:-1].decode("utf-8", "replace")
            fields = line.split("\t")
            if len(fields) != width:
                if line:
                    torn.append(self._lines)
            elif fields[0] == "index":
                has_header = True
            else:
                # What Row._make does, at half the price.
                rows.append(_row(line, fields) if "\\" in line else make(Row, fields))
        self._parsed.append(data)
        self._seen = Ledger(rows, torn, has_header)

    def append(self, row: Row) -> Row:
        """Append `row` with the next index unless its (experiment, attempt) is there; return the row as written.

        The caller holds the campaign's lock.

        Raises:
            OSError: the disk is full; nothing of the row stays.
        """
        book = self.read()
        rows, cut = book.rows, book.unended
        present = find(rows, row.experiment, int(row.attempt))
        if present:
            return present
        again = cut is not None and (cut.experiment, cut.attempt) == (row.experiment, row.attempt)
        if cut and not again:
            rows = [*rows, cut]
        last = max((int(known.index) for known in rows if known.index.isdigit()), default=0)
        row = row._replace(index=str(last + 1))
        if book.has_header and not again:
            files.append(self.path, encode(row))
        else:  # new, its very first write was cut off, or this row's was in its last field
            rewrite(self.path, [*rows, row])
        return row


_books: dict[str, Book] = {}  # of this process; a supervisor inherits what its client has parsed


def _book(path: str) -> Book:
    return _books.setdefault(path, Book(path))


def read(path: str) -> Ledger:
    """Return the rows of a ledger, see `Book.read`."""
    return _book(path).read()


def append(path: str, row: Row) -> Row:
    """Append a row to a ledger, see `Book.append`."""
    return _book(path).append(row)


def _row(line: str, fields: list[str]) -> Row:
    return Row._make(map(unescape, fields) if "\\" in line else fields)


def find(rows: list[Row], experiment: str, attempt: int) -> Row | None:
    """Return the row of one attempt, None while it has none."""
    wanted = str(attempt)
    for row in reversed(rows):
        if row.experiment == experiment and row.attempt == wanted:
            return row
    return None


def rewrite(path: str, rows: list[Row]) -> None:
    """Replace the whole ledger (mark, rebuild); the caller holds the campaign's lock."""
    files.replace(path, HEADER + b"".join(map(encode, rows)))
