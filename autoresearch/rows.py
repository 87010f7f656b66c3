"""The rows of a ledger: their columns, how a field is written, and many rows at the price of what is asked of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
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


COLUMNS = Row._fields
FIXED = COLUMNS[:15]  # for people and tools that know the format; a ledger of any version has them
HEADER = ("\t".join(COLUMNS) + "\n").encode()
# What the rules ask of every row before each launch; all else is read from the rows that are wanted.
HOT = ("index", "commit", "metric_value", "status", "experiment", "attempt", "metric_source")
_HOT_FIELDS = itemgetter(*map(COLUMNS.index, HOT))
_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))


def valid(metric_value: str, metric_source: str) -> float | None:
    """Return the number of a row, None when it is not a valid metric: it has no source."""
    if not metric_source:
        return None
    try:
        return float(metric_value)
    except ValueError:
        return None


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
    """Rows in the order of the file; it never changes.

    A row of 32 fields is 2.5 KB of objects, and a campaign may have 10,000: they are made when they are asked for, and
    what every verdict asks of all of them is kept by column. A supervisor that inherits them touches little of it.
    """

    __slots__ = ("_columns", "_places")

    def __init__(self) -> None:
        self._places: list[tuple[bytes, int]] = []  # of each row: what was read, and where its line begins in it
        self._columns: dict[str, list[str]] = {name: [] for name in HOT}

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Rows:
        """Return these rows."""
        return Reader().take(b"".join(map(encode, rows)))

    def copy(self) -> Rows:
        """Return the same rows, to be added to."""
        made = Rows()
        made._places = self._places.copy()
        made._columns = {name: self._columns[name].copy() for name in HOT}
        return made

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> list[Row]: ...
    def __getitem__(self, at: int | slice) -> Row | list[Row]:
        found = self._places[at]
        return [_row(place) for place in found] if isinstance(found, list) else _row(found)

    def __iter__(self) -> Iterator[Row]:
        return map(_row, self._places)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def column(self, name: str) -> list[str]:
        """Return one field of every row; not to be changed."""
        if name not in self._columns:
            at = COLUMNS.index(name)
            self._columns[name] = [decode(_line(place))[at] for place in self._places]
        return self._columns[name]


def _line(place: tuple[bytes, int]) -> bytes:
    data, start = place
    return data[start : data.index(b"\n", start)]


def _row(place: tuple[bytes, int]) -> Row:
    return Row._make(decode(_line(place)))


def column(rows: Sequence[object], name: str) -> Sequence[str]:
    """Return one field of every row, of a ledger's rows or of a list of anything that has it."""
    return rows.column(name) if isinstance(rows, Rows) else [getattr(row, name) for row in rows]


def places(rows: Sequence[object], name: str, value: str) -> list[int]:
    """Return where in `rows` a column has this value, in order."""
    values, found, at = column(rows, name), [], -1
    try:
        while True:
            at = values.index(value, at + 1)
            found.append(at)
    except ValueError:
        return found


def values(rows: Sequence[Any]) -> list[float | None]:
    """Return the valid metric of every row, None where it has none."""
    if isinstance(rows, Rows):
        return list(map(valid, rows.column("metric_value"), rows.column("metric_source")))
    return [row.value for row in rows]


class Reader:
    """Reads the lines of a ledger, in one go or as they come."""

    def __init__(self) -> None:
        self.rows = Rows()
        self.torn: list[int] = []  # numbers of lines that are not whole
        self.has_header = False  # the one that this version writes
        self.lines = 0
        self._other: list[str] = []  # the columns where the header is another one: an earlier version's

    def take(self, data: bytes) -> Rows:
        """Read further whole lines; return all rows so far. What was returned before stays as it is.

        Raises:
            Refused: the header has columns that this version does not know: a rewrite would lose them.
        """
        rows, torn = self.rows.copy(), self.torn.copy()
        at, width, escaped = 0, len(COLUMNS), b"\\" in data
        hot: list[tuple[str, ...]] = []
        keep, add = rows._places.append, hot.append
        for raw in BytesIO(data):
            self.lines += 1
            fields = raw[:-1].decode("utf-8", "replace").split("\t")
            if len(fields) == width and fields[0] != "index" and not self._other:
                if escaped and b"\\" in raw:
                    fields = list(map(unescape, fields))
                keep((data, at))
                add(_HOT_FIELDS(fields))
            elif fields[0] == "index" and set(FIXED) <= set(fields):
                self._header(fields)
            elif self._other and len(fields) == len(self._other):
                row = Row(**dict(zip(self._other, map(unescape, fields), strict=True)))
                keep((encode(row), 0))
                add(_HOT_FIELDS(row))
            elif raw != b"\n":
                torn.append(self.lines)
            at += len(raw)
        for name, values in zip(HOT, zip(*hot, strict=True), strict=bool(hot)):
            rows._columns[name].extend(values)
        self.rows, self.torn = rows, torn
        return rows

    def _header(self, fields: list[str]) -> None:
        unknown = [name for name in fields if name not in COLUMNS]
        if unknown:
            raise Refused(
                "ledger",
                f"it has a column that this version does not know: {unknown[0]!r}",
                "use the version that wrote it, or take the column out of results.tsv",
            )
        self.has_header = tuple(fields) == COLUMNS
        self._other = [] if self.has_header else fields
