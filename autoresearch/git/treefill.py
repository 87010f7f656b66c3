"""How a tree is made, filled, linked with required data, and removed."""

from __future__ import annotations

import os
from collections.abc import Sequence

from autoresearch.errors import AutoresearchError
from autoresearch.git import SLOW_S, Git, failure, freshness, lfs, repository_lock, submodules, treerecords
from autoresearch.git.spawn import Running
from autoresearch.git.treerecords import Record

# Why a clean tree is not used again; nothing in it is unique.
OUTDATED = (
    "git's settings for writing files changed",
    "attributes or submodules of the commit differ",
    "git could not move it",
)
CUT_OFF = "a call was killed while git filled it"
REMOVE = ("worktree", "remove", "-f", "-f", "--")
REASON = "autoresearch: in use by a campaign on scratch; removed by clean-campaign"


def parts(pool: str, record: Record) -> list[tuple[str, str]]:
    """Return (path below the tree, private index) of a tree and its submodules."""
    inner = [(part[0], treerecords.index(pool, record.number, n)) for n, part in enumerate(record.parts, 1)]
    return [("", treerecords.index(pool, record.number)), *inner]


def fresh(git: Git, common: str, pool: str, commit: str, owner: str) -> Record:
    """Return the record of a new tree, filled with `commit` and its submodules.

    Only the entry in the repository is made under its lock: of parallel `worktree add` some fail. Filling, which
    takes most of the time, is not.

    Raises:
        Refused: submodules or LFS content cannot be had; nothing is left behind.
    """
    record = treerecords.reserve(pool, owner, "moving", 0.0)
    with treerecords.writing(pool, record.number):
        return _fill(git, common, pool, commit, record)


def _fill(git: Git, common: str, pool: str, commit: str, record: Record) -> Record:
    path, private = treerecords.root(pool, record.number), treerecords.index(pool, record.number)
    filled: list[list[str]] = []
    try:
        with repository_lock(common):
            # Twice -f: the path may be known from a scratch disk that was wiped, and its entry locked.
            words = ("worktree", "add", "-f", "-f", "--quiet", "--no-checkout", "--detach", "--lock")
            git.run(*words, "--", path, commit, timeout=SLOW_S)
            submodules.write_reason(path, REASON)
        own = git.at(path)
        own.run("read-tree", "-m", "-u", commit, env={"GIT_INDEX_FILE": private}, timeout=SLOW_S)
        record = record._replace(commit=commit, directory=submodules.git_directory(path), parts=filled)
        return _complete(git, common, pool, record, private)
    except BaseException:
        with repository_lock(common):
            remove(git, path, [part[0] for part in filled], check=False)
        if not os.path.lexists(path):
            treerecords.forget(pool, record.number)
        raise


def _complete(git: Git, common: str, pool: str, record: Record, private: str) -> Record:
    """Fill submodules, look for LFS pointers, and record how the files were written."""
    path = treerecords.root(pool, record.number)
    links, attributes = _special(git.at(path), private)
    for inner, copy, sha in submodules.walk(git, git.repo, record.commit, links):
        target, number = os.path.join(path, inner), len(record.parts) + 1
        record.parts.append([inner, sha])
        treerecords.write(pool, record._replace(directory=""))  # a kill from here on leaves a submodule to remove
        with repository_lock(common):
            submodules.add(git, copy, target, sha, REASON)
        freshness.copy_index(
            os.path.join(submodules.git_directory(target), "index"), treerecords.index(pool, record.number, number)
        )
    uses_lfs = any(_mentions_lfs(os.path.join(path, name)) for name in attributes)
    if uses_lfs:
        names = git.at(path).run("ls-files", "-z", env={"GIT_INDEX_FILE": private}).split(b"\0")
        lfs.refuse_pointers(git, path, [os.fsdecode(name) for name in names if name])
    publish_index(private, record.directory)
    return record._replace(lfs=uses_lfs, conversion=freshness.conversion(git, common))


