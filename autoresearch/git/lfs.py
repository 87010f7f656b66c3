"""Git LFS: its pointer files are never fed to a training as if they were data."""

from __future__ import annotations

import os
from collections.abc import Iterable

from autoresearch.errors import Refused
from autoresearch.git import Git

# The first line of a pointer file, from the Git LFS specification.
POINTER = b"version https://git-lfs.github.com/spec/v1"
REMEDY = "install git-lfs, then in the checkout: git lfs install --local && git lfs pull"


def check(git: Git, commit: str) -> list[str]:
    """Refuse a commit whose attributes use LFS when its program is missing; returns remarks.

    Args:
        git: git in the user's checkout.
        commit: full hash.
    """
    if not used(git, commit):
        return []
    if git.call("lfs", "version").code:
        raise Refused("LFS", "files of this repository are stored with Git LFS, whose program is missing", REMEDY)
    return ["files of this repository are stored with Git LFS: trees are filled from the local LFS store"]


def used(git: Git, commit: str) -> bool:
    """Return whether any .gitattributes of a commit names the lfs filter."""
    found = git.call("grep", "-q", "-F", "filter=lfs", commit, "--", ":(glob)**/.gitattributes", env=_PATTERNS)
    return found.code == 0


_PATTERNS = {"GIT_LITERAL_PATHSPECS": "0"}


def is_pointer(path: str) -> bool:
    """Return whether a file is an LFS pointer instead of its content."""
    try:
        with open(path, "rb") as file:
            return file.read(len(POINTER)) == POINTER
    except OSError:
        return False


def pointers(git: Git, top: str, paths: Iterable[str]) -> list[str]:
    """Return which of `paths` (below `top`) should hold LFS content but hold a pointer."""
    suspects = [path for path in paths if is_pointer(os.path.join(top, path))]
    if not suspects:
        return []
    asked = b"".join(os.fsencode(path) + b"\0" for path in suspects)
    fields = git.at(top).run("check-attr", "-z", "--stdin", "filter", input=asked).split(b"\0")
    return [os.fsdecode(path) for path, value in zip(fields[0::3], fields[2::3], strict=False) if value == b"lfs"]


def refuse_pointers(git: Git, top: str, paths: Iterable[str]) -> None:
    """Refuse when a tree holds LFS pointers where a training expects data."""
    found = pointers(git, top, paths)
    if found:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        raise Refused("LFS", f"{found[0]}{more} would be a pointer file, not its content", REMEDY)
