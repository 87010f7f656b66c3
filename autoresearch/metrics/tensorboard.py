"""Scalars from TensorBoard event files, by an own reader of the format.

A file is a chain of records: length (8 bytes, little endian), its checksum (4), an Event message, its checksum (4).
An Event has wall_time (field 1, double), step (2, varint) and a Summary (5) of Values: tag (1), simple_value (2,
float) or tensor (8). The checksums are not verified: the length chain and the message must fit instead. A record cut
short ends its file: it is still being written, or its writer was killed.
"""

from __future__ import annotations

import itertools
import os
import struct
from array import array
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from autoresearch.metrics import Where, files
from autoresearch.metrics.aggregate import Found

PATTERNS = ("*tfevents*",)
PIECE = 8 << 20
_LENGTH = struct.Struct("<Q").unpack_from
_NUMBERS = {1: ("<f", 4), 2: ("<d", 8), 3: ("<i", 4), 9: ("<q", 8)}  # DataType -> format of tensor_content
_MAX_RECORD = 1 << 30


class Series(NamedTuple):
    """One tag's curve in the order written; `single` when every value came from single precision."""

    steps: array[int]
    values: array[float]
    single: bool


class Malformed(ValueError):
    """A message that is not protobuf."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A protobuf varint at `at`: (value, index behind it); IndexError or Malformed when it is cut or endless."""
    result = shift = 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift > 63:
            raise Malformed("varint")


