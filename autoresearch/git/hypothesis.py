"""The commit of a hypothesis: one signed-off commit from named files, a patch, an edited tree, or several of them.

Only objects are written here; no ref, index or file that the user knows of changes until a branch is created.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from autoresearch.errors import AutoresearchError, Refused, Usage
from autoresearch.git import Git, failure
from autoresearch.git.spawn import Done

if TYPE_CHECKING:
    from autoresearch.git.trees import Pool, Tree

HOOKS = ("pre-commit", "prepare-commit-msg", "commit-msg")
# Prose and data, fewer lines of which make nothing simpler; binary files have none.
NO_CODE = (b".md", b".rst", b".adoc", b".jsonl", b".ndjson", b".csv", b".tsv", b".svg")
MAX_PATCH_BYTES = 64 * 1024 * 1024


class Hypothesis(NamedTuple):
    """A commit that no ref points to yet; create or move its branch before anything is recorded of it."""

    commit: str
    tree: str  # hash of its root tree: equal hashes are equal content
    parent: str  # the commit's own parent in git
    paths: tuple[str, ...]  # changed against that parent, with `tree` since it was filled or settled
    unchanged: tuple[str, ...] = ()  # named in FILES, but nothing to carry
    private_index: str = ""  # from an edited tree: for `Pool.settle`


def build(
    git: Git,
    *,
    parent: str,
    base: str,
    subject: str,
    trailers: Sequence[tuple[str, str]] = (),
    files: Sequence[str] = (),
    patch: str = "",
    tree: Tree | None = None,
    pool: Pool | None = None,
    allow_empty: bool = False,
) -> Hypothesis:
    """Build the commit of a hypothesis.

    Args:
        git: git in the user's checkout (its root).
        parent: the commit it goes on top of, full hash; for a rerun the tip of its branch. With `tree` it goes on top
            of what the tree sits on, so that commits made there by hand stay below it.
        base: the campaign's base, from which the user's changes in `files` are counted.
        subject: one line, `area: change`.
        trailers: key and value pairs for the end of the message; a value may hold anything.
        files: paths of the checkout whose changes are taken.
        patch: path of a diff to apply.
        tree: the experiment's own tree from `start`; everything edited in it is taken, commits made in it too.
        pool: the campaign's trees; needed for `tree`, and where the repository has commit hooks.
        allow_empty: take a commit that changes nothing.

    Raises:
        Usage: a path outside of the repository, no subject.
        Refused: nothing changed, a conflict, a patch that does not apply, a .env file, a file over 10 MB, a hook's no.
    """
    asked = git.start("var", "-l", hooks=True)
    try:
        found = _gather(git, parent, base, files, patch, tree, pool)
    finally:
        variables = _variables(asked.finish())
    text = message(subject, trailers, variables.committer)
    if not found.paths and not allow_empty:
        raise _nothing(found.unchanged, patch, tree)
    tip, content, paths = found.tip, found.content, found.paths
    if paths and _has_hooks(git, variables.hooks_path):
        from autoresearch.git import hooked

        if pool is None:
            raise AutoresearchError(
                "hypothesis", "the repository has commit hooks, and no pool to run them in was given"
            )
        commit, content = hooked.commit(pool, tip, content, text, variables)
        paths = _check(git, found.since, content)
    else:
        content = content or _root(git, tip)
        done = git.call("commit-tree", "-p", tip, content, input=os.fsencode(text))
        if done.code:
            raise failure(("git", "commit-tree"), done)
        commit = done.out.decode("ascii").strip()
    return Hypothesis(commit, content, tip, tuple(paths), tuple(found.unchanged), found.private_index)


class _Gathered(NamedTuple):
    content: str  # hash of the root tree, empty when it is that of the parent
    tip: str  # what the commit goes on top of: the parent, or a commit made by hand in the tree
    paths: list[str]
    unchanged: list[str]
    private_index: str
    since: str  # what `paths` is counted from


def _gather(
    git: Git, parent: str, base: str, files: Sequence[str], patch: str, tree: Tree | None, pool: Pool | None
) -> _Gathered:
    """Put together what was edited in the tree, then FILES, then PATCH."""
    content, tip, index, since = "", parent, "", parent
    if tree is not None:
        from autoresearch.git import edited

        if pool is None:
            raise AutoresearchError("hypothesis", "a tree was given without its pool")
        content, tip, index, since = edited.look(git, pool, tree)
    unchanged: list[str] = []
    if files:
        from autoresearch.git import carried

        taken = carried.carry(git, git.repo, files, base, content or tip)
        content, unchanged = taken.tree or content, taken.unchanged
        if tree is None and not patch:  # the fast path: `carry` has judged every path already
            return _Gathered(content, tip, taken.paths, unchanged, index, since)
    if patch:
        content = _patched(git, patch, content or tip)
    paths = _check(git, since, content) if content else []
    return _Gathered(content, tip, paths, unchanged, index, since)


def _nothing(unchanged: list[str], patch: str, tree: Tree | None) -> Refused:
    if unchanged:
        why = f"nothing in {', '.join(unchanged[:5])} differs from the base or the parent"
    elif patch:
        why = f"the patch {patch!r} changes nothing"
    elif tree is not None:
        why = f"nothing was edited in {tree.path}"
    else:
        why = "no FILES, PATCH or edited tree says what is new"
    return Refused("hypothesis", why, "edit something, give OVERRIDES, or say ALLOW_EMPTY=1")


def one_line(value: str) -> str:
    """Return a value as a trailer holds it: backslash, line breaks, tab and NUL escaped as in the ledger."""
    for plain, written in (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"), ("\0", "\\0")):
        value = value.replace(plain, written)
    return value


def message(subject: str, trailers: Sequence[tuple[str, str]], ident: str) -> str:
    """Return the commit's message: subject, trailers, and the sign-off of `ident` (`Name <mail>`).

    Raises:
        Usage: there is no subject, or a trailer's key is no word.
    """
    first = " ".join(subject.replace("\0", " ").split())
    if not first:
        raise Usage("HYPOTHESIS", "it is empty", "say what changes and where: HYPOTHESIS='optim: raise lr to 1e-4'")
    lines = []
    for key, value in trailers:
        if not re.fullmatch(r"[A-Za-z0-9-]+", key):
            raise Usage("trailer", f"{key!r} is not a word", "use letters, digits and '-'")
        lines.append(f"{key}: {one_line(value)}".rstrip())
    return "\n".join([first, "", *lines, f"Signed-off-by: {ident}"]) + "\n"


def lines(git: Git, parent: str, commit: str) -> tuple[int, int]:
    """Return how many lines of code or config a commit adds and removes against `parent`."""
    added = removed = 0
    words = ("diff-tree", "-r", "-z", "--no-renames", "--no-textconv", "--no-ext-diff", "--numstat")
    for record in git.run(*words, parent, commit).split(b"\0"):
        fields = record.split(b"\t", 2)
        if len(fields) == 3 and fields[0] != b"-" and not fields[2].lower().endswith(NO_CODE):
            added, removed = added + int(fields[0]), removed + int(fields[1])
    return added, removed


def changed_lines(git: Git, parent: str, commit: str) -> list[str]:
    """Return the lines that a commit adds and removes against `parent`."""
    words = ("diff-tree", "-r", "-p", "-U0", "--no-renames", "--no-color", "--no-textconv", "--no-ext-diff")
    found, inside = [], False
    for line in git.run(*words, parent, commit).decode("utf-8", "replace").split("\n"):
        inside = line.startswith("@@") or (inside and line[:1] in ("+", "-", "\\"))
        if inside and line[:1] in ("+", "-"):
            found.append(line[1:])
    return found


class Variables(NamedTuple):
    """What git goes by in the user's checkout; a tree of the pool may match other conditions of its config files."""

    author: str  # Name <mail>
    committer: str
    hooks_path: str  # core.hooksPath, empty for the repository's own


