"""FILES: what the user changed in named paths since the base, put onto the parent, three ways where needed."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import NamedTuple

from autoresearch.errors import AutoresearchError, Refused, Usage
from autoresearch.git import Git, failure, treeobjects
from autoresearch.git.treeobjects import LINK, SUBMODULE, Entry

MAX_BYTES = 10 * 1024 * 1024


class Carried(NamedTuple):
    """The result of carrying files onto a parent."""

    tree: str  # hash of the new root tree
    paths: list[str]  # changed against the parent
    unchanged: list[str]  # named, but the same as in the base or already so in the parent


def is_env(path: str) -> bool:
    """Return whether a path is a .env file, which no commit of ours may hold."""
    name = os.path.basename(path).casefold()
    return name == ".env" or name.startswith(".env.")


def refuse_env(path: str) -> None:
    """Refuse a .env file."""
    if is_env(path):
        raise Refused(
            "hypothesis", f"{path!r} may hold secrets and is never committed", "leave it out, or move it away"
        )


def refuse_size(path: str, size: int) -> None:
    """Refuse a file over 10 MB."""
    if size > MAX_BYTES:
        why = f"{path!r} has {size / 1048576:.1f} MB, and files over 10 MB are never committed"
        raise Refused("hypothesis", why, "name it in the plan's REQUIRE instead: it is linked into each tree")


def carry(git: Git, top: str, files: Sequence[str], base: str, onto: str) -> Carried:
    """Return the tree that results from the user's changes in `files` on top of `onto`.

    Args:
        git: git in the user's checkout; nothing in that checkout is written.
        top: root of the checkout.
        files: paths relative to it, or absolute ones inside; a directory means what was changed below it.
        base: the commit the user's changes are counted from.
        onto: the commit or tree that they are applied to.

    Raises:
        Usage: a path outside the repository, or one that names nothing.
        Refused: a conflict, a .env file, a file over 10 MB, a submodule, something that is no file.
    """
    paths = _expand(git, top, list(dict.fromkeys(_relative(top, path) for path in files)), base)
    _refuse_unmerged(git, top, paths)
    kinds = {path: _kind(top, path) for path in paths}
    directories = treeobjects.ancestors(paths)
    roots = list(dict.fromkeys([base, onto]))
    reading = treeobjects.start(git, roots, directories)
    sizes = {path: info.st_size for path, info in kinds.items() if info and stat.S_ISREG(info.st_mode)}
    large = [path for path, size in sizes.items() if size > MAX_BYTES]
    hashes = _hash(git, top, [path for path in sizes if path not in large], write=True)
    hashes.update(_hash(git, top, large, write=False))
    trees = treeobjects.finish(reading, roots, directories)
    edits: dict[str, Entry | None] = {}
    unchanged: list[str] = []
    for path in paths:
        before, theirs = treeobjects.entry(trees, base, path), treeobjects.entry(trees, onto, path)
        _check_submodule(trees, (base, onto), path)
        mine = _entry(git, top, path, kinds[path], hashes, before)
        if mine in (before, theirs):
            unchanged.append(path)
            continue
        if path in large:
            _check_large(git, top, path, sizes[path])
        edits[path] = mine if theirs == before else _merge(git, path, before, mine, theirs)
    tree = treeobjects.write(git, trees, onto, edits) if edits else ""
    return Carried(tree, sorted(edits), unchanged)


def _refuse_unmerged(git: Git, top: str, paths: Sequence[str]) -> None:
    """Refuse a file that a half-done merge left with conflict marks; no git call while nothing is half done."""
    from autoresearch.git import repository, submodules

    directory = submodules.git_directory(top) or git.common
    if any(os.path.exists(os.path.join(directory, name)) for name, _, _ in repository.UNFINISHED):
        unmerged = _names(git.run("ls-files", "-u", "-z", "--", *paths))
        if unmerged:
            path = unmerged[0].partition("\t")[2]
            raise Refused("FILES", f"{path!r} is in the middle of a merge", "resolve it and git add it")


def _relative(top: str, path: str) -> str:
    """Return a named path relative to the checkout."""
    full = os.path.normpath(os.path.join(top, path))
    if not path or os.path.commonpath([full, top]) != top:
        raise Usage("FILES", f"{path!r} is outside of {top}", "name files of the repository")
    relative = os.path.relpath(full, top)
    if "\n" in relative or "\0" in relative:
        raise Refused("FILES", f"{path!r} has a line break in its name", "rename it, or edit it in: make start NAME=y")
    parts = relative.split("/")
    if any(part.casefold() == ".git" for part in parts):
        raise Refused("FILES", f"{path!r} is git's own", "name files of the project")
    for at in range(1, len(parts)):
        if os.path.islink(os.path.join(top, *parts[:at])):
            raise Refused("FILES", f"{path!r} lies behind the link {'/'.join(parts[:at])!r}", "name the real path")
        if os.path.lexists(os.path.join(top, *parts[:at], ".git")):
            raise Refused("FILES", f"{path!r} is in a submodule or another repository", "name files of this one")
    return relative


def _expand(git: Git, top: str, paths: list[str], base: str) -> list[str]:
    """Replace directories, also deleted ones, by the files below them; every named path must exist somewhere."""
    found: dict[str, None] = {}
    for path in paths:
        full = os.path.join(top, path)
        if os.path.lexists(full) and (os.path.islink(full) or not os.path.isdir(full)):
            refuse_env(path)
            found[path] = None
            continue
        if path != "." and os.path.lexists(os.path.join(full, ".git")):
            raise Refused("FILES", f"{path!r} is a repository of its own", "name files of this one")
        below = ("--", path) if path != "." else ()
        known = _names(git.run("ls-tree", "-r", "-z", "--name-only", base, *below))
        if os.path.isdir(full):
            known += _names(git.run("ls-files", "-z", "-c", "-o", "--exclude-standard", "--", path))
        if not known:
            raise Usage("FILES", f"{path!r} is neither in your checkout nor in the base", "check the name")
        for name in known:
            if name.endswith("/"):
                raise Refused("FILES", f"{name!r} is a repository of its own", "name files of this one")
            if "\n" in name:
                raise Refused("FILES", f"{name!r} has a line break in its name", "rename it, or use: make start NAME=y")
            if not is_env(name) or name == path:  # below a directory it was not named
                found[name] = None
    return list(found)


def _names(out: bytes) -> list[str]:
    return [os.fsdecode(name) for name in out.split(b"\0") if name]


def _kind(top: str, path: str) -> os.stat_result | None:
    """Return what lies at a path of the checkout, None when it was deleted."""
    try:
        info = os.lstat(os.path.join(top, path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISDIR(info.st_mode):
        return None if not os.path.lexists(os.path.join(top, path, ".git")) else info
    if not (stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode)):
        raise Refused("FILES", f"{path!r} is neither a file nor a link", "name regular files")
    if stat.S_ISREG(info.st_mode) and not os.access(os.path.join(top, path), os.R_OK):
        raise Refused("FILES", f"{path!r} cannot be read", "check its permissions")
    return info


def _hash(git: Git, top: str, paths: Sequence[str], write: bool) -> dict[str, str]:
    """Return the hashes of files as git would store them (line ends and filters applied), written when asked."""
    if not paths:
        return {}
    words = ("hash-object", *(("-w",) if write else ()))
    own = git.at(top)
    # With --stdin-paths a leading quote means git's own quoting.
    odd = [path for path in paths if path.startswith('"')]
    plain = [path for path in paths if not path.startswith('"')]
    out = b""
    if plain:
        out += own.run(
            *words, "--stdin-paths", input="".join(f"{path}\n" for path in plain).encode("utf-8", "surrogateescape")
        )
    if odd:
        out += own.run(*words, "--", *odd)
    return dict(zip([*plain, *odd], out.decode("ascii").split(), strict=True))


def _entry(
    git: Git, top: str, path: str, info: os.stat_result | None, hashes: dict[str, str], before: Entry | None
) -> Entry | None:
    """Return what the user's checkout holds at a path, as git would store it."""
    if info is None:
        return before if before is not None and _is_sparse(git, path) else None
    if stat.S_ISDIR(info.st_mode):
        raise Refused("FILES", f"{path!r} is a submodule or a repository of its own", "name files of this repository")
    if stat.S_ISLNK(info.st_mode):
        target = os.fsencode(os.readlink(os.path.join(top, path)))
        sha = git.run("hash-object", "-w", "--no-filters", "--stdin", input=target).decode("ascii").strip()
        return Entry(LINK, sha)
    mode = "100755" if info.st_mode & stat.S_IXUSR else "100644"
    if before is not None and before.mode.startswith("100") and before.mode != mode and not _has_modes(git):
        mode = before.mode
    return Entry(mode, hashes[path])


