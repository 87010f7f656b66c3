"""The state of an attempt from its reservation until its row is written; what recovery reads after a kill -9.

One file an attempt below the campaign's `.state`. It has two slots of a fixed size, each a line with a counter and a
checksum and a line of JSON, padded. An update overwrites the older slot in place: it needs no room, so that the
finished row can be kept when the disk is full, and a kill or a power cut in mid-write leaves the state before it.
"""

from __future__ import annotations

import json
import os
from binascii import crc32
from typing import NamedTuple

from autoresearch import files, names, paths

_SLOT = 12 * 1024  # at least; and four times the first state, which grows by its row


class State(NamedTuple):
    """One attempt under way. Times are epoch seconds; commits are 40 hex."""

    experiment: str
    attempt: int
    smoke: bool
    phase: str  # reserved, launched, ended, concluded
    branch: str
    commit: str
    parent_commit: str
    parent: str  # the experiment the parent commit belongs to; empty for a bare commit
    description: str
    argv: list[str]
    tree: str
    overrides: list[str]
    lines_delta: int | None  # added minus removed lines of the change; None when there is none to count
    cap_s: float | None
    reserved_at: float
    client: str  # identity of the process that reserved it; it has no supervisor before that process started one
    lock: str  # file name of the lock that the supervisor of this attempt holds
    notes: list[str] = []  # what the row's reason has to say besides the verdict
    role: str = "idea"  # idea, repeat, confirm
    more: int = 0  # repeats that follow this one
    confirms: str = ""  # id of the attempt that this run is to confirm
    job_id: str = ""
    mark: str = ""  # what every process of a local run carries, see processes
    started_at: float = 0.0
    waited: str = ""  # what it waits for, for status
    links: dict[str, str] = {}  # variables that hold short socket links, e.g. RAY_TMPDIR
    command: str = ""  # what the row says of the command; the submitted script for remote engines
    seed: int = 0
    outcome: dict[str, object] = {}
    measured: dict[str, object] = {}  # what was read from its traces, before the tree went back
    row: list[str] = []
    book: str = ""  # the ledger that row belongs to, once it is made

    @property
    def id(self) -> str:
        """`NAME`, `NAME.n` or `NAME.smoke-n`."""
        return names.attempt_id(self.experiment, self.attempt, self.smoke)


def path(where: paths.Campaign, attempt_id: str) -> str:
    """Return the state file of an attempt."""
    return os.path.join(where.state, f"{attempt_id}.json")


def stop_file(where: paths.Campaign, attempt_id: str) -> str:
    """Return the file whose presence asks the attempt to end."""
    return os.path.join(where.state, f"{attempt_id}.stop")


def lock_file(where: paths.Campaign, state: State) -> str:
    """Return the lock whose holder supervises this attempt."""
    return os.path.join(where.state, state.lock)


def forget_lock(where: paths.Campaign, name: str) -> None:
    """Remove a lock file at the end of its chain of runs; whoever holds it still holds it."""
    try:
        os.unlink(os.path.join(where.state, name))
    except FileNotFoundError:
        pass


def create(where: paths.Campaign, state: State) -> None:
    """Write the state of a new attempt; durable when it returns."""
    _replace(path(where, state.id), json.dumps(state._asdict()).encode(), 1)


def update(where: paths.Campaign, state: State) -> State:
    """Overwrite the state in place (no new disk block is needed) and return it.

    Raises:
        FileNotFoundError: the attempt is over.
    """
    data, file = json.dumps(state._asdict()).encode(), path(where, state.id)
    fd = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    try:
        held = os.pread(fd, os.fstat(fd).st_size, 0)
        size = len(held) // 2
        known = [_slot(held[:size])[0], _slot(held[size:])[0]]
        block = _encode(data, max(known) + 1)
        if len(block) <= size:
            os.pwrite(fd, block.ljust(size), size if known[0] > known[1] else 0)
            os.fsync(fd)
    finally:
        os.close(fd)
    if len(block) > size:
        _replace(file, data, max(known) + 1)
    return state


def _replace(file: str, data: bytes, count: int) -> None:
    size = max(_SLOT, len(data) * 4)
    files.replace(file, _encode(data, count).ljust(size) + b" " * size)


def _encode(data: bytes, count: int) -> bytes:
    return b"%d %08x\n%s\n" % (count, crc32(data), data)


def _slot(block: bytes) -> tuple[int, bytes]:
    """Return counter and JSON of a slot, (0, nothing) when it is empty or was torn."""
    head, _, rest = block.partition(b"\n")
    data = rest.partition(b"\n")[0]
    count, _, check = head.partition(b" ")
    return (int(count), data) if data and check == b"%08x" % crc32(data) and count.isdigit() else (0, b"")


def remove(where: paths.Campaign, state: State) -> None:
    """Forget an attempt whose row is written."""
    for file in (stop_file(where, state.id), path(where, state.id)):
        try:
            os.unlink(file)
        except FileNotFoundError:
            pass


def every(where: paths.Campaign) -> list[State]:
    """Return the attempts that have no finished record yet, oldest reservation first."""
    try:
        found = [entry for entry in os.listdir(where.state) if entry.endswith(".json") and entry[0] != "."]
    except FileNotFoundError:
        return []
    states = [state for entry in found if (state := read(os.path.join(where.state, entry)))]
    return sorted(states, key=lambda state: state.reserved_at)


def read(file: str) -> State | None:
    """Return the state in a file; None when it is gone or was never whole."""
    try:
        with open(file, "rb") as handle:
            held = handle.read()
        size = len(held) // 2
        return State(**json.loads(max(_slot(held[:size]), _slot(held[size:]))[1]))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def is_supervised(where: paths.Campaign, state: State) -> bool:
    """Return whether a supervisor of ours is alive for this attempt."""
    return files.is_locked(lock_file(where, state))