def fields(data: bytes, low: int, high: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields of a protobuf message in `[low, high)`.

    Yields:
        (number, wire type, value or start, end): the value itself for varints, else where its bytes begin and end.

    Raises:
        Malformed: when a field does not fit.
    """
    while low < high:
        key, low = varint(data, low)
        kind = key & 7
        if kind == 0:
            value, low = varint(data, low)
            yield key >> 3, kind, value, low
            continue
        if kind == 2:
            size, low = varint(data, low)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise Malformed(f"wire type {kind}")
        if low + size > high:
            raise Malformed("length")
        yield key >> 3, kind, low, low + size
        low += size


def signed(value: int) -> int:
    """A varint as int64."""
    return value - (1 << 64) if value >> 63 else value


def records(path: str) -> Iterator[tuple[bytes, int, int]]:
    """The records of an event file: (bytes, start, end), in pieces so that a big file costs little memory."""
    with open(path, "rb", buffering=0) as file:
        data, at = b"", 0
        while True:
            size = len(data)
            while at + 12 <= size:
                length = _LENGTH(data, at)[0]
                end = at + 16 + length
                if end > size:
                    break
                yield data, at + 12, end - 4
                at = end
            missing = _LENGTH(data, at)[0] + 16 if at + 12 <= size else 0
            if missing > _MAX_RECORD:
                return
            more = file.read(max(PIECE, missing))
            if not more:
                return
            data, at = data[at:] + more, 0


def _tensor(data: bytes, low: int, high: int) -> tuple[float, bool] | None:
    """A tensor of one number: (value, whether it is single precision)."""
    kind, value = 0, None
    for number, wire, start, end in fields(data, low, high):
        if number == 1 and wire == 0:
            kind = start
        elif number == 4 and wire == 2 and kind in _NUMBERS and end - start == _NUMBERS[kind][1]:
            value = struct.unpack_from(_NUMBERS[kind][0], data, start)[0]
        elif number == 5 and end - start == 4:
            value = struct.unpack_from("<f", data, start)[0]
        elif number == 6 and end - start == 8:
            value = struct.unpack_from("<d", data, start)[0]
        elif number in (7, 10):
            value = signed(start if wire == 0 else varint(data, start)[0])
    return None if value is None else (float(value), kind in (0, 1))


def event(data: bytes, low: int, high: int) -> Iterator[tuple[bytes, int, float, bool]]:
    """The scalars of one Event: (tag, step, value, single precision)."""
    step, summaries = 0, []
    for number, wire, start, end in fields(data, low, high):
        if number == 2 and wire == 0:
            step = signed(start)
        elif number == 5 and wire == 2:
            summaries.append((start, end))
    for summary in summaries:
        for number, wire, start, end in fields(data, *summary):
            if number != 1 or wire != 2:
                continue
            tag, scalar = b"", None
            for inner, kind, at, stop in fields(data, start, end):
                if inner == 1 and kind == 2:
                    tag = data[at:stop]
                elif inner == 2 and kind == 5:
                    scalar = (struct.unpack_from("<f", data, at)[0], True)
                elif inner == 8 and kind == 2:
                    scalar = _tensor(data, at, stop)
            if scalar is not None:
                yield tag, step, scalar[0], scalar[1]


def read(path: str, tag: str) -> Series:
    """One tag's curve in one event file; what is malformed is left out, a cut end ends it. Raises OSError."""
    wanted = tag.encode("utf-8", "surrogateescape")
    steps, values, single = array("q"), array("d"), True
    length, layout = -1, _NO_LAYOUT
    unpack, frame, middle, tail = layout
    for data, low, high in records(path):
        # Most records of a tag have the layout of the one before: one unpack instead of a walk through the message.
        if high - low == length:
            lead, mark, raw, between, value, rest = unpack(data, low)
            packed = int.from_bytes(raw, "little")
            if between == middle and rest == tail and lead == 9 and mark == 16 and packed & 0x80808080 == frame:
                # Seven bits of each byte, the continuation bits taken out.
                steps.append(packed & 127 | packed >> 1 & 0x3F80 | packed >> 2 & 0x1FC000 | packed >> 3 & 0xFE00000)
                values.append(value)
                continue
        if data.find(wanted, low, high) < 0:
            continue
        try:
            found = [row for row in event(data, low, high) if row[0] == wanted]
        except (Malformed, IndexError, struct.error):
            continue
        for _, number, scalar, narrow in found:
            steps.append(number)
            values.append(scalar)
            single = single and narrow
        if len(found) == 1 and (learned := _layout(data, low, high)) is not None:
            length = high - low
            unpack, frame, middle, tail = learned
    return Series(steps, values, single)


_Layout = tuple[Callable[[bytes, int], tuple[Any, ...]], int, bytes, bytes]
_NO_LAYOUT: _Layout = (struct.Struct("").unpack_from, 0, b"", b"")


def _layout(data: bytes, low: int, high: int) -> _Layout | None:
    """The layout of a record `wall_time step{1..4 bytes} Summary{Value{tag simple_value}}`, else None."""
    outer = list(fields(data, low, high))
    if [(number, wire) for number, wire, _, _ in outer] != [(1, 1), (2, 0), (5, 2)] or outer[0][2] != low + 1:
        return None
    step, width = low + 10, outer[1][3] - (low + 10)
    inner = list(fields(data, outer[2][2], outer[2][3]))
    if width > 4 or len(inner) != 1 or inner[0][:2] != (1, 2):
        return None
    scalars = [start for number, wire, start, _ in fields(data, inner[0][2], inner[0][3]) if (number, wire) == (2, 5)]
    if len(scalars) != 1 or any(field[0] == 8 for field in fields(data, inner[0][2], inner[0][3])):
        return None
    begin, end = step + width, scalars[0]
    unpack = struct.Struct(f"<B8xB{width}s{end - begin}sf{high - end - 4}s").unpack_from
    frame = int.from_bytes(b"\x80" * (width - 1) + b"\0", "little")
    return unpack, frame, data[begin:end], data[end + 4 : high]


def scan(path: str, part: bytes) -> Iterator[tuple[str, int, float]]:
    """(tag, step, value) of every scalar whose record holds the bytes `part`, in one pass. Raises OSError."""
    for data, low, high in records(path):
        if data.find(part, low, high) < 0:
            continue
        try:
            for tag, step, value, _ in event(data, low, high):
                yield tag.decode("utf-8", "replace"), step, value
        except (Malformed, IndexError, struct.error):
            continue


def tags(path: str) -> dict[str, None]:
    """The scalar tags of an event file, in order of appearance; empty when it cannot be read."""
    seen: dict[bytes, None] = {}
    known: dict[int, list[tuple[int, int, bytes]]] = {}  # record length -> where a tag stood in one of that length
    try:
        for data, low, high in records(path):
            places = known.setdefault(high - low, [])
            if any(data[low + begin : low + end] == tag for begin, end, tag in places):
                continue
            try:
                found = list(event(data, low, high))
            except (Malformed, IndexError, struct.error):
                continue
            for tag, _, _, _ in found:
                seen.setdefault(tag)
            if len(found) == 1 and found[0][0]:
                begin = data.find(found[0][0], low, high) - low
                places.append((begin, begin + len(found[0][0]), found[0][0]))
    except OSError:
        pass
    return {tag.decode("utf-8", "replace"): None for tag in seen}


def merged(paths: list[str], tag: str) -> Series:
    """One tag's curve over several files, oldest first: where a restarted run wrote a step again, the later wins."""
    total = Series(array("q"), array("d"), True)
    for path in paths:
        try:
            part = read(path, tag)
        except OSError:
            continue
        if not part.steps:
            continue
        if total.steps:
            again = set(part.steps)
            kept = [index for index, step in enumerate(total.steps) if step not in again]
            steps, values = (array("q", (total.steps[i] for i in kept)), array("d", (total.values[i] for i in kept)))
            total = Series(steps + part.steps, values + part.values, total.single and part.single)
        else:
            total = part
    return total


def curve(paths: list[str], tag: str) -> Found | None:
    """One tag's curve over the event files of an attempt; None where none of them has it.

    A directory is a run. Runs one after the other are a run and its restarts; of several that went on at the same
    time (`train` and `validation`, one a rank) none is the one that is meant, unless the tag names it: `RUN/TAG`.
    """
    runs: dict[str, list[str]] = {}
    for path in paths:
        runs.setdefault(os.path.dirname(path), []).append(path)
    held = {run: series for run, of_run in runs.items() if (series := merged(of_run, tag)).values}
    if len(held) > 1 and _at_once([runs[run] for run in held]):
        common = os.path.commonpath(list(held))
        names = sorted(os.path.basename(run) if run == common else os.path.relpath(run, common) for run in held)
        shown = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
        why = f'several runs: "{tag}" is in {shown} at the same time; write tensorboard:{names[-1]}/{tag} for that one'
        return Found(f"tensorboard {tag}", faults=((0, why),))
    if held:
        series = merged(paths, tag) if len(held) > 1 else next(iter(held.values()))
        return Found(f"tensorboard {tag}", series.values, series.steps, single=series.single)
    for at in (index for index, letter in enumerate(tag) if letter == "/"):
        of_run = [path for path in paths if os.path.dirname(path).endswith(os.sep + tag[:at])]
        if of_run and (found := curve(of_run, tag[at + 1 :])) is not None:
            return found._replace(source=f"tensorboard {tag}")
    return None


def _at_once(runs: list[list[str]]) -> bool:
    """Whether any two of the runs wrote at the same time, by the times in their event files."""
    spans = []
    for paths in runs:
        times = [
            struct.unpack_from("<d", data, low + 1)[0]
            for path in paths
            for data, low, high in records(path)
            if high - low > 8 and data[low] == 9
        ]
        spans.append((min(times, default=0.0), max(times, default=0.0)))
    return any(begun < ended for (_, ended), (begun, _) in itertools.pairwise(sorted(spans)))


def roots(where: Where) -> list[str]:
    """Where event files are looked for, the attempt's logs first."""
    return [where.logs, where.artifacts, where.tree]


def find(tag: str, where: Where, *, everywhere: bool = True) -> Found:
    """The curve of the scalar `tag` in the event files of an attempt.

    Args:
        tag: the tag, exactly.
        where: the attempt.
        everywhere: look also in the artifacts and the tree when the logs hold no event file.
    """
    places = roots(where) if everywhere else [where.logs]
    now, old = files.search(places, where.started_at, PATTERNS)
    source = f"tensorboard {tag}"
    if not now:
        trouble = files.stale(old[-1]) if old else f"no TensorBoard event file below {places[0]}"
        return Found(source, trouble=trouble)
    found = curve(now, tag)
    if found is not None:
        return found
    known = list(dict.fromkeys(name for path in now for name in tags(path)))
    some = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
    shut = next((path for path in now if not os.access(path, os.R_OK)), "")
    if shut and not known:
        return Found(source, trouble=f"cannot read {shut}: Permission denied")
    return Found(source, trouble=f'no scalar "{tag}" in TensorBoard; it has {some or "no scalars"}')
