"""What the user's repository is, whether it can carry a campaign, and the few things read or written beside it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from autoresearch import files
from autoresearch.errors import Refused
from autoresearch.git import (
    ZEROS,
    Git,
    entries,
    failure,
    foreign_owner,
    no_identity,
    owner_name,
    repository_lock,
    write_own_ref,
)
from autoresearch.git.spawn import Done

# What git leaves in its directory while something is half done, and how it is finished.
UNFINISHED = (
    ("rebase-merge", "a rebase", "git rebase --continue, or --abort"),
    ("rebase-apply", "a rebase or git am", "git rebase --continue, or git am --abort"),
    ("MERGE_HEAD", "a merge", "git commit, or git merge --abort"),
    ("CHERRY_PICK_HEAD", "a cherry-pick", "git cherry-pick --continue, or --abort"),
    ("REVERT_HEAD", "a revert", "git revert --continue, or --abort"),
    ("BISECT_LOG", "a bisection", "git bisect reset"),
)


class Place(NamedTuple):
    """Where a repository is, all paths absolute and physical."""

    top: str  # the root of the user's checkout
    directory: str  # its git directory
    common: str  # the git directory that all its worktrees share
    head: str  # the commit that is checked out
    branch: str  # refs/heads/..., or empty when HEAD is detached
    shallow: bool


class Change(NamedTuple):
    """One uncommitted change of the user: git's two-letter code (`??` is untracked) and the path."""

    code: str
    path: str


class BranchExists(Refused):
    """The branch that was to be created is there already."""


class BranchMoved(Refused):
    """The branch that was to be moved is no longer where it was."""


def look(git: Git) -> Place:
    """Return where the repository is, in one git call.

    Raises:
        Refused: not a repository, bare, another user's, or without a first commit; each with its remedy.
    """
    asked = ("--is-bare-repository", "--is-shallow-repository", "--absolute-git-dir", "--path-format=absolute")
    done = git.call(
        *("rev-parse", *asked, "--git-common-dir", "--show-toplevel"), "HEAD^{commit}", "--symbolic-full-name", "HEAD"
    )
    lines = done.out.decode("utf-8", "surrogateescape").split("\n")
    if done.code:
        raise _cannot(git, lines, done)
    if len(lines) != 8:
        raise Refused("repository", f"its path holds a line break: {git.repo!r}", "rename that directory")
    bare, shallow, directory, common, top, head, branch, _ = lines
    if bare == "true":
        raise _bare(git)
    return Place(top, directory, common, head, "" if branch == "HEAD" else branch, shallow == "true")


def _bare(git: Git) -> Refused:
    return Refused("repository", f"{git.repo} is bare: it has no checkout to read", "call it in a clone with files")


def _cannot(git: Git, lines: list[str], done: Done) -> Exception:
    if lines[0] == "true":
        return _bare(git)
    if b"dubious ownership" in done.err or b"not a git repository" in done.err:
        return failure(("git", "rev-parse"), done)
    if b"must be run in a work tree" in done.err:
        return Refused("repository", f"{git.repo} is a git directory, not a checkout", "call it in the checkout")
    if len(lines) >= 6:  # everything was found but HEAD
        return Refused("repository", "it has no commit yet", "make a first one: git add ... && git commit")
    return failure(("git", "rev-parse"), done)


def identity(git: Git) -> str:
    """Return who commits, `Name <mail>`, as git itself decides.

    Raises:
        Refused: git does not know (nothing is guessed where git refuses to guess).
    """
    return ident_of(git.call("var", "GIT_COMMITTER_IDENT"))


def ident_of(done: Done) -> str:
    """Return `Name <mail>` from a finished `git var GIT_COMMITTER_IDENT`; raises Refused when git knows none."""
    if done.code:
        from autoresearch.git import reason

        raise no_identity(reason(done.err))
    return done.out.decode("utf-8", "surrogateescape").rpartition(">")[0] + ">"


