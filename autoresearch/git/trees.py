"""The campaign's pool of worktrees: a tree is handed on only when it equals a fresh checkout of its commit.

A run gets a tree from `acquire` and its supervisor hands it back with `give_back`. `open_for` gives a tree to edit in;
it belongs to its experiment until `release`, and no run happens in it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import NamedTuple

from autoresearch import files
from autoresearch.errors import Refused, TryAgain
from autoresearch.git import SLOW_S, Git, entries, freshness, notes, repository_lock, strays, treefill, treerecords
from autoresearch.git.submodules import git_directory
from autoresearch.git.treerecords import Record


class Tree(NamedTuple):
    """A worktree in somebody's hands."""

    path: str  # absolute
    commit: str
    owner: str
    kind: str  # run, or start: shown to the user for editing
    number: int


class Returned(NamedTuple):
    """What giving a tree back brought to light; paths below the tree."""

    moved: list[str]  # left by the run, now below `where`
    where: str
    removed: list[str]  # caches that can be made again
    stuck: list[str]  # could not be moved: `path: why`
    remarks: list[str]  # for the row or the reader
    reused: bool  # free for the next experiment; else the tree is retired


class Pool:
    """The trees of one campaign.

    Args:
        git: git in the user's checkout.
        directory: `<campaign>/.trees`, on scratch; made when missing.
    """

    def __init__(self, git: Git, directory: str) -> None:
        self.git, self.directory = git, os.path.realpath(directory)

    @property
    def common(self) -> str:
        """The repository's common git directory."""
        return self.git.common

    def trees(self) -> list[Tree]:
        """Return the trees that belong to somebody."""
        owned = [n for n, state in treerecords.listing(self.directory).items() if state == "owner"]
        records = [treerecords.read(self.directory, number, "owner") for number in owned]
        return [self._tree(record) for record in records if record]

    def find(self, owner: str, kind: str = "start") -> Tree | None:
        """Return the tree of an owner, which no git of a killed call writes in any more; None when there is none."""
        found = next((tree for tree in self.trees() if tree.owner == owner and tree.kind == kind), None)
        if found:
            self._mend()
            with treerecords.writing(self.directory, found.number):
                if os.path.isdir(found.path):
                    return found
                from autoresearch.git import eviction

                eviction.forget_gone(self, found)  # somebody has removed it by hand
        return None

    def acquire(self, commit: str, owner: str, require: Sequence[str] = ()) -> Tree:
        """Return a tree that equals a fresh checkout of `commit`, for one run.

        Args:
            commit: full hash.
            owner: the attempt's id.
            require: paths of the user's checkout, relative to it, that git does not know and the run needs; linked.

        Raises:
            Refused: the commit's submodules or LFS files cannot be had.
        """
        return self._tree(self._take(commit, owner, "run", require, owner))

    def open_for(self, owner: str, commit: str, branch: str = "", require: Sequence[str] = ()) -> Tree:
        """Return the tree in which an experiment is edited, made at the first call.

        Args:
            owner: the experiment's name.
            commit: full hash to start from.
            branch: the experiment's branch without refs/heads/, checked out in the tree; it exists, at `commit`.
            require: as in `acquire`.
        """
        lock = os.path.join(self.directory, f"start.{owner}.lock")
        with files.locked(lock, wait_s=SLOW_S):  # of two calls at once one makes it
            tree = self.find(owner)
            if tree is None:
                holder = treerecords.holder("start")  # a kill before it is done leaves no tree of the experiment
                tree = self._tree(self._take(commit, holder, "start", require, owner))
                if branch:
                    words = ("symbolic-ref", "-m", "autoresearch: start", "HEAD", f"refs/heads/{branch}")
                    with treerecords.writing(self.directory, tree.number):
                        self.git.at(tree.path).run(*words)
            os.unlink(lock)
        return tree

    def give_back(self, owner: str, artifacts: str, spent: str = "") -> Returned:
        """Take a run's tree back: what it left goes to `artifacts`, and the tree is free, or retired.

        Args:
            owner: the attempt's id, as given to `acquire`.
            artifacts: the attempt's artifacts directory.
            spent: why the tree is not to be used again, whatever it looks like.
        """
        found = Returned([], "", [], [], [], False)
        for tree in self.trees():  # more than one after a kill between two steps
            record = treerecords.read(self.directory, tree.number, "owner")
            if record is not None and record.owner == owner and record.kind != "start":
                back = self._return(record, tree.path, artifacts, spent)
                found = Returned(
                    found.moved + back.moved,
                    back.where or found.where,
                    found.removed + back.removed,
                    found.stuck + back.stuck,
                    found.remarks + back.remarks,
                    back.reused,
                )
        return found

    def _return(self, record: Record, path: str, artifacts: str, spent: str) -> Returned:
        remarks = self._remarks(record)
        treefill.unlink(path, record)
        try:
            with treerecords.writing(self.directory, record.number):
                why, taken = self._collect(record, path, artifacts)
        except TryAgain as error:
            why = f"it cannot be looked at ({error.why})"
            taken = strays.Taken([], [], [f"{path}: {why}"], "")
        why = why or spent
        gone = bool(why) and not taken.stuck
        free = record._replace(owner="", kind="", links=[], made=[], reason=why, collected=gone)
        treerecords.change(self.directory, free, "retired" if why else "free")
        return Returned(taken.moved, taken.where, taken.removed, taken.stuck, remarks, not why)

    def settle(self, tree: Tree, commit: str, index: str) -> None:
        """Make `commit`, built from what was edited in a `start` tree, the tree's own.

        Files that FILES, a PATCH or a hook changed on the way are brought into the tree, nothing else in it changes.

        Args:
            commit: the new commit; its branch was moved already.
            index: the private index of the edits (`Hypothesis.private_index`).
        """
        with treerecords.writing(self.directory, tree.number):
            self._settle(tree, commit, index)

    def _settle(self, tree: Tree, commit: str, index: str) -> None:
        record = treerecords.read(self.directory, tree.number, "owner")
        if record is None:
            return
        own, private = self.git.at(tree.path), treerecords.index(self.directory, tree.number)
        if not self._head(record).startswith(("ref: ", commit)):
            own.run("update-ref", "--no-deref", "-m", "autoresearch", "HEAD", commit)
        os.replace(index, private)
        # It refuses, and leaves everything, where a file was edited again meanwhile.
        own.call("read-tree", "-m", "-u", commit, env={"GIT_INDEX_FILE": private}, timeout=SLOW_S)
        treefill.publish_index(private, record.directory)
        treerecords.write(self.directory, record._replace(commit=commit))

    def adopt(self, tree: Tree, commit: str) -> Tree:
        """Record that a run's tree went on to `commit` by git itself (a commit with the repository's hooks)."""
        record = treerecords.read(self.directory, tree.number, "owner")
        if record is None:
            return tree
        freshness.copy_index(os.path.join(record.directory, "index"), treerecords.index(self.directory, tree.number))
        record = record._replace(commit=commit)
        treerecords.write(self.directory, record)
        return self._tree(record)

    def release(self, owner: str, artifacts: str) -> Returned:
        """Remove the tree of `start`; ignored files in it go to `artifacts` first.

        Raises:
            Refused: it holds edits or commits that are nowhere else.
        """
        from autoresearch.git import eviction

        tree = self.find(owner)
        if tree is None:
            raise Refused("release", f"{owner!r} has no tree", f"make start NAME={owner} gives it one")
        return eviction.release(self, tree, artifacts)

    def _mend(self) -> None:
        with repository_lock(self.common):
            entries.mend(self.common)

    def _take(self, commit: str, holder: str, kind: str, require: Sequence[str], owner: str) -> Record:
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        self._mend()
        found = self._warm(commit, holder)
        record = found or treefill.fresh(self.git, self.common, self.directory, commit, holder)
        try:
            record = treefill.link(self.git.repo, treerecords.root(self.directory, record.number), record, require)
        finally:
            record = record._replace(commit=commit, kind=kind, owner=owner, since=time.time())
            record = record._replace(stash=_stash(self.common))
            treerecords.write(self.directory, record)
        return record

    def _warm(self, commit: str, owner: str) -> Record | None:
        """Return a free tree moved to `commit`; one that fails a check on the way is retired as it is."""
        for number, state in treerecords.listing(self.directory).items():
            if state != "free":
                continue
            old = treerecords.read(self.directory, number, "free") or Record(number)
            mine = old._replace(owner=owner, kind="moving", since=time.time())
            if not treerecords.claim(self.directory, mine):
                continue
            with treerecords.writing(self.directory, number):
                why = self._move(mine, commit)
            if not why:
                return mine
            unused = mine._replace(owner="", kind="", reason=why, collected=why in treefill.OUTDATED)
            treerecords.change(self.directory, unused, "retired")
        return None

    def _move(self, record: Record, commit: str) -> str:
        """Move a claimed tree to `commit`; returns why it cannot be used, "" when it can."""
        path, private = (
            treerecords.root(self.directory, record.number),
            treerecords.index(self.directory, record.number),
        )
        if not record.commit or git_directory(path) != record.directory or self._head(record) != record.commit:
            return "its git directory or HEAD was changed"
        if not freshness.is_same_conversion(self.git, self.common, record.conversion):
            return treefill.OUTDATED[0]
        own = self.git.at(path)
        # Both only read; on two cores they take the time of one.
        moves = None if commit == record.commit else treefill.start_diff(own, record.commit, commit)
        root = freshness.start(own, private)
        state = freshness.finish(root)
        paths = treefill.finish_diff(moves) if moves else []
        if state and record.parts:
            inner = [pair for pair in treefill.parts(self.directory, record) if pair[0]]
            state = freshness.look(self.git, inner, path) if state.is_fresh else state
        if state is None:
            return "git cannot compare it"
        if not state.is_fresh:
            return f"changed while it was free: {[*state.strays, *state.changed][0]}"
        if paths is None:
            return treefill.OUTDATED[1]
        if moves is not None:
            if not _switch(own, private, commit):
                return treefill.OUTDATED[2]
            treefill.publish_index(private, record.directory)
            if record.lfs:
                treefill.refuse_pointers(self.git, self.directory, record, paths)
        return ""

    def _collect(self, record: Record, path: str, artifacts: str) -> tuple[str, strays.Taken]:
        """Move what a run left; returns why the tree is retired ("" when it is fresh again), and what was taken."""
        state = self.look(record)
        if state is None and record.kind == "moving" and not record.directory:  # nobody was ever in it
            return treefill.CUT_OFF, strays.Taken([], [], [], "")
        if state is None:
            return "git cannot compare it", strays.Taken([], [], [f"{path}: git cannot compare it"], "")
        taken = strays.Taken([], [], [], "")
        if not state.is_fresh:
            taken = strays.collect(path, state.strays, state.changed, artifacts)
        moved = self._moved_to(record)
        if moved and self.git.call("update-ref", notes.kept(moved), moved).code:
            # It keeps the run's own commits from being pruned, so the tree is not removed.
            taken.stuck.append("HEAD was moved by the run")
        if state.changed or taken.stuck or moved:
            return f"changed by the run: {[*state.changed, *taken.stuck, 'its HEAD'][0]}", taken
        # A stray link or directory may have hidden a file of the commit: look again where something was moved.
        if state.strays:
            state = self.look(record)
            if state is None or not state.is_fresh:
                return "changed by the run: files of the commit", taken
        # Killed between the files and HEAD: index and files agree with each other, and not with the record's commit.
        return treefill.CUT_OFF if record.kind == "moving" else "", taken

    def look(self, record: Record) -> freshness.State | None:
        """Return how a tree differs from a fresh checkout; None when git cannot say."""
        path = treerecords.root(self.directory, record.number)
        if not record.directory or git_directory(path) != record.directory:
            return None
        return freshness.look(self.git, treefill.parts(self.directory, record), path)

    def _remarks(self, record: Record) -> list[str]:
        found = []
        if _stash(self.common) != record.stash and self._packed_stash() != record.stash:
            found.append("refs/stash changed while it ran (a stash of the run, or your own)")
        if moved := self._moved_to(record):
            found.append(f"it moved HEAD in its tree to {moved[:12]}")
        return found

    def _packed_stash(self) -> str:
        """Return refs/stash as git tells it, which may have moved it to its packed refs meanwhile."""
        return os.fsdecode(self.git.call("rev-parse", "-q", "--verify", "refs/stash").out).strip()

    def _moved_to(self, record: Record) -> str:
        """Return the commit to which a run has moved HEAD in its tree, `nothing` for none, "" when it has not."""
        if record.kind != "run" or self._head(record) == record.commit:
            return ""
        own = self.git.at(treerecords.root(self.directory, record.number))
        done = own.call("rev-parse", "-q", "--verify", "HEAD^{commit}")
        return os.fsdecode(done.out).strip() or "nothing"

    def _head(self, record: Record) -> str:
        """Return a tree's HEAD as git keeps it: a commit, or `ref: refs/heads/...`."""
        try:
            with open(os.path.join(record.directory, "HEAD"), encoding="utf-8") as file:
                head = file.read().strip()
        except OSError:
            return ""
        if head == "ref: refs/heads/.invalid":  # refs are in a reftable
            own = self.git.at(treerecords.root(self.directory, record.number))
            done = own.call("symbolic-ref", "--quiet", "HEAD")
            head = "ref: " + os.fsdecode(done.out).strip() if not done.code else own.commit("HEAD")
        return head

    def _tree(self, record: Record) -> Tree:
        path = treerecords.root(self.directory, record.number)
        return Tree(path, record.commit, record.owner, record.kind, record.number)

    def remove(self, record: Record, *, check: bool = True) -> None:
        """Remove a tree through git, its submodules first; the caller made sure that nothing in it is unique."""
        path = treerecords.root(self.directory, record.number)
        with repository_lock(self.common):
            entries.mend(self.common)
            treefill.remove(self.git, path, [part[0] for part in record.parts], check)
        treerecords.forget(self.directory, record.number)


def _switch(own: Git, private: str, commit: str) -> bool:
    """Move a clean tree to `commit`: its files with the private index, and beside that its HEAD.

    Half of what `checkout` costs. HEAD of a tree on scratch need not survive a power cut.
    """
    moved = own.start("read-tree", "-m", "-u", commit, env={"GIT_INDEX_FILE": private}, timeout=SLOW_S)
    head = own.start("-c", "core.fsync=none", "update-ref", "--no-deref", "-m", "autoresearch", "HEAD", commit)
    return not (moved.finish().code | head.finish().code)


def _stash(common: str) -> str:
    try:
        with open(os.path.join(common, "refs", "stash"), encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
