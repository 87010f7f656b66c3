"""Files of records: JSON lines, one JSON document, CSV and TSV."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Iterator

from autoresearch.errors import Usage
from autoresearch.metrics import Where, files, numbers
from autoresearch.metrics.aggregate import Found

STEP_KEYS = ("step", "global_step", "_step", "total_steps", "iteration", "iter", "epoch")
_EXTENSION = re.compile(r"(.+?\.(?:jsonl|ndjson|json|csv|tsv|txt|log)):(.+)", re.DOTALL)
_SEPARATORS = (",", "\t", ";")
LONGEST = 16 << 20  # bytes of a line that are still parsed


def split(kind: str, rest: str) -> tuple[str, str]:
    """`PATH:KEY` in its two parts; the first colon behind a known extension, else the first colon. Raises Usage."""
    match = _EXTENSION.fullmatch(rest)
    path, key = match.groups() if match else rest.partition(":")[::2]
    if not path or not key:
        raise Usage("METRIC", f"{kind}:{rest} needs a path and a key", f"write {kind}:PATH:KEY")
    return path, key


def look_up(record: object, key: str) -> object:
    """The value of a key: as it stands, else by its dotted path (`eval.loss`, `scores.0`); None where absent."""
    if isinstance(record, dict) and key in record:
        return record[key]
    head, dot, rest = key.partition(".")
    while dot:
        inner = record.get(head) if isinstance(record, dict) else _item(record, head)
        if inner is not None and (found := look_up(inner, rest)) is not None:
            return found
        more, dot, rest = rest.partition(".")
        head = f"{head}.{more}"
    return _item(record, key)


def _item(record: object, key: str) -> object:
    if isinstance(record, list) and re.fullmatch(r"-?[0-9]{1,9}", key, re.ASCII):
        index = int(key)
        return record[index] if -len(record) <= index < len(record) else None
    return None


def number(value: object) -> tuple[float | None, str]:
    """(the number that a parsed value is, or why it is none); truth values and units are no numbers."""
    if isinstance(value, bool) or value is None:
        return None, f"not a number: {json.dumps(value)}"
    if isinstance(value, int):
        try:
            return float(value), ""
        except OverflowError:
            return math.inf if value > 0 else -math.inf, ""
    if isinstance(value, float):
        return value, ""
    if isinstance(value, str):
        try:
            return numbers.strict(value.strip()), ""
        except ValueError:
            return None, f"not a number: {value[:40]!r}"
    return None, f"not a number: a {type(value).__name__}"


def _step(record: dict[str, object]) -> int | None:
    for key in STEP_KEYS:
        value = record.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
            return int(value)
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,15}(?:\.0*)?", value, re.ASCII):
            return int(float(value))
    return None


def collect(source: str, cells: Iterable[tuple[object, int | None]]) -> Found:
    """A source's values from its (parsed value, step) pairs."""
    values: list[float] = []
    steps: list[int | None] = []
    faults: list[tuple[int, str]] = []
    for value, step in cells:
        parsed, fault = number(value)
        if parsed is None:
            del faults[3:]
            faults.append((len(values), fault))
            continue
        values.append(parsed)
        steps.append(step)
    return Found(source, values, steps, faults=tuple(faults))


def find(kind: str, rest: str, where: Where) -> Found:
    """The values of `jsonl:PATH:KEY`, `json:PATH:KEY` or `csv:PATH:COLUMN`."""
    path, key = split(kind, rest)
    source = f"{kind} {path}:{key}"
    found_files = files.named(path, where)
    if not found_files:
        return Found(source, trouble=f"{path} is neither in the run's directory nor below its logs")
    # `version_0` and `version_1` are a run and its restart, `train` and `val` are not.
    if len({re.sub(r"[0-9]+", "", name) for name in found_files}) > 1:
        shown = ", ".join(os.path.relpath(name, os.path.commonpath(found_files)) for name in found_files[:6])
        return Found(source, trouble=f"several files: {shown}; write more of the path than {path}")
    file = found_files[-1]
    if not files.fresh(file, where.started_at):
        return Found(source, trouble=files.stale(file))
    if not os.path.isfile(file):
        return Found(source, trouble=f"cannot read {file}: it is no regular file")
    try:
        found = {"jsonl": _jsonl, "json": _json, "csv": _csv}[kind](file, key, source)
    except OSError as error:
        return Found(source, trouble=f"cannot read {file}: {error.strerror}")
    return found if found.values or found.faults or found.trouble else found._replace(trouble=f'no "{key}" in {path}')