def _is_sparse(git: Git, path: str) -> bool:
    """Return whether a file is absent because the checkout is sparse, not because it was deleted."""
    return git.run("ls-files", "-v", "-z", "--", path).startswith(b"S ")


def _has_modes(git: Git) -> bool:
    """Return whether execute bits mean something on the checkout's disk."""
    return git.call("config", "--type=bool", "--get", "core.fileMode").out != b"false\n"


def _check_submodule(trees: treeobjects.Trees, roots: Sequence[str], path: str) -> None:
    for directory in [*treeobjects.ancestors([path])[1:], path]:
        for root in roots:
            found = treeobjects.entry(trees, root, directory)
            if found is not None and found.mode == SUBMODULE:
                raise Refused("FILES", f"{path!r} is in the submodule {directory!r}", "commit there, then name a PATCH")


def _check_large(git: Git, top: str, path: str, size: int) -> None:
    """Refuse a large file, unless LFS keeps its content out of git; then store the pointer."""
    value = git.at(top).run("check-attr", "-z", "filter", "--", path).split(b"\0")
    if b"lfs" not in value:
        refuse_size(path, size)
    _hash(git, top, [path], write=True)


def _merge(git: Git, path: str, before: Entry | None, mine: Entry | None, theirs: Entry | None) -> Entry:
    """Merge the user's and the parent's change of a file; refuses a conflict."""
    if before is None or mine is None or theirs is None:
        raise _conflict(path, "one side deleted or both added it")
    if any(not item.mode.startswith("100") for item in (before, mine, theirs)):
        raise _conflict(path, "it is not a plain file on each side")
    mode = mine.mode if mine.mode != before.mode else theirs.mode
    if mine.sha == before.sha:
        return Entry(mode, theirs.sha)
    import tempfile

    with tempfile.TemporaryDirectory(prefix="autoresearch-") as folder:
        for name, item in (("yours", mine), ("base", before), ("parent", theirs)):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(git.run("cat-file", "blob", item.sha))
        done = git.at(folder).call("merge-file", "-p", "-q", "yours", "base", "parent")
    if 0 < done.code < 128:
        raise _conflict(path, f"{done.code} place{'s' * (done.code > 1)} were changed on both sides")
    if done.code:
        if b"binary" in done.err:
            raise _conflict(path, "it is binary")
        raise failure(("git", "merge-file"), done)
    sha = git.run("hash-object", "-w", "--no-filters", "--stdin", input=done.out).decode("ascii").strip()
    return Entry(mode, sha)


def _conflict(path: str, why: str) -> AutoresearchError:
    fix = "merge it by hand in a tree of its own (make start NAME=y), or choose another PARENT"
    return Refused("FILES", f"{path!r} conflicts with the parent's change of it: {why}", fix)
