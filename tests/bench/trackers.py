"""A metric from the files of trackers: a million TensorBoard scalars, 50,000 rows of an offline W&B run."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable

from tests.bench import logs, measure, worlds
from tests.bench.measure import Cost
from tests.bench.results import Figure

SCALARS, ROWS = 1_000_000, 50_000
TAG = b"validation/accuracy"
PEERS = os.path.join(worlds.ROOT, ".venv.peers", "bin", "python")
# The official readers, as their documentation uses them.
ACCUMULATOR = """import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
events.Reload()
found = events.Scalars("validation/accuracy")
assert len(found) == int(sys.argv[2]), len(found)
"""
DATASTORE = """import json, sys
from wandb.proto import wandb_internal_pb2
from wandb.sdk.internal.datastore import DataStore
store = DataStore()
store.open_for_scan(sys.argv[1])
count = 0
while (data := store.scan_data()) is not None:
    record = wandb_internal_pb2.Record()
    record.ParseFromString(data)
    for item in record.history.item:
        if item.key == "accuracy":
            count += json.loads(item.value_json) is not None
assert count == int(sys.argv[2]), count
"""


def figures(place: str, count: int, peers: bool) -> list[Figure]:
    """Measure both readers; with `peers` beside the official ones."""
    env = worlds.environment(os.path.join(place, "home"))
    return [_tensorboard(place, env, count, peers), _wandb(place, env, count, peers)]


def _tensorboard(place: str, env: dict[str, str], count: int, peers: bool) -> Figure:
    measure.said(f"TensorBoard, {SCALARS} scalars")
    path = os.path.join(place, "events", "events.out.tfevents.1700000000.host.1.0")
    os.makedirs(os.path.dirname(path))
    write_events(path, SCALARS)
    ours = logs.reader("all", path, f"tensorboard:{TAG.decode()}", env, value_of(SCALARS - 1))
    return _beside(f"TensorBoard, {SCALARS:,} scalars of one tag", ours, path, ACCUMULATOR, SCALARS, env, count, peers)


def _wandb(place: str, env: dict[str, str], count: int, peers: bool) -> Figure:
    measure.said(f"W&B offline, {ROWS} rows")
    path = os.path.join(place, "offline", "run-20240101_000000-abcdefgh", "run-abcdefgh.wandb")
    os.makedirs(os.path.dirname(path))
    write_wandb(path, ROWS)
    ours = logs.reader("all", path, "wandb:accuracy", env, 0.5 + (ROWS - 1) / 1e6)
    return _beside(f"W&B offline, {ROWS:,} rows", ours, path, DATASTORE, ROWS, env, count, peers)


def _beside(
    name: str, ours: Callable[[], Cost], path: str, script: str, size: int, env: dict[str, str], count: int, peers: bool
) -> Figure:
    official, theirs = peers and os.path.exists(PEERS), None
    mine = measure.turns({"ours": ours}, count)["ours"]
    if official:  # once: it takes half a minute
        theirs = measure.command([PEERS, "-c", script, path, str(size)], env).wall_s * 1000
    is_scalars = script is ACCUMULATOR
    return Figure(
        name,
        mine.wall_ms,
        yardstick="official reader" if official else "",
        theirs=theirs,
        limit=theirs / 10 if theirs and is_scalars else None,
        budget="0.1 x" if is_scalars and theirs else "",
        cpu_ms=mine.cpu_ms,
        best=mine.best_ms,
        note=f"{mine.peak_mib:.0f} MiB",
    )


def value_of(number: int) -> float:
    """Return the scalar of a step: what single precision keeps of it."""
    return float(struct.unpack("<f", struct.pack("<f", 0.5 + number / 4e6))[0])


def _table() -> list[int]:
    """CRC-32C (Castagnoli), byte by byte."""
    found = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        found.append(byte)
    return found


_CRC = _table()


def _crc(data: bytes, state: int = 0xFFFFFFFF) -> int:
    for byte in data:
        state = _CRC[(state ^ byte) & 0xFF] ^ state >> 8
    return state


def _masked(state: int) -> bytes:
    """Return a checksum as TFRecord writes it."""
    crc = state ^ 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def write_events(path: str, count: int) -> None:
    """Write an event file of `count` scalars of one tag, with its checksums; steps count from 100,000."""
    start = b"\x09" + struct.pack("<d", 1700000000.0) + b"\x10"
    value = b"\x0a" + bytes([len(TAG)]) + TAG + b"\x15"
    summary = b"\x2a" + bytes([len(value) + 6]) + b"\x0a" + bytes([len(value) + 4]) + value
    after_start = _crc(start)
    length = struct.pack("<Q", len(start) + 3 + len(summary) + 4)
    head = length + _masked(_crc(length))
    version = b"\x09" + struct.pack("<d", 1700000000.0) + b"\x1a\x0dbrain.Event:2"
    size = struct.pack("<Q", len(version))
    with open(path, "wb", buffering=1 << 20) as file:
        file.write(size + _masked(_crc(size)) + version + _masked(_crc(version)))
        for number in range(count):
            step = 100_000 + number
            rest = bytes([step & 127 | 128, step >> 7 & 127 | 128, step >> 14]) + summary
            rest += struct.pack("<f", 0.5 + number / 4e6)
            file.write(head + start + rest + _masked(_crc(rest, after_start)))


def _field(number: int, data: bytes) -> bytes:
    return (
        bytes([number << 3 & 127 | 2 | (128 if number > 15 else 0)])
        + (b"\x01" if number > 15 else b"")
        + _size(len(data))
        + data
    )


def _size(number: int) -> bytes:
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def write_wandb(path: str, count: int) -> None:
    """Write an offline run's file: `count` rows of history with three keys each."""
    with open(path, "wb", buffering=1 << 20) as file:
        file.write(b":W&B" + struct.pack("<HB", 0xBEE1, 0))
        place = 7
        for number in range(count):
            items = (("_step", number), ("accuracy", 0.5 + number / 1e6), ("loss", 2.0 - number / 1e6))
            row = b"".join(
                _field(1, _field(1, key.encode()) + _field(16, repr(value).encode())) for key, value in items
            )
            data = _field(2, row + _field(2, b"\x08" + _size(number)))
            place = _chunks(file.write, data, place)


def _chunks(write: Callable[[bytes], object], data: bytes, place: int) -> int:
    """Write one record as LevelDB's log does; returns the place behind it in its block of 32 KiB."""
    first = True
    while data or first:
        room = 32768 - place
        if room < 7:
            write(b"\0" * room)
            place, room = 0, 32768
        part, data = data[: room - 7], data[room - 7 :]
        kind = (1 if first else 4) if not data else (2 if first else 3)
        crc = zlib.crc32(part, zlib.crc32(bytes([kind])))
        write(struct.pack("<IHB", crc, len(part), kind) + part)
        place, first = place + 7 + len(part), False
    return place
