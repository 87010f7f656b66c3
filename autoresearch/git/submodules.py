"""Submodules of a tree: filled from the user's own copy by a worktree of the submodule, without network.

`submodule update` in a worktree writes into the repository's shared config, which is the user's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from autoresearch.errors import Refused
from autoresearch.git import SLOW_S, Git, entries


def links(git: Git, commit: str) -> list[tuple[str, str]]:
    """Return (path, commit) of every submodule that a commit names."""
    out = git.run("ls-tree", "-r", "-z", "--full-tree", commit)
    return [
        (os.fsdecode(path), head.split(b" ")[2].decode("ascii"))
        for head, _, path in (record.partition(b"\t") for record in out.split(b"\0"))
        if head.startswith(b"160000 ")
    ]


def check(git: Git, top: str, commit: str) -> None:
    """Refuse a commit whose submodules the user's own copies cannot fill, nested ones too.

    Args:
        git: git in the user's checkout.
        top: root of that checkout.
        commit: full hash.
    """
    for _ in walk(git, top, commit):
        pass


def walk(git: Git, top: str, commit: str, found: list[tuple[str, str]] | None = None) -> Iterator[tuple[str, str, str]]:
    """Yield (path below the top, the user's copy, commit) of each submodule, outer ones first.

    Args:
        found: the links of `commit` where they are known already.

    Raises:
        Refused: a copy is missing, or lacks that commit.
    """
    for path, sha in links(git, commit) if found is None else found:
        copy = os.path.join(top, path)
        if not os.path.lexists(os.path.join(copy, ".git")):
            raise _missing(path, "is empty in your checkout", top)
        if git.at(copy).call("cat-file", "-e", f"{sha}^{{commit}}").code:
            raise _missing(path, f"lacks the commit {sha[:12]}", top)
        yield path, copy, sha
        for inner, inner_copy, inner_sha in walk(git.at(copy), copy, sha):
            yield f"{path}/{inner}", inner_copy, inner_sha


def _missing(path: str, why: str, top: str) -> Refused:
    from shlex import quote

    fix = f"git -C {quote(top)} submodule update --init --recursive -- {quote(path)}"
    return Refused("submodule", f"{path} {why}, so a tree cannot be filled without network", fix)


def add(git: Git, copy: str, target: str, sha: str, reason: str) -> None:
    """Make `target` a worktree of the user's submodule `copy` at `sha`; the caller holds the repository's lock."""
    own = git.at(copy)
    mend(own)
    own.run("worktree", "add", "-f", "-f", "--quiet", "--detach", "--lock", "--", target, sha, timeout=SLOW_S)
    write_reason(target, reason)


def mend(own: Git) -> None:
    """Mend the entries of our trees in a submodule; the caller holds the repository's lock."""
    done = own.call("rev-parse", "--path-format=absolute", "--git-common-dir")
    if not done.code:
        entries.mend(os.fsdecode(done.out)[:-1])


def write_reason(tree: str, reason: str) -> None:
    """Say why a worktree is locked (`worktree add --reason` needs a newer git than ours)."""
    directory = git_directory(tree)
    if directory:
        with open(os.path.join(directory, "locked"), "w", encoding="utf-8") as file:
            file.write(reason + "\n")


def git_directory(tree: str) -> str:
    """Return the git directory of a linked worktree from its `.git` file, "" when that is gone or broken.

    Raises:
        OSError: it cannot be read now.
    """
    try:
        with open(os.path.join(tree, ".git"), "rb") as file:
            text = file.read(8192)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return ""
    if not text.startswith(b"gitdir: "):
        return ""
    path = os.path.join(os.fsencode(tree), text[8:].rstrip(b"\n"))
    return os.fsdecode(path) if os.path.isdir(path) else ""
