"""The state of an attempt from its reservation until its row is written; what recovery reads after a kill -9.

One file an attempt below the campaign's `.state`. It has two slots of a fixed size, each a line with a counter and a
checksum and a line of JSON, padded. An update overwrites the older slot in place: it needs no room, so that the
finished row can be kept when the disk is full, and a kill or a power cut in mid-write leaves the state before it.
"""

from __future__ import annotations

import json
import os
import time
from binascii import crc32
from typing import NamedTuple

from autoresearch import files, names, paths

_SLOT = 12 * 1024  # at least; and four times the first state, which grows by its row
WITHDRAWN = "withdrawn"


class State(NamedTuple):
    """One attempt under way. Times are epoch seconds; commits are 40 hex."""

    experiment: str
    attempt: int
    smoke: bool
    phase: str  # reserved, launched, ended, concluded; or WITHDRAWN
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
    pairs: int = 0  # fresh pairs that decide a gain: CONFIRM of the plan or of the call
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

    @property
    def idea(self) -> str:
        """The experiment whose verdict this run is for: its own, or the one that it confirms."""
        return idea_of(self.experiment, self.role, self.confirms)

    @property
    def refusal(self) -> str:
        """Why it was withdrawn: what ended its waiting."""
        return self.waited.removeprefix("autoresearch: ")

    @property
    def is_first(self) -> bool:
        """Whether its chain of runs begins with this one."""
        return self.lock == chain_lock(self.id)

    @property
    def is_open(self) -> bool:
        """Whether the verdict of an earlier run waits for this one: it confirms, or is a later run of its chain."""
        return self.role == "confirm" or not self.is_first


def idea_of(experiment: str, role: str, confirms: str) -> str:
    """Return the experiment whose verdict a run is for: its own, or the one of the attempt that it confirms."""
    return names.experiment_of(confirms) if role == "confirm" else experiment


def chain_lock(attempt_id: str) -> str:
    """Return the file name of the lock of a chain of runs, which bears the name of its first."""
    return f"{attempt_id}.lock"


def path(where: paths.Campaign, attempt_id: str) -> str:
    """Return the state file of an attempt."""
    return os.path.join(where.state, f"{attempt_id}.json")


def stop_file(where: paths.Campaign, attempt_id: str) -> str:
    """Return the file whose presence asks the attempt to end."""
    return os.path.join(where.state, f"{attempt_id}.stop")


def stop_asked(where: paths.Campaign, state: State) -> bool:
    """Return whether somebody asked the attempt to end, or its chain of runs, between two of which nothing runs."""
    return os.path.exists(stop_file(where, state.id)) or os.path.exists(stop_file(where, state.lock))


def lock_file(where: paths.Campaign, state: State) -> str:
    """Return the lock whose holder supervises this attempt."""
    return os.path.join(where.state, state.lock)


def forget_lock(where: paths.Campaign, name: str) -> None:
    """Remove a lock file at the end of its chain of runs; whoever holds it still holds it."""
    _forget(stop_file(where, name), os.path.join(where.state, name))


def _forget(*found: str) -> None:
    for file in found:
        try:
            os.unlink(file)
        except FileNotFoundError:
            pass


def of(where: paths.Campaign, name: str) -> list[State]:
    """Return the runs under way for an experiment, or the attempt of that id; those that confirm it first.

    Between two runs of a chain none is there for a moment: it is waited for. With none at all, the one that was
    withdrawn and whom nobody was told of is meant.
    """
    for _ in range(40):
        states = every(where)
        mine = [state for state in states if name in (state.idea, state.id)]
        mine = mine or [state for state in states if state.experiment == name]
        mine = mine or [state for state in withdrawn(where) if name in (state.idea, state.id)]
        if mine or not any(map(files.is_locked, _chains(where, name))):
            return mine
        time.sleep(0.05)
    return []


def _chains(where: paths.Campaign, name: str) -> list[str]:
    try:
        locks = [entry for entry in os.listdir(where.state) if entry.endswith(".lock")]
    except FileNotFoundError:
        return []
    mine = [entry for entry in locks if names.experiment_of(entry.removesuffix(".lock")) == name]
    return [os.path.join(where.state, entry) for entry in mine]


def create(where: paths.Campaign, state: State) -> None:
    """Write the state of a new attempt; durable when it returns."""
    _replace(path(where, state.id), json.dumps(state._asdict()).encode(), 1)
    if not state.is_open:  # a chain of that name may have been withdrawn before
        _forget(stop_file(where, state.lock))


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
            with files.naming(file):
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
    _forget(stop_file(where, state.id), path(where, state.id))


def every(where: paths.Campaign) -> list[State]:
    """Return the attempts that have no finished record yet, oldest reservation first."""
    return [state for state in _kept(where) if state.phase != WITHDRAWN]


def withdrawn(where: paths.Campaign) -> list[State]:
    """Return the attempts that were given up before they ran, kept until somebody is told or calls them again."""
    return [state for state in _kept(where) if state.phase == WITHDRAWN]


def _kept(where: paths.Campaign) -> list[State]:
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
