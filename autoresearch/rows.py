"""The rows of a ledger: their columns, how a field is written, and many rows at the price of what is asked of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from itertools import chain
from math import isfinite
from operator import itemgetter
from typing import Any, NamedTuple, overload

from autoresearch.errors import Refused


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
    device: str = ""  # the type of the GPUs it ran on: a new column goes to the end, for tools that count

    @property
    def value(self) -> float | None:
        """The metric when it is valid (it has a source), else None; a crash's 0.000000 is never a value."""
        return valid(self.metric_value, self.metric_source)

    @property
    def id(self) -> str:
        """`NAME`, or `NAME.n` for a later attempt."""
        return self.experiment if self.attempt in ("", "1") else f"{self.experiment}.{self.attempt}"

    @property
    def number(self) -> int:
        """The attempt as a number; 1 where a hand has left none."""
        return int(self.attempt) if self.attempt.isdecimal() else 1


COLUMNS = Row._fields
FIXED = COLUMNS[:15]  # for people and tools that know the format; a ledger of any version has them
HEADER = ("\t".join(COLUMNS) + "\n").encode()
# What the rules ask of every row before each launch; all else is read from the rows that are wanted.
HOT = ("index", "commit", "metric_value", "status", "experiment", "attempt", "metric_source")
_HOT_FIELDS = itemgetter(*map(COLUMNS.index, HOT))
BOM = b"\xef\xbb\xbf"
BATCH = 500  # lines whose fields are objects at the same time
_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))


def valid(metric_value: str, metric_source: str) -> float | None:
    """Return the number of a row, None when it is not a valid metric: it has no source."""
    return finite(metric_value) if metric_source else None


def finite(field: str) -> float | None:
    """Return the finite number that a field holds, None where a hand has left none."""
    try:
        found = float(field)
    except ValueError:
        return None
    return found if isfinite(found) else None


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


def decode(line: bytes) -> list[str]:
    """Return the fields of a line, with or without its line end."""
    fields = line.removesuffix(b"\n").decode("utf-8", "replace").split("\t")
    return list(map(unescape, fields)) if b"\\" in line else fields


