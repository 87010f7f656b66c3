"""Removing trees: only through git, and only when nothing in them is unique."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from autoresearch.errors import AutoresearchError, Refused, TryAgain
from autoresearch.git import hooked, strays, treefill, treerecords
from autoresearch.git.treerecords import Record

if TYPE_CHECKING:
    from autoresearch.git.trees import Pool, Returned, Tree


def release(pool: Pool, tree: Tree, artifacts: str) -> Returned:
    """Remove a tree of `start`; ignored files in it are moved to `artifacts` first (git would delete them silently).

    Raises:
        Refused: edits or commits in it are nowhere else, or something in it cannot be moved.
    """
    from autoresearch.git.trees import Returned

    record = treerecords.read(pool.directory, tree.number, "owner") or Record(tree.number)
    unique = unique_work(pool, record)
    if unique:
        why = f"{tree.path} holds what is nowhere else: {', '.join(unique[:5])}"
        raise Refused("release", why, f"commit it: make experiment NAME={tree.owner}; or remove it yourself")
    treefill.unlink(tree.path, record)
    state = pool.look(record)
    taken = strays.collect(tree.path, state.strays if state else [], [], artifacts)
    if taken.stuck:
        raise Refused("release", f"cannot move {taken.stuck[0]}", _owner_fix(tree.path))
    with treerecords.writing(pool.directory, tree.number):
        _remove(pool, record)
    return Returned(taken.moved, taken.where, taken.removed, [], [], False)


def unique_work(pool: Pool, record: Record) -> list[str]:
    """Return what a tree holds that is on no branch: edits, new files that git does not ignore, commits.

    Ignored files and the links of required data do not count.
    """
    path = treerecords.root(pool.directory, record.number)
    if not os.path.lexists(path):
        return []
    own = pool.git.at(path)
    out = own.run("status", "--porcelain=v1", "-z", "--untracked-files=all", "--ignore-submodules=none")
    linked = {link[0] for link in record.links}
    found = [os.fsdecode(entry[3:]) for entry in out.split(b"\0") if entry]
    found = [name for name in found if name not in linked]
    head = os.fsdecode(own.run("rev-parse", "--verify", "HEAD")).strip()
    if head == record.commit:  # the tree's own index may hide edits, the private one does not
        state = pool.look(record)
        found += [name for name in state.changed if name not in found] if state else ["what git cannot compare"]
    if head != record.commit and not _is_kept(pool, head):
        found.append(f"commit {head[:12]}")
    return found


def _is_kept(pool: Pool, commit: str) -> bool:
    return bool(pool.git.run("for-each-ref", "--count=1", "--contains", commit, "refs/heads"))


def evict(pool: Pool) -> list[str]:
    """Remove the campaign's trees, for clean-campaign; returns the paths removed.

    All are looked at before the first is removed, so a refusal removes nothing.

    Raises:
        Refused: a run has one, or one holds work that is nowhere else.
        TryAgain: something still writes in one.
    """
    _take_back_from_killed(pool, patient=True)
    chosen: list[tuple[Record, str]] = []
    for number, state in treerecords.listing(pool.directory).items():
        record = treerecords.read(pool.directory, number, state) or Record(number)
        with treerecords.writing(pool.directory, number):
            _check_removable(pool, record, state)
        chosen.append((record, state))
    for record, state in chosen:
        with treerecords.writing(pool.directory, record.number):
            if _is_still(pool, record, state):
                _remove(pool, record)
    _forget_lost(pool)
    return [treerecords.root(pool.directory, record.number) for record, _ in chosen]


def _check_removable(pool: Pool, record: Record, state: str) -> None:
    path = treerecords.root(pool.directory, record.number)
    if state == "owner" and record.kind != "start" and record.owner:
        raise Refused("clean-campaign", f"{path} belongs to the run {record.owner}", "stop it, then: make status")
    if (state == "retired" and record.collected) or not os.path.lexists(path):
        return
    if state == "owner" and record.kind == "start":
        unique = unique_work(pool, record)
    else:
        found = pool.look(record)
        unique = [*found.strays, *found.changed] if found else ["what git cannot compare"]
        if record.reason and "HEAD" in record.reason:
            unique.append("commits of the run")
    if unique:
        commit = f"commit it (make experiment NAME={record.owner}), or " if record.owner else ""
        why = f"{path} holds what is nowhere else: {', '.join(unique[:5])}"
        raise Refused("clean-campaign", why, f"{commit}move that directory away")


def forget_gone(pool: Pool, tree: Tree) -> None:
    """Forget a tree whose directory is gone; the caller holds it."""
    record = treerecords.read(pool.directory, tree.number, "owner")
    if record and record.owner == tree.owner:
        _remove(pool, record)


def tidy(pool: Pool) -> list[str]:
    """Remove retired trees whose content is elsewhere; returns what could not be removed, `path: why`.

    Cheap when there are none. Call it after the row is written, outside of what the user waits for.
    """
    failed = []
    _take_back_from_killed(pool, patient=False)
    for number, state in treerecords.listing(pool.directory).items():
        record = treerecords.read(pool.directory, number, state) if state == "retired" else None
        if record and record.collected:
            try:
                with treerecords.writing(pool.directory, number, 0.0):
                    if _is_still(pool, record, state):
                        _remove(pool, record)
            except TryAgain:
                continue  # another caller removes it
            except AutoresearchError as error:
                failed.append(f"{treerecords.root(pool.directory, number)}: {error.why}")
    return failed


def _is_still(pool: Pool, record: Record, state: str) -> bool:
    """Return whether a tree is what it was: another caller may have removed it, and its number be another one's."""
    number, directory = record.number, pool.directory
    now = treerecords.read(directory, number, state) or Record(number)
    return treerecords.listing(directory).get(number) == state and now == record