def _variables(done: Done) -> Variables:
    """Return what `git var -l` says; commit-tree is what refuses a missing identity."""
    if done.code:
        raise failure(("git", "var"), done)
    found = dict.fromkeys(("GIT_AUTHOR_IDENT", "GIT_COMMITTER_IDENT", "core.hookspath"), "")
    for line in os.fsdecode(done.out).split("\n"):
        key, _, value = line.partition("=")
        if key in found:
            found[key] = value.rpartition(">")[0] + ">" if key.startswith("GIT_") else value
    return Variables(*found.values())


def _has_hooks(git: Git, hooks_path: str) -> bool:
    """Return whether the repository has enabled a hook that looks at or rewrites a commit."""
    folder = os.path.expanduser(hooks_path) if hooks_path else os.path.join(git.common, "hooks")
    folder = os.path.join(git.repo, folder)  # a relative one is taken from the checkout
    paths = (os.path.join(folder, hook) for hook in HOOKS)
    return any(os.path.isfile(path) and os.access(path, os.X_OK) for path in paths)


def _root(git: Git, name: str) -> str:
    return git.run("rev-parse", "--verify", f"{name}^{{tree}}").decode("ascii").strip()


def _patched(git: Git, patch: str, onto: str) -> str:
    """Return the tree that results from a diff applied to a commit or tree, through an index of its own."""
    data = _read_patch(git, patch)
    import tempfile

    with tempfile.TemporaryDirectory(prefix="autoresearch-") as folder:
        env = {"GIT_INDEX_FILE": os.path.join(folder, "index")}
        git.run("read-tree", onto, env=env)
        words = ("apply", "--cached", "--whitespace=nowarn")
        done = git.call(*words, "-", input=data, env=env)
        # A second try goes against the blobs that the diff was made from, where the repository has them.
        if done.code and git.call(*words, "--3way", "-", input=data, env=env).code:
            if git.call(*words, "--reverse", "--check", "-", input=data, env=env).code:
                raise _unfit(patch, done)
            return _root(git, onto)  # it is in there already, from a launch that was cut off
        return git.run("write-tree", env=env).decode("ascii").strip()