def check(git: Git, prefix: str = "", base: str = "HEAD") -> list[str]:
    """Refuse a repository that cannot carry a campaign, before anything is made.

    Args:
        git: git in the user's checkout.
        prefix: the campaign's branch prefix; empty: not checked.
        base: the commit that the campaign starts from (its submodules and LFS files are looked at).

    Returns:
        Remarks, one line each, on what is unusual but no obstacle.

    Raises:
        Refused: with the remedy.
    """
    place = look(git)
    check_owner(place)
    check_finished(place.top, place.directory)
    identity(git)
    remarks = check_prefix(git, prefix) if prefix else []
    from autoresearch.git import lfs, submodules

    commit = git.commit(base)
    submodules.check(git, place.top, commit)
    remarks += lfs.check(git, commit)
    if place.shallow:
        remarks.append("the repository is a shallow clone: no history before its edge is used or needed")
    if os.path.exists(os.path.join(place.directory, "index.lock")):
        remarks.append(f"{place.directory}/index.lock exists: git runs there, or died; autoresearch does not need it")
    if git.call("config", "--type=bool", "--get", "commit.gpgSign", env={"GIT_CONFIG_COUNT": "0"}).out == b"true\n":
        remarks.append("commit.gpgSign is on: our commits are not signed, since a prompt would hang them")
    return remarks


def check_owner(place: Place) -> None:
    """Refuse another user's repository: objects that root writes lock the owner out of later writes."""
    for path in (place.top, place.common):
        if os.stat(path).st_uid != os.geteuid():
            raise foreign_owner(f"repository at '{path}'")
    for path in (place.common, os.path.join(place.common, "objects"), os.path.join(place.common, "refs")):
        if not os.access(path, os.W_OK | os.X_OK):
            raise Refused(
                "repository", f"{path} is not writable", f"call it as {owner_name(path)}, on a writable mount"
            )


def check_finished(top: str, directory: str) -> None:
    """Refuse a checkout in the middle of a rebase, merge, cherry-pick, revert or bisection.

    Args:
        top: its root.
        directory: its git directory.
    """
    for name, what, how in UNFINISHED:
        if os.path.exists(os.path.join(directory, name)):
            raise Refused("repository", f"{what} is not finished in {top}", f"first: {how}")


def check_prefix(git: Git, prefix: str) -> list[str]:
    """Refuse a prefix under which git or a case-blind disk could not create branches; returns remarks."""
    if git.call("check-ref-format", "--branch", f"{prefix}/baseline").code:
        raise Refused("PREFIX", f"git takes no branch named {prefix + '/baseline'!r}", "choose a simpler PREFIX")
    listed = git.run("for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads")
    branches = listed.decode("utf-8", "surrogateescape").splitlines()
    wanted = prefix.split("/")
    below = 0
    for branch in branches:
        parts = branch.split("/")
        _check_branch(parts, wanted, branch)
        below += parts[: len(wanted)] == wanted
    return [f"{below} branches below {prefix}/ exist already; they are left as they are"] if below else []


def _check_branch(parts: list[str], wanted: list[str], branch: str) -> None:
    if parts == wanted[: len(parts)]:
        why = f"the branch {branch!r} is in the way: git cannot keep it beside {'/'.join(wanted)}/..."
        raise Refused("PREFIX", why, f"choose another PREFIX, or rename it: git branch -m {branch} {branch}-old")
    if len(parts) > len(wanted) + 1 and parts[: len(wanted) + 1] == [*wanted, "baseline"]:
        raise Refused("PREFIX", f"the branch {branch!r} is in the way of the baseline", "choose another PREFIX")
    for theirs, ours in zip(parts, wanted, strict=False):
        if theirs == ours:
            continue
        if _folded(theirs) == _folded(ours):
            why = f"the branch {branch!r} differs from it only in case or accents, which clash on other disks"
            raise Refused("PREFIX", why, f"write {theirs!r} as that branch does, or choose another PREFIX")
        return