class Rows(Sequence[Row]):
    """Rows in the order of the file; they never change.

    A row of 33 fields is 2.5 KB of objects, and a campaign may have 10,000: they are made when they are asked for. What
    every verdict asks of all of them is kept by column, as one text: of a list of strings, a supervisor that inherits
    it would copy the memory of each one that it looks at.
    """

    __slots__ = ("_columns", "_distinct", "_parts")

    def __init__(self, parts: Sequence[_Part] = (), columns: Mapping[str, str] | None = None) -> None:
        self._parts = parts
        self._columns = columns or dict.fromkeys(HOT, "")
        self._distinct: dict[str, int] = {}  # asked before and after each run: a supervisor inherits the answer

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Rows:
        """Return these rows."""
        return Reader().take(b"".join(map(encode, rows)))

    def plus(self, part: _Part, columns: Mapping[str, str]) -> Rows:
        """Return these rows and those of a further part."""
        made = Rows([*self._parts, part], {name: self._columns[name] + columns[name] for name in HOT})
        if len(part.starts) == 1:  # one more row, usually
            for name, known in self._distinct.items():
                made._distinct[name] = known + (not self._written(name, columns[name]))
        return made

    def __len__(self) -> int:
        return sum(len(part.starts) for part in self._parts)

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> list[Row]: ...
    def __getitem__(self, at: int | slice) -> Row | list[Row]:
        if isinstance(at, slice):
            return [self[one] for one in range(*at.indices(len(self)))]
        left = at + len(self) if at < 0 else at
        for part in self._parts:
            if 0 <= left < len(part.starts):
                return part.row(part.starts[left])
            left -= len(part.starts)
        raise IndexError(at)

    def __iter__(self) -> Iterator[Row]:
        return chain.from_iterable(part.rows() for part in self._parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def column(self, name: str) -> list[str]:
        """Return one field of every row."""
        if name not in HOT:
            at = COLUMNS.index(name)
            lines = chain.from_iterable(part.lines() for part in self._parts)
            return [decode(raw.split(b"\t", at + 1)[at])[0] for raw in lines]
        text = self._columns[name]
        written = text.split("\n")[:-1]
        return list(map(unescape, written)) if "\\" in text else written

    def places(self, name: str, value: str) -> list[int]:
        """Return where one of the `HOT` fields has a value, in order."""
        return self._written(name, f"{escape(value)}\n")

    def _written(self, name: str, wanted: str) -> list[int]:
        """Return where a field is written so, with its line end."""
        text = self._columns[name]
        found: list[int] = []
        at, before, counted = text.find(wanted), 0, 0
        while at >= 0:
            if at == 0 or text[at - 1] == "\n":
                before, counted = before + text.count("\n", counted, at), at
                found.append(before)
            at = text.find(wanted, at + 1)
        return found

    def distinct(self, name: str) -> int:
        """Return how many values one of the `HOT` fields has."""
        if name not in self._distinct:
            self._distinct[name] = len(set(self._columns[name].split("\n")[:-1]))
        return self._distinct[name]

    def mentions(self, text: str) -> bool:
        """Return whether any field of any row holds a text without tabs or line ends."""
        return any(escape(text).encode() in part.data for part in self._parts)


class _Part(NamedTuple):
    """What was read at once, and where the lines of its rows begin in it."""

    data: bytes
    starts: list[int]

    def line(self, start: int) -> bytes:
        """Return the line that begins there."""
        return self.data[start : self.data.index(b"\n", start)]

    def row(self, start: int) -> Row:
        """Return the row whose line begins there."""
        return Row._make(decode(self.line(start)))

    def rows(self) -> Iterator[Row]:
        """Go through the rows, at half the price of asking for one after the other."""
        make = tuple.__new__  # what Row._make does, without its check
        return (make(Row, decode(raw)) for raw in self.lines())

    def lines(self) -> Iterator[bytes]:
        """Go through the lines of the rows, with their line ends."""
        starts, at = iter(self.starts), 0
        wanted = next(starts, -1)
        for raw in BytesIO(self.data):
            if at == wanted:
                yield raw
                wanted = next(starts, -1)
            at += len(raw)


def column(rows: Sequence[object], name: str) -> list[str]:
    """Return one field of every row, of a ledger's rows or of a list of anything that has it."""
    return rows.column(name) if isinstance(rows, Rows) else [getattr(row, name) for row in rows]


def places(rows: Sequence[object], name: str, value: str) -> list[int]:
    """Return where in `rows` one of the `HOT` fields has a value, in order."""
    if isinstance(rows, Rows):
        return rows.places(name, value)
    return [at for at, row in enumerate(rows) if getattr(row, name) == value]


def holding(rows: Sequence[object], name: str, text: str) -> list[int]:
    """Return where in `rows` a field holds a text without tabs or line ends, in order; quick where none does."""
    if isinstance(rows, Rows) and not rows.mentions(text):
        return []
    return [at for at, field in enumerate(column(rows, name)) if text in field]


def distinct(rows: Sequence[object], name: str) -> int:
    """Return how many values one of the `HOT` fields has."""
    return rows.distinct(name) if isinstance(rows, Rows) else len(set(column(rows, name)))


def values(rows: Sequence[Any], at: Iterable[int]) -> list[float | None]:
    """Return the valid metric of the rows at these places, None where one has none."""
    if isinstance(rows, Rows):
        texts, sources = rows.column("metric_value"), rows.column("metric_source")
        return [valid(texts[place], sources[place]) for place in at]
    return [rows[place].value for place in at]


class Reader:
    """Reads the lines of a ledger, in one go or as they come."""

    def __init__(self) -> None:
        self.rows = Rows()
        self.torn: list[int] = []  # numbers of lines that are not whole
        self.has_header = False  # the one that this version writes
        self.lines = 0
        self._other: list[str] = []  # the columns where the header is another one: an earlier version's
        self._edited = False  # its first line has the marks of an editor or a spreadsheet

    def take(self, data: bytes) -> Rows:
        """Read further whole lines; return all rows so far. What was returned before stays as it is.

        Raises:
            Refused: the header has columns that this version does not know: a rewrite would lose them.
        """
        data = self._as_written(data)
        if not self.lines:
            self._look_at_header(data[: data.find(b"\n") + 1])
        if self._other:
            data = self._converted(data)
        self.torn = self.torn.copy()
        starts: list[int] = []
        batch: list[tuple[bytes, ...]] = []
        columns: list[list[bytes]] = [[] for _ in HOT]
        at, width = 0, len(COLUMNS)
        for raw in BytesIO(data):
            self.lines += 1
            fields = raw.split(b"\t")
            if len(fields) == width and fields[0] != b"index":
                starts.append(at)
                batch.append(_HOT_FIELDS(fields))
                if len(batch) == BATCH:
                    _put(batch, columns)
            elif raw == HEADER:
                self.has_header = not self._edited
            elif raw != b"\n":
                self.torn.append(self.lines)
            at += len(raw)
        _put(batch, columns)
        texts = [b"".join(pieces).decode("utf-8", "replace") for pieces in columns]
        self.rows = self.rows.plus(_Part(data, starts), dict(zip(HOT, texts, strict=True)))
        return self.rows

    def cut_off(self, line: bytes) -> Row | None:
        """Return the row of a last line that lacks only its line end, None when it is not whole; it is not taken."""
        fields = decode(self._converted(line) if self._other else line)
        return Row._make(fields) if len(fields) == len(COLUMNS) and fields[0] != "index" else None

    def _as_written(self, data: bytes) -> bytes:
        """Return the lines without what editors add: a byte order mark, and carriage returns before the line ends."""
        returns = b"\r" in data  # one in a field is written as \\r. Two bytes would take ten times as long to look for
        if not self.lines:
            marked = data.startswith(BOM + b"index")
            data = data.removeprefix(BOM) if marked else data
            self._edited = marked or (returns and data.find(b"\r\n") == data.find(b"\n") - 1)
        return data.replace(b"\r\n", b"\n") if returns else data

    def _look_at_header(self, line: bytes) -> None:
        fields = decode(line)
        if tuple(fields) == COLUMNS or not set(FIXED) <= set(fields):
            return
        unknown = [name for name in fields if name not in COLUMNS]
        if unknown:
            raise Refused(
                "ledger",
                f"it has a column that this version does not know: {unknown[0]!r}",
                "use the version that wrote it, take the column out, or make ledger YES=1, which writes what git has",
            )
        self._other = fields

    def _converted(self, data: bytes) -> bytes:
        """Return lines that were written with other columns as this version writes them; what is no row stays torn."""
        out = []
        for raw in BytesIO(data):
            fields = decode(raw)
            if fields == self._other or raw == b"\n":
                out.append(b"\n")
            elif len(fields) == len(self._other):
                out.append(encode(Row(**dict(zip(self._other, fields, strict=True)))))
            else:
                out.append(b"torn\n")
        return b"".join(out)


def _put(batch: list[tuple[bytes, ...]], columns: list[list[bytes]]) -> None:
    """Add the fields of some rows to the columns, each with a line end, and forget the rows."""
    for pieces, fields in zip(columns, zip(*batch, strict=True), strict=False):
        pieces.append(b"\n".join((*fields, b"")))
    batch.clear()
