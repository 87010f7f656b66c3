"""What a repository knows of our trees, `.git/worktrees/<n>`: mended where a kill or a power cut left it half written.

git writes an entry file by file and syncs none of them. With an empty `commondir`, or a HEAD of zeros, `git gc`,
`fetch`, `branch -a` and every `worktree` call fail in the user's checkout, and so would we (tried with git 2.39).
"""

from __future__ import annotations

import os

from autoresearch import files
from autoresearch.git import strays, treerecords
from autoresearch.paths import TREES


def mend(common: str) -> None:
    """Complete the half written entries of our trees; those of trees that nobody was ever in go.

    Entries that are not ours are never touched. The caller holds the repository's lock, which our git processes
    inherit: no `worktree add` of ours is under way.

    Args:
        common: the common git directory of the repository, or of a submodule.
    """
    entries = os.path.join(common, "worktrees")
    try:
        names = os.listdir(entries)
    except OSError:
        return
    for name in names:
        directory = os.path.join(entries, name)
        try:
            commondir, head = _read(directory, "commondir"), _read(directory, "HEAD")
            if commondir and head.strip("0"):
                continue
            commit = _commit_of(_read(directory, "gitdir"))
        except OSError:
            continue  # what cannot be read now may be whole
        if commit is None:
            continue
        if not head.strip("0") and not commit:
            strays.erase(directory)
            continue
        if not commondir:
            files.replace(os.path.join(directory, "commondir"), b"../..\n", 0o644)
        if not head.strip("0"):
            files.replace(os.path.join(directory, "HEAD"), commit.encode() + b"\n", 0o644)


def _read(directory: str, name: str) -> str:
    try:
        with open(os.path.join(directory, name), encoding="utf-8", errors="surrogateescape") as file:
            return file.read().rstrip("\n")
    except FileNotFoundError:
        return ""


def _commit_of(gitdir: str) -> str | None:
    """Return the commit that a tree of ours, or a submodule of it, was filled with; "" for none yet, None: not ours."""
    pool, _, inside = os.path.dirname(gitdir).rpartition(f"/{TREES}/")
    digits, _, part = inside.partition("/")
    if not pool or not (digits.isascii() and digits.isdigit()):
        return None
    pool, number = f"{pool}/{TREES}", int(digits)
    record = treerecords.read(pool, number, treerecords.listing(pool).get(number, "owner"))
    if record is None:
        return ""
    return dict(record.parts).get(part, "") if part else record.commit