def _folded(name: str) -> str:
    if name.isascii():
        return name.lower()
    import unicodedata

    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def create_branch(git: Git, branch: str, commit: str) -> None:
    """Create `branch` at `commit`; of many callers at once exactly one succeeds.

    Args:
        branch: the name without refs/heads/.

    Raises:
        BranchExists: it is there.
        Refused: another branch is in its way.
    """
    ref = f"refs/heads/{branch}"
    done = write_own_ref(git, ref, "update-ref", "-m", "autoresearch", "--", ref, commit, ZEROS[:1] * len(commit))
    if not done.code:
        return
    if b"already exists" in done.err or b"but expected" in done.err:
        raise BranchExists("branch", f"{branch} exists already", "choose another NAME, or see: make status")
    if b"cannot create" in done.err or b"exists; cannot" in done.err:
        raise Refused("branch", f"another branch is in the way of {branch}", "choose another NAME")
    raise failure(("git", "update-ref"), done)


def move_branch(git: Git, branch: str, commit: str, old: str) -> None:
    """Move `branch` from `old` forward to `commit` (a rerun's commit, whose parent is `old`).

    Raises:
        BranchMoved: the branch is no longer at `old`; nothing was changed.
    """
    ref = f"refs/heads/{branch}"
    done = write_own_ref(git, ref, "update-ref", "-m", "autoresearch", "--", ref, commit, old)
    if done.code:
        if b"but expected" in done.err or b"unable to resolve" in done.err:
            why = f"{branch} is no longer at {old[:12]}"
            raise BranchMoved("branch", why, f"look who moved it: git reflog {branch}")
        raise failure(("git", "update-ref"), done)


def refuse_checked_out(git: Git, branch: str, ours: str) -> None:
    """Refuse to move a branch that the user works on: a checkout of it would show all that is new as undone.

    Args:
        branch: the name without refs/heads/.
        ours: the directory of the campaign's trees, which may have it.
    """
    with repository_lock(git.common):
        entries.mend(git.common)
    path = ""
    for line in os.fsdecode(git.run("worktree", "list", "--porcelain")).split("\n"):
        if line.startswith("worktree "):
            path = line.removeprefix("worktree ")
        elif line == f"branch refs/heads/{branch}" and os.path.dirname(path) != ours and os.path.isdir(path):
            from shlex import quote

            why = f"{branch} is checked out in {path}, which would fall behind it"
            raise Refused("branch", why, f"git -C {quote(path)} switch --detach")


def exclude(git: Git, patterns: Sequence[str]) -> None:
    """Keep paths out of git through the repository's own info/exclude, once and whole; never through .gitignore.

    Args:
        patterns: lines as in .gitignore, for example `/session/`.
    """
    common = git.common
    path = os.path.realpath(os.path.join(common, "info", "exclude"))
    with repository_lock(common):
        try:
            with open(path, "rb") as file:
                old = file.read()
        except FileNotFoundError:
            old = b""
        present = set(old.split(b"\n"))
        missing = [line for line in (os.fsencode(pattern) for pattern in patterns) if line not in present]
        if missing:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            mode = os.stat(path).st_mode & 0o777 if old else 0o644
            start = old if not old or old.endswith(b"\n") else old + b"\n"
            files.replace(path, start + b"\n".join(missing) + b"\n", mode)


def user_changes(git: Git) -> list[Change]:
    """Return what the user has not committed: staged, unstaged and untracked paths (whole directories as one)."""
    out = git.run("status", "--porcelain=v1", "-z", "--untracked-files=normal", "--ignore-submodules=none")
    changes = []
    for record in out.split(b"\0"):
        if record:
            changes.append(Change(record[:2].decode("ascii"), os.fsdecode(record[3:])))
    return changes
