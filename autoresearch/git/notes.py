"""Each row of the ledger as a git note on its commit: one JSON line a row, in refs/notes/autoresearch.

Without the lock eight writers lost 28 of 40 notes, all with exit 0: every writer holds the repository's lock.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

from autoresearch.errors import AutoresearchError
from autoresearch.git import Git, failure, repository_lock, write_own_ref
from autoresearch.git.spawn import Running

REF = "refs/notes/autoresearch"
KEPT = "refs/autoresearch/kept"


def kept(commit: str) -> str:
    """Return the ref that holds a commit itself, so that no branch that moves, no tree that goes and no gc loses it."""
    return f"{KEPT}/{commit}"


def append(git: Git, commit: str, line: str) -> None:
    """Append one line to the note of a commit, safely beside other writers, and keep the commit by a ref of its own.

    Args:
        commit: full hash.
        line: one JSON object; line breaks at its end do not count.

    Raises:
        AutoresearchError: git refused (no identity, a full disk); TryAgain: the lock was held for ten minutes.
    """
    with repository_lock(git.common):
        _append(git, commit, line)


def append_once(git: Git, commit: str, line: str) -> bool:
    """Append a line unless the note holds it already (a recovery after a kill between note and row's end).

    Returns:
        Whether it was appended.
    """
    line = _single(line)
    with repository_lock(git.common):
        old = git.call("notes", f"--ref={REF}", "show", commit)
        if not old.code and os.fsencode(line) in old.out.split(b"\n"):
            _hold(git, commit, None)  # the kill may have come before it, or have left its lock
            return False
        _append(git, commit, line)
    return True


def _append(git: Git, commit: str, line: str) -> None:
    data = os.fsencode(_single(line)) + b"\n"
    note = ("notes", f"--ref={REF}", "append", "-F", "-", commit)
    # On two cores at once; the note first, since a git that was started goes on when we are killed.
    noting, keeping = git.start(*note, input=data), git.start(*_holding(commit))
    noted = write_own_ref(git, REF, *note, input=data, started=noting)
    _hold(git, commit, keeping)
    if noted.code:
        raise failure(("git", "notes"), noted)


def _holding(commit: str) -> tuple[str, ...]:
    return ("update-ref", kept(commit), commit)


def _hold(git: Git, commit: str, started: Running | None) -> None:
    done = write_own_ref(git, kept(commit), *_holding(commit), started=started)
    if done.code:
        raise failure(("git", "update-ref"), done)


def _single(line: str) -> str:
    line = line.strip("\n")
    if "\n" in line:
        raise AutoresearchError("note", "a row's note is one line")
    return line


def read_all(git: Git, campaign: str = "") -> Iterator[dict[str, str]]:
    """Yield the rows that the notes hold, those of a commit in the order they were written; two git calls in all.

    Args:
        campaign: only rows of that campaign; empty: of all.
    """
    listed = git.run("notes", f"--ref={REF}", "list").split(b"\n")
    blobs = [line.split(b" ")[0] for line in listed if line]
    if not blobs:
        return
    out = git.run("cat-file", "--batch", input=b"\n".join(blobs) + b"\n")
    at = 0
    while at < len(out):
        end = out.index(b"\n", at)
        header = out[at:end].split(b" ")
        at = end + 1
        if len(header) != 3:
            continue  # `HASH missing`: a partial clone
        size = int(header[2])
        yield from _rows(out[at : at + size], campaign)
        at += size + 1


def _rows(note: bytes, campaign: str) -> Iterator[dict[str, str]]:
    for line in note.split(b"\n"):  # git keeps an empty line between two appended ones
        if not line.startswith(b"{"):
            continue
        try:
            row = json.loads(line.decode("utf-8", "surrogateescape"))
        except ValueError:
            continue  # written by hand, or by another tool
        if isinstance(row, dict) and (not campaign or row.get("campaign") == campaign):
            yield {str(key): "" if value is None else str(value) for key, value in row.items()}


def rebuild(git: Git, campaign: str) -> list[dict[str, str]]:
    """Return a campaign's rows as its ledger had them: one for each attempt, the last written wins, by index.

    Args:
        campaign: its name.
    """
    found: dict[tuple[str, str], dict[str, str]] = {}
    for row in read_all(git, campaign):
        found[row.get("experiment", ""), row.get("attempt", "")] = row
    return sorted(found.values(), key=_index)


def _index(row: dict[str, str]) -> int:
    text = row.get("index", "")
    return int(text) if text.isascii() and text.isdigit() else 0