def _take_back_from_killed(pool: Pool, *, patient: bool) -> None:
    """Take back the trees of commits with hooks, and those on their way to `start`, whose process was killed."""
    for tree in pool.trees():
        if treerecords.is_left(tree.owner):
            try:
                hooked.take_back(pool, tree, None if patient else 0.0)
            except TryAgain:
                if patient:
                    raise
                # Else its git is still at work: the next caller comes by.


def _remove(pool: Pool, record: Record) -> None:
    """Remove a tree without anything unique; the record says so first, for whoever goes on after a kill."""
    path = treerecords.root(pool.directory, record.number)
    gone = record._replace(owner="", kind="", reason=record.reason or "removed", collected=True)
    treerecords.change(pool.directory, gone, "retired")
    try:
        pool.remove(record)
    except TryAgain:
        raise
    except AutoresearchError:  # git takes no tree that an earlier removal has left half
        try:
            if os.path.lexists(path):
                strays.erase(path)
        except OSError as error:
            raise Refused("tree", f"{path} cannot be removed ({error.strerror})", _owner_fix(path)) from error
        pool.remove(record, check=False)


def _owner_fix(path: str) -> str:
    from shlex import quote

    return f"if files in it belong to another user: sudo chown -R $(id -u) {quote(path)}"


def _forget_lost(pool: Pool) -> None:
    """Remove the repository's entries of trees of this pool whose directory is gone (a scratch disk was wiped)."""
    entries = os.path.join(pool.common, "worktrees")
    try:
        names = os.listdir(entries)
    except FileNotFoundError:
        return
    for name in names:
        try:
            with open(os.path.join(entries, name, "gitdir"), encoding="utf-8", errors="surrogateescape") as file:
                tree = os.path.dirname(file.read().rstrip("\n"))
        except OSError:
            continue
        if os.path.dirname(tree) == pool.directory and not os.path.lexists(tree):
            pool.remove(Record(int(os.path.basename(tree)))) if os.path.basename(tree).isdigit() else None
