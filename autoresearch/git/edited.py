"""What was edited in an experiment's own tree: changed, deleted and new files, and commits made there by hand."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from autoresearch.errors import Refused
from autoresearch.git import SLOW_S, Git, carried, freshness, repository, strays, treefill, treeobjects, treerecords

if TYPE_CHECKING:
    from autoresearch.git.trees import Pool, Tree


class Edited(NamedTuple):
    """What a tree holds."""

    content: str  # hash of the root tree of everything in it
    tip: str  # the commit it sits on: `since`, or one made in it by hand
    private_index: str  # the private index that `content` was written from
    since: str  # the commit that it was filled with, or that was settled last


def _forget_killed(private: str) -> None:
    """Remove the indexes, and their locks, of calls whose process is gone."""
    folder, name = os.path.split(private)
    for entry in os.listdir(folder):
        pid = entry.removeprefix(f"{name}.next-").removesuffix(".lock")
        if entry.startswith(f"{name}.next-") and pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
            try:
                os.unlink(os.path.join(folder, entry))
            except FileNotFoundError:
                pass  # another call does the same


def look(git: Git, pool: Pool, tree: Tree) -> Edited:
    """Return what a tree of `start` holds now; nothing in it changes, its index neither.

    Files that git ignores and the links of required data stay out.

    Raises:
        Refused: its owner record names another experiment, it sits on a commit that does not come from the one it was
            filled with, or it holds what may not be committed.
    """
    record = treerecords.read(pool.directory, tree.number, "owner")
    if record is None or record.owner != tree.owner or record.kind != "start":
        raise Refused("hypothesis", f"{tree.path} does not belong to {tree.owner!r}", f"make start NAME={tree.owner}")
    repository.check_finished(tree.path, record.directory)
    own = git.at(tree.path)
    private = treerecords.index(pool.directory, tree.number)
    # A name of this call's own: a git that was killed in an earlier one leaves its lock beside the index it wrote.
    _forget_killed(private)
    index = f"{private}.next-{os.getpid()}"
    freshness.copy_index(private, index)
    env = {"GIT_INDEX_FILE": index}
    listing = own.start("ls-files", "-z", "-m", "-o", "--exclude-standard", env=env, timeout=SLOW_S)
    # Staged by hand: also what is ignored but was added with force.
    staged = own.start("diff-index", "--cached", "--name-only", "-z", "--no-renames", "HEAD")
    tip = own.commit("HEAD")
    names = _names(listing.finish().out) + _names(staged.finish().out)
    if tip != record.commit:
        if own.call("merge-base", "--is-ancestor", record.commit, tip).code:
            raise _elsewhere(own, tree, tip, record.commit)
        names += _names(own.run("diff-tree", "-r", "-z", "--no-renames", "--name-only", record.commit, tip))
    linked = {link[0] for link in record.links}
    wanted = [name for name in dict.fromkeys(names) if name not in linked]
    _refuse_submodules(git, pool, tree, record)
    _check(own, tree.path, wanted)
    if wanted:
        listed = b"".join(os.fsencode(name) + b"\0" for name in _in_order(tree.path, wanted))
        words = ("update-index", "--add", "--remove", "--replace", "-z", "--stdin")
        own.run(*words, input=listed, env=env, timeout=SLOW_S)
    return Edited(own.run("write-tree", env=env).decode("ascii").strip(), tip, index, record.commit)


def _elsewhere(own: Git, tree: Tree, tip: str, commit: str) -> Refused:
    why = f"{tree.path} is at {tip[:12]}, which does not come from {commit[:12]}, its parent"
    fix = "go back to the branch of the experiment in that tree"
    branch = own.call("symbolic-ref", "-q", "HEAD")
    if branch.code or os.fsdecode(branch.out).strip().endswith(f"/{tree.owner}"):  # amended, or rebased
        from shlex import quote

        fix = f"put what is new in it on top of that: git -C {quote(tree.path)} reset --soft {commit[:12]}"
    return Refused("hypothesis", why, fix)


def _in_order(top: str, names: list[str]) -> list[str]:
    """Return names as git takes them where a file became a directory, or a directory a file: what is below one goes."""
    files = {name for name in names if os.path.islink(path := os.path.join(top, name)) or os.path.isfile(path)}
    return sorted(name for name in names if files.isdisjoint(treeobjects.ancestors([name])))


def _refuse_submodules(git: Git, pool: Pool, tree: Tree, record: treerecords.Record) -> None:
    """Refuse edits in submodules: git lists them in none of the calls above, and the run would go without them."""
    for path, index in treefill.parts(pool.directory, record)[1:]:
        inner = git.at(os.path.join(tree.path, path))
        listing = ("ls-files", "-z", "-m", "-o", "--exclude-standard", "--directory")
        done = inner.call(*listing, env={"GIT_INDEX_FILE": index}, timeout=SLOW_S)
        edited = [name for name in _names(done.out) if not strays.is_remakeable(name)]
        if done.code or edited:
            why = f"{os.path.join(path, *edited[:1])!r} is in a submodule, which a commit here cannot hold"
            fix = "commit it there and in your own checkout, and start from that commit: PARENT=COMMIT ALLOW_EMPTY=1"
            raise Refused("hypothesis", why, fix)


def _check(own: Git, top: str, names: list[str]) -> None:
    for name in names:
        full = os.path.join(top, name)
        if name.endswith("/") or (os.path.isdir(full) and os.path.lexists(os.path.join(full, ".git"))):
            why = f"{name!r} is a submodule or a repository of its own"
            raise Refused("hypothesis", why, "move it out of the tree")
        carried.refuse_env(name)
        size = os.path.getsize(full) if os.path.isfile(full) and not os.path.islink(full) else 0
        if size > carried.MAX_BYTES and b"lfs" not in own.run("check-attr", "-z", "filter", "--", name).split(b"\0"):
            carried.refuse_size(name, size)


def _names(out: bytes) -> list[str]:
    return [os.fsdecode(name) for name in out.split(b"\0") if name]
