"""Metrics from W&B's offline `.wandb` files, without W&B and without network.

The file is a LevelDB log: a header of 7 bytes (`:W&B`, 0xBEE1, version), then blocks of 32 KiB that hold chunks of
checksum (4), length (2), type (1: whole, 2: first, 3: middle, 4: last) and data. The chunks of a record join to one
protobuf Record, of which field 2 is a row of the history. It grows by whole blocks: of a run that was killed the last
rows are missing.
"""

from __future__ import annotations

import itertools
import json
import os
import struct
from collections.abc import Iterator

from autoresearch.metrics import Where, files, rows
from autoresearch.metrics.aggregate import Found
from autoresearch.metrics.tensorboard import Malformed, fields, signed

BLOCK = 32768
_HEADER = struct.Struct("<HB").unpack_from


def records(path: str) -> Iterator[bytes]:
    """The records of a `.wandb` file up to where it is cut or damaged; raises OSError, ValueError for another file."""
    with open(path, "rb") as file:
        block = file.read(BLOCK)
        if block[:4] != b":W&B" or len(block) < 7:
            raise ValueError("not a .wandb file")
        at = 7
        parts: list[bytes] = []
        while block:
            while at + 7 <= len(block):
                length, kind = _HEADER(block, at + 4)
                if kind == 0 and length == 0:
                    break  # the rest of the block is padding
                chunk = block[at + 7 : at + 7 + length]
                if len(chunk) < length or kind > 4:
                    return
                at += 7 + length
                if kind in (1, 2):
                    parts = []
                parts.append(chunk)
                if kind in (1, 4):
                    yield parts[0] if kind == 1 else b"".join(parts)
                    parts = []
            block, at = file.read(BLOCK), 0


def _item(data: bytes, low: int, high: int) -> tuple[str, object]:
    """Key and value of one history item; nested keys come as `a.b`."""
    key, nested, value = "", [], None
    for number, wire, start, end in fields(data, low, high):
        if number == 1 and wire == 2:
            key = data[start:end].decode("utf-8", "replace")
        elif number == 2 and wire == 2:
            nested.append(data[start:end].decode("utf-8", "replace"))
        elif number in (8, 16) and wire == 2:
            try:
                value = json.loads(data[start:end])
            except (ValueError, RecursionError):
                value = None
        elif number == 5 and wire == 0:
            value = (start >> 1) ^ -(start & 1)
        elif number == 6 and wire == 1:
            value = struct.unpack_from("<d", data, start)[0]
        elif number == 7 and wire == 2:
            value = data[start:end].decode("utf-8", "replace")
    return ".".join(nested) if nested else key, value


def _row(data: bytes, low: int, high: int) -> tuple[dict[str, object], int | None]:
    row: dict[str, object] = {}
    step = None
    for number, wire, start, end in fields(data, low, high):
        if number == 1 and wire == 2:
            key, value = _item(data, start, end)
            row[key] = value
        elif number == 2 and wire == 2:
            for inner, kind, at, _ in fields(data, start, end):
                if inner == 1 and kind == 0:
                    step = signed(at)
    if step is None and isinstance(row.get("_step"), int):
        step = row["_step"]  # type: ignore[assignment]
    return row, step


def history(path: str, key: str) -> Iterator[tuple[object, int | None]]:
    """(value, step) of a key over the history rows that have it; raises OSError, ValueError."""
    needle = key.rpartition(".")[2].encode("utf-8", "surrogateescape")
    for data in records(path):
        if data.find(needle) < 0:
            continue
        try:
            for number, wire, start, end in fields(data, 0, len(data)):
                if number == 2 and wire == 2:
                    row, step = _row(data, start, end)
                    value = rows.look_up(row, key)
                    if value is not None:
                        yield value, step
        except (Malformed, IndexError, struct.error):
            continue


def _keys(path: str) -> list[str]:
    """The keys of the first rows of a run's history."""
    keys: dict[str, None] = {}
    try:
        for data in itertools.islice(records(path), 200):
            for number, wire, start, end in fields(data, 0, len(data)):
                if number == 2 and wire == 2:
                    keys.update(dict.fromkeys(name for name in _row(data, start, end)[0] if not name.startswith("_")))
    except (OSError, ValueError, IndexError, struct.error):
        pass
    return list(keys)


def roots(where: Where) -> list[str]:
    """Where offline runs are looked for: W&B's directory beside the artifacts, the logs, the tree."""
    beside = os.path.join(os.path.dirname(where.artifacts), "wandb") if where.artifacts else ""
    return [where.logs, beside, where.artifacts, where.tree]


def find(key: str, where: Where) -> Found:
    """The history of `key` in the newest offline run that has it."""
    source = f"wandb {key}"
    now, old = files.search(roots(where), where.started_at, ("*.wandb",))
    for path in reversed(now):
        try:
            found = rows.collect(f"{source} in {os.path.basename(path)}", history(path, key))
        except (OSError, ValueError):
            continue
        if found.values or found.faults:
            return found
    if now:
        some = ", ".join(_keys(now[-1])[:8])
        return Found(
            source, trouble=f'no "{key}" in the history of {os.path.basename(now[-1])}; it has {some or "no rows"}'
        )
    return Found(source, trouble=files.stale(old[-1]) if old else "no offline W&B run (run-*.wandb) of this attempt")
