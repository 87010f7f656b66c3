"""A commit that the repository's own hooks look at: made by `git commit` in a tree of the pool."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from autoresearch.errors import Refused
from autoresearch.git import SLOW_S, Git, reason, treerecords
from autoresearch.git.spawn import Done

if TYPE_CHECKING:
    from autoresearch.git.hypothesis import Variables
    from autoresearch.git.trees import Pool, Tree

FOLDER = "left_by_hooks"
HOOKS_S = 1800.0  # a first run of pre-commit builds its environments


def commit(pool: Pool, parent: str, content: str, message: str, variables: Variables) -> tuple[str, str]:
    """Commit the root tree `content` on top of `parent` with hooks; returns (commit, its root tree).

    Who commits, and which hooks, is as in the user's checkout. A hook that rewrites files gets one restage and a second
    try; then it is a refusal. What it leaves in the tree besides goes to `<pool>/left_by_hooks`.

    Raises:
        Refused: a hook said no, or keeps rewriting.
    """
    owner = treerecords.holder("hooks")
    tree = pool.acquire(parent, owner)
    own, is_made = pool.git.at(tree.path), False
    try:
        with treerecords.writing(pool.directory, tree.number):
            own.run("read-tree", "-m", "-u", parent, content, timeout=SLOW_S)
            made = _commit(own, pool.git.repo, parent, message, variables)
        root = own.run("rev-parse", f"{made}^{{tree}}").decode("ascii").strip()
        pool.adopt(tree, made)
        is_made = True
        return made, root
    finally:
        left = treerecords.let_go(pool.directory, tree.number)
        if not is_made:
            with treerecords.writing(pool.directory, tree.number):
                _undo(own, parent)
        pool.give_back(owner, os.path.join(pool.directory, FOLDER), "a hook left a process in it" if left else "")


def take_back(pool: Pool, tree: Tree, wait_s: float | None) -> None:
    """Take back the tree of a call that was killed; all that its git made of it came from that call.

    Raises:
        TryAgain: that git, or its hook, still works in it after `wait_s`.
    """
    with treerecords.writing(pool.directory, tree.number, wait_s):
        if tree.kind == "run":
            _undo(pool.git.at(tree.path), tree.commit)
    pool.give_back(tree.owner, os.path.join(pool.directory, FOLDER))


def _undo(own: Git, commit: str) -> None:
    """Set a tree's HEAD back to where it was: it keeps no commit that nobody wants."""
    own.call("update-ref", "--no-deref", "-m", "autoresearch: refused", "HEAD", commit)


def _commit(own: Git, top: str, parent: str, message: str, variables: Variables) -> str:
    said = Done(1, b"", b"")
    hooks = os.path.expanduser(variables.hooks_path)
    # A relative path counts from the tree; hooks that git does not know are in the checkout alone.
    elsewhere = hooks and not os.path.isdir(os.path.join(own.repo, hooks))
    where = ("-c", f"core.hooksPath={os.path.join(top, hooks)}") if elsewhere else ()
    for _ in range(2):
        said = own.call(
            *(*where, "commit", "--quiet", "--allow-empty", "--cleanup=whitespace", "-F", "-"),
            input=os.fsencode(message),
            env=_identity("AUTHOR", variables.author) | _identity("COMMITTER", variables.committer),
            hooks=True,
            timeout=HOOKS_S,
        )
        rewritten = own.run("ls-files", "-z", "-m", timeout=SLOW_S)
        if not said.code and not rewritten:
            return own.commit("HEAD")
        if not rewritten:
            break
        # No run on a change that is not committed: what the hook wrote is staged, and the commit made again.
        if not said.code:
            own.run("update-ref", "--no-deref", "-m", "autoresearch: restage", "HEAD", parent)
        own.run("update-index", "--add", "--remove", "-z", "--stdin", input=rewritten)
    why = f"the repository's commit hook says: {reason(said.err or said.out)}" if said.code else "it rewrites each time"
    raise Refused("commit hook", why, "mend what it complains about in your files, or the hook")


def _identity(role: str, ident: str) -> dict[str, str]:
    name, _, mail = ident.rpartition(" <")
    return {f"GIT_{role}_NAME": name, f"GIT_{role}_EMAIL": mail.removesuffix(">")} if ident else {}