def _read_patch(git: Git, patch: str) -> bytes:
    path = os.path.join(git.repo, patch)
    try:
        if os.path.getsize(path) > MAX_PATCH_BYTES or not os.path.isfile(path):
            raise Refused("PATCH", f"{path!r} is not a diff of a sensible size", "give a file made by: git diff")
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise Refused("PATCH", f"cannot read {path!r} ({error.strerror})", "give a file made by: git diff") from error


def _unfit(patch: str, done: Done) -> Refused:
    said = [line.removeprefix("error: ") for line in done.err.decode("utf-8", "replace").splitlines() if line.strip()]
    said = [line for line in said if not line.startswith(("hint:", "warning:"))] or ["no message"]
    why = "; ".join("".join(c if c.isprintable() else " " for c in line) for line in said[:4])
    return Refused("PATCH", f"{patch!r} does not apply to the parent: {why}", "make it anew: git diff PARENT > x.diff")


def _check(git: Git, before: str, after: str) -> list[str]:
    """Return the paths that differ between two commits or trees; refuses what no commit of ours may hold."""
    from autoresearch.git import carried

    fields = git.run("diff-tree", "-r", "-z", "--no-renames", before, after).split(b"\0")
    blobs: dict[str, str] = {}
    paths = []
    for head, name in zip(fields[0::2], fields[1::2], strict=False):
        path, (_, mode, _, sha, _) = os.fsdecode(name), head.decode("ascii").split(" ")
        carried.refuse_env(path)
        if mode == "160000":
            raise Refused("hypothesis", f"{path!r} is a submodule or a repository of its own", "name files instead")
        if mode != "000000":
            blobs[path] = sha
        paths.append(path)
    if blobs:
        asked = "".join(f"{sha}\n" for sha in blobs.values()).encode("ascii")
        sizes = git.run("cat-file", "--batch-check=%(objectsize)", input=asked).split()
        for path, size in zip(blobs, sizes, strict=True):
            carried.refuse_size(path, int(size))
    return paths
