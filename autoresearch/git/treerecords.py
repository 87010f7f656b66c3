"""The records beside the trees of a pool: `<n>.owner`, `<n>.free` or `<n>.retired`, JSON, one of them a tree.

A tree changes hands under the pool's lock, so eight callers at once get eight trees: the new record is written, then
the old one goes. A kill or a full disk between the two leaves both, and the owner's counts: the tree belongs to
somebody who can give it back, and is never handed out twice. A tree without a record is nobody's and stays untouched.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

from autoresearch import files
from autoresearch.errors import TryAgain

WRITING_WAIT_S = 120.0
STATES = ("owner", "retired", "free")  # of two records of a tree the one that stands first here counts


class Record(NamedTuple):
    """What is known of one tree. Times are epoch seconds."""

    number: int
    commit: str = ""  # the commit that it was filled with
    directory: str = ""  # its git directory
    conversion: dict[str, Any] = {}  # how git wrote its files
    parts: list[list[str]] = []  # submodules: path below the tree, commit
    lfs: bool = False
    owner: str = ""  # the attempt's id, or the experiment's name for a tree from `start`
    kind: str = ""  # run, start, or moving: on its way to another commit
    since: float = 0.0
    links: list[list[str]] = []  # required data: path below the tree, what it points to
    made: list[str] = []  # directories made for those links
    stash: str = ""  # refs/stash when it was handed out
    reason: str = ""  # why it is retired
    collected: bool = False  # retired, and all that was unique in it is elsewhere


def holder(what: str) -> str:
    """Return the owner of a tree that only this process knows of; no attempt and no experiment has a colon."""
    return f"{what}:{os.getpid()}:{time.monotonic_ns()}"


def is_left(owner: str) -> bool:
    """Return whether the process of a `holder` is gone (a number used again counts as it)."""
    if ":" not in owner:
        return False
    try:
        os.kill(int(owner.split(":")[1]), 0)
    except ProcessLookupError:
        return True
    except (ValueError, PermissionError):
        return False
    return False


def root(pool: str, number: int) -> str:
    """Return the path of tree `number`."""
    return os.path.join(pool, str(number))


def index(pool: str, number: int, part: int = 0) -> str:
    """Return the path of the private index of a tree (part 0) or of its n-th submodule."""
    return os.path.join(pool, f"{number}.index.{part}" if part else f"{number}.index")


def lock(pool: str) -> AbstractContextManager[int]:
    """Hold the pool's lock: records change their state under it, nothing slow does."""
    return files.locked(os.path.join(pool, "lock"), wait_s=600.0)


@contextmanager
def writing(pool: str, number: int, wait_s: float | None = None) -> Iterator[None]:
    """Hold one tree while git writes in it; the git calls inside hold it too.

    A git outlives a caller that was killed, and goes on writing: without this, the next caller looked at the tree
    before such a git had written, found it fresh, and had another commit's files in it a moment later.

    Raises:
        TryAgain: something still writes there after `wait_s`, by default two minutes.
    """
    path = _path(pool, number, "lock")
    try:
        with files.locked(path, wait_s=WRITING_WAIT_S if wait_s is None else wait_s, inherited=True):
            yield
    except TryAgain as error:
        if path not in error.why:
            raise
        why = f"a git of a call that was killed, or its hook, still works in {root(pool, number)}"
        raise TryAgain("tree", why, "wait for it, or end it") from None


def let_go(pool: str, number: int) -> bool:
    """Free a tree from what the hooks of a commit left running; returns whether there was any. Its git has ended."""
    path = _path(pool, number, "lock")
    held = files.is_locked(path)
    if held:
        os.unlink(path)  # the next one who asks makes a lock of its own
    return held


def listing(pool: str) -> dict[int, str]:
    """Return number and state of every tree of the pool."""
    found: dict[int, str] = {}
    try:
        names = os.listdir(pool)
    except FileNotFoundError:
        return found
    for name in names:
        number, _, state = name.partition(".")
        if number.isascii() and number.isdigit() and state in STATES:
            found[int(number)] = min(state, found.get(int(number), state), key=STATES.index)
    return dict(sorted(found.items()))


def read(pool: str, number: int, state: str) -> Record | None:
    """Return a tree's record; None when it is gone or damaged.

    Raises:
        OSError: it cannot be read now; taken for gone, the tree of a run would be nobody's to give back for ever.
    """
    try:
        with open(_path(pool, number, state), "rb") as file:
            fields = json.loads(file.read())
        return Record(**{**fields, "number": number})
    except (FileNotFoundError, ValueError, TypeError):
        return None


def write(pool: str, record: Record, state: str = "owner") -> None:
    """Replace a tree's record. Not fsynced: after a power cut a damaged record only costs a fresh tree."""
    path = _path(pool, record.number, state)
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with files.naming(path), open(temporary, "w", encoding="utf-8") as file:
            json.dump(record._asdict(), file)
        os.replace(temporary, path)
    except OSError:
        if os.path.lexists(temporary):
            os.unlink(temporary)
        raise


def change(pool: str, record: Record, state: str) -> None:
    """Give a tree that we own another state (`free`, `retired`)."""
    with lock(pool):
        write(pool, record, state)
        for other in reversed(STATES):
            if other != state and os.path.lexists(_path(pool, record.number, other)):
                os.unlink(_path(pool, record.number, other))


def claim(pool: str, record: Record) -> bool:
    """Take a free tree; False when another call was faster."""
    with lock(pool):
        if listing(pool).get(record.number) != "free":
            return False
        write(pool, record)
        os.unlink(_path(pool, record.number, "free"))
    return True


def reserve(pool: str, owner: str, kind: str, since: float) -> Record:
    """Return the record of a new tree with a number that no tree of the pool has."""
    with lock(pool):
        taken = [int(name.partition(".")[0]) for name in os.listdir(pool) if name.partition(".")[0].isdigit()]
        record = Record(max(taken, default=0) + 1, owner=owner, kind=kind, since=since)
        write(pool, record)
    return record


def forget(pool: str, number: int) -> None:
    """Remove the records and indexes of a tree that is gone."""
    with lock(pool):
        for name in os.listdir(pool):
            if name.partition(".")[0] == str(number) and name != str(number):
                os.unlink(os.path.join(pool, name))


def _path(pool: str, number: int, state: str) -> str:
    return os.path.join(pool, f"{number}.{state}")