def _special(own: Git, private: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the submodules and the attribute files of a filled tree, from its index."""
    links: list[tuple[str, str]] = []
    attributes: list[str] = []
    for entry in own.run("ls-files", "-s", "-z", env={"GIT_INDEX_FILE": private}).split(b"\0"):
        if entry.startswith(b"160000 "):
            head, _, name = entry.partition(b"\t")
            links.append((os.fsdecode(name), head.split(b" ")[1].decode("ascii")))
        elif entry.endswith(b".gitattributes"):
            attributes.append(os.fsdecode(entry.partition(b"\t")[2]))
    return links, attributes


def _mentions_lfs(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return b"filter=lfs" in file.read()
    except OSError:
        return False


def publish_index(private: str, directory: str) -> None:
    """Give the tree its own copy of the private index, which the run's git may then use as it likes."""
    freshness.copy_index(private, os.path.join(directory, "index"))


def start_diff(own: Git, old: str, new: str) -> Running:
    """Start listing what differs between two commits."""
    return own.start("diff-tree", "-r", "-z", "--no-renames", "--ignore-submodules=none", old, new)


def finish_diff(running: Running) -> list[str] | None:
    """Return the paths that differ; None when one of them changes how other files are written, or is a submodule."""
    done = running.finish()
    if done.code:
        raise failure(running.argv, done)
    fields = done.out.split(b"\0")
    paths: list[str] = []
    for head, name in zip(fields[0::2], fields[1::2], strict=False):
        modes = head[1:].split(b" ")[:2]
        if b"160000" in modes or os.path.basename(name) in (b".gitattributes", b".gitmodules"):
            return None
        paths.append(os.fsdecode(name))
    return paths


def refuse_pointers(git: Git, pool: str, record: Record, paths: Sequence[str]) -> None:
    """Refuse LFS pointers among the files that a move wrote; the tree is retired then, since nobody may use it."""
    try:
        lfs.refuse_pointers(git, treerecords.root(pool, record.number), paths)
    except AutoresearchError as error:
        unused = record._replace(owner="", kind="", reason=str(error.why), collected=True)
        treerecords.change(pool, unused, "retired")
        raise


def link(top: str, tree: str, record: Record, require: Sequence[str]) -> Record:
    """Link required data of the user's checkout into a tree; what git has put there already is left alone.

    Args:
        top: root of the user's checkout.
        tree: root of the tree.
        require: paths relative to `top`; absolute ones need no link.

    Returns:
        The record with the links and the directories made for them.
    """
    links, made = list(record.links), list(record.made)
    for path in require:
        plain = os.path.normpath(path)
        if not os.path.isabs(plain) and plain.split("/")[0] != "..":
            _link(top, tree, plain, links, made)
    return record._replace(links=links, made=made)


def _link(top: str, tree: str, path: str, links: list[list[str]], made: list[str]) -> None:
    source, target = os.path.join(top, path), os.path.join(tree, path)
    if not os.path.exists(source):
        return
    if os.path.isdir(target) and not os.path.islink(target):
        if os.path.isdir(source):  # git knows a part of it: link the rest, entry by entry
            for name in sorted(os.listdir(source)):
                if name != ".git":
                    _link(top, tree, os.path.join(path, name) if path != "." else name, links, made)
        return
    if os.path.lexists(target):
        return
    parent = os.path.dirname(path)
    steps = [parent[:at] for at in range(1, len(parent)) if parent[at] == "/"] + ([parent] if parent else [])
    for step in steps:
        if not os.path.lexists(os.path.join(tree, step)):
            os.mkdir(os.path.join(tree, step))
            made.append(step)
    os.symlink(source, target)
    links.append([path, source])


def unlink(tree: str, record: Record) -> None:
    """Remove the links of `link` that are still ours, and the directories made for them when empty."""
    for path, source in record.links:
        target = os.path.join(tree, path)
        if os.path.islink(target) and os.readlink(target) == source:
            os.unlink(target)
    for path in reversed(record.made):
        try:
            os.rmdir(os.path.join(tree, path))
        except OSError:
            pass  # the run put something there: a stray like any other


def remove(git: Git, path: str, inner: Sequence[str], check: bool = True) -> None:
    """Remove a worktree and those of its submodules through git; the caller holds the repository's lock.

    The path is absolute: git would take a unique end of one. Forced, since locked and ignored files count as content.
    """
    left = []
    for part in reversed(list(inner)):
        own, words = git.at(os.path.join(git.repo, part)), (*REMOVE, os.path.join(path, part))
        # A kill may have come before it was added, or have left it half: then its entry goes once the tree is gone.
        there = check and os.path.lexists(os.path.join(path, part, ".git"))
        submodules.mend(own)
        own.run(*words, check=there, timeout=SLOW_S)
        if not there:
            left.append((own, words))
    git.run(*REMOVE, path, check=check, timeout=SLOW_S)
    for own, words in left:
        own.run(*words, check=False, timeout=SLOW_S)