def _jsonl(path: str, key: str, source: str) -> Found:
    # A line is parsed only when it can hold the key: its last part, or its ASCII-escaped form.
    parts = key.split(".")
    needles = {part.encode("utf-8", "surrogateescape") for part in (key, parts[-1])}
    needles.add(json.dumps(key)[1:-1].encode())
    if re.fullmatch("-?[0-9]+", parts[-1]):
        needles.add(parts[0].encode("utf-8", "surrogateescape"))

    def cells() -> Iterator[tuple[object, int | None]]:
        with open(path, "rb") as file:
            while line := file.readline(LONGEST):
                if not any(needle in line for needle in needles):
                    continue
                try:
                    record = json.loads(line)
                except (ValueError, RecursionError):
                    continue  # a torn line: its writer was killed or is still writing
                value = look_up(record, key)
                if value is not None:
                    yield value, _step(record) if isinstance(record, dict) else None

    return collect(source, cells())


def _json(path: str, key: str, source: str) -> Found:
    with open(path, "rb") as file:
        text = file.read()
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        hint = f"; for JSON lines write jsonl:{path}:{key}" if "Extra data" in str(error) else ""
        return Found(source, trouble=f"{path} is not whole JSON: {error}{hint}")
    value = look_up(document, key)
    if value is None:
        return Found(source)
    if isinstance(value, list):
        return collect(source, ((item, None) for item in value))
    if isinstance(value, dict) and value and all(re.fullmatch(r"[0-9]{1,15}", str(step), re.ASCII) for step in value):
        return collect(source, [(value[step], int(step)) for step in sorted(value, key=int)])
    return collect(source, [(value, _step(document) if isinstance(document, dict) else None)])


def _csv(path: str, column: str, source: str) -> Found:
    import csv

    csv.field_size_limit(LONGEST)
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
        head = file.readline(1 << 16)
        file.seek(0)
        separator = "\t" if path.endswith(".tsv") else max(_SEPARATORS, key=head.count)
        # A NUL byte (a hole left by a crash) would end the reading.
        reader = csv.reader((line.replace("\0", "") for line in file), delimiter=separator, skipinitialspace=True)
        try:
            heads = [cell.strip() for cell in next(reader, [])]
            if column not in heads:
                shown = ", ".join(heads[:12])
                return Found(source, trouble=f'no column "{column}" in {path}; it has {shown or "no header"}')
            if heads.count(column) > 1:
                return Found(source, trouble=f'several numbers: more than one column of {path} is called "{column}"')
            return collect(source, _csv_cells(reader, heads, column))
        except csv.Error as error:
            return Found(source, trouble=f"{path} is not CSV: {error}")


def _csv_cells(reader: Iterator[list[str]], heads: list[str], column: str) -> Iterator[tuple[object, int | None]]:
    index, steps = _columns(heads, column)
    for row in reader:
        cells = [cell.strip() for cell in row]
        if column in cells:  # a restart wrote its head again, perhaps with other columns
            heads = cells
            index, steps = _columns(heads, column)
            continue
        # Short rows are torn; Lightning leaves cells of metrics without a value at this step empty.
        if len(row) < len(heads) or not cells[index]:
            continue
        step = _step({key: cells[at] for key, at in steps})
        if any(cells[len(heads) :]):  # nobody knows which cell is below which head
            yield f"a row of {len(row)} cells below {len(heads)} heads", step
        else:
            yield cells[index], step


def _columns(heads: list[str], column: str) -> tuple[int, list[tuple[str, int]]]:
    return heads.index(column), [(key, heads.index(key)) for key in STEP_KEYS if key in heads]
