"""Whether a tree equals a fresh checkout of its commit: tracked, untracked and ignored files, empty directories.

The comparison goes through a private copy of the index, made when the tree was clean: the tree's own index hides
edits of files marked assume-unchanged or skip-worktree. One `ls-files` finds what diff-files and `clean -ndxff` find;
sockets, FIFOs and repositories of a run's own, which git passes over, are looked for beside it when a tree comes back.
What nobody sees: permission bits other than execute, and times.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import NamedTuple

from autoresearch import files
from autoresearch.git import Git
from autoresearch.git.spawn import Running

LISTING = ("-c", "core.fileMode=true", "ls-files", "-z", "-t", "-m", "-o", "--directory")
# What decides how git writes a file into a tree; a tree filled under other values looks clean and is not fresh.
_SETTINGS = ("core.autocrlf", "core.eol", "core.attributesfile", "core.symlinks", "core.sparsecheckout", "filter.")


class State(NamedTuple):
    """How a tree differs from its commit; paths below the tree, a directory of strays ends with a slash."""

    strays: list[str]  # not in the commit
    changed: list[str]  # of the commit: edited, deleted, or of another type or mode

    @property
    def is_fresh(self) -> bool:
        """Nothing differs."""
        return not self.strays and not self.changed


def start(git: Git, index: str) -> Running:
    """Start the comparison of the tree that `git` stands in with the private index `index`."""
    return git.start(*LISTING, env={"GIT_INDEX_FILE": index}, timeout=600)


def finish(running: Running) -> State | None:
    """Return how the tree differs; None when git could not say (its git directory or index is broken)."""
    done = running.finish()
    if done.code:
        return None
    state = State([], [])
    for record in done.out.split(b"\0"):
        if record:
            (state.strays if record[:1] == b"?" else state.changed).append(os.fsdecode(record[2:]))
    return state


def look(git: Git, parts: list[tuple[str, str]], tree: str) -> State | None:
    """Return how a tree with its submodules differs from a fresh one; None when git could not say.

    Args:
        parts: (path of the submodule below the tree, empty for the tree itself; its private index).
    """
    whole = State([], [])
    unlisted: list[str] = []
    for path, index in parts:
        running = start(git.at(os.path.join(tree, path) if path else tree), index)
        if not path:  # while git reads the same directories on the other core
            unlisted = _unlisted(tree, {part for part, _ in parts})
        state = finish(running)
        if state is None:
            return None
        for mine, found in zip(whole, state, strict=True):
            mine.extend(os.path.join(path, name) for name in found)
    folders = tuple(name for name in whole.strays if name.endswith("/"))
    whole.strays.extend(name for name in unlisted if not name.startswith(folders))
    return whole


def _unlisted(tree: str, tops: Collection[str]) -> list[str]:
    """Return what `ls-files` passes over: sockets, FIFOs, and each `.git` but those of `tops`; paths below the tree."""
    found, left = [], [""]
    while left:
        here = left.pop()
        try:
            entries = os.scandir(os.path.join(tree, here))
        except OSError:
            continue  # the run has closed it; what is missed is missed by git as well
        with entries:
            for entry in entries:
                name = entry.name
                if (entry.is_file(follow_symlinks=False) or entry.is_symlink()) and name != ".git":
                    continue
                path = f"{here}/{name}" if here else name
                if name != ".git" and entry.is_dir(follow_symlinks=False):
                    left.append(path)
                elif name != ".git" or here not in tops:
                    found.append(path)
    return found


def copy_index(source: str, target: str) -> None:
    """Copy an index whole, with its time: with a later one, edits of the same second would be missed."""
    with open(source, "rb") as file:
        data, times = file.read(), os.fstat(file.fileno())
    temporary = f"{target}.{os.getpid()}.new"
    with files.naming(target), open(temporary, "wb") as file:
        file.write(data)
    os.utime(temporary, ns=(times.st_atime_ns, times.st_mtime_ns))
    os.replace(temporary, target)


def conversion(git: Git, common: str) -> dict[str, object]:
    """Return what decides how git writes files into a tree: settings, and the files they come from."""
    settings: dict[str, str] = {}
    configs, attributes = _files(git, common)
    fields = git.run("config", "--list", "--show-origin", "-z").split(b"\0")
    for origin, record in zip(fields[0::2], fields[1::2], strict=False):
        key, _, value = os.fsdecode(record).partition("\n")
        if key.startswith(_SETTINGS):
            settings[key] = value
        if origin.startswith(b"file:"):  # included files are among them
            configs.append(os.path.join(git.repo, os.fsdecode(origin[5:])))
    extra = settings.get("core.attributesfile", "")
    attributes += [os.path.expanduser(extra)] if extra else []
    return {
        "settings": settings,
        "configs": {path: _stat(path) for path in configs},
        "attributes": {path: _stat(path) for path in attributes},
    }


def is_same_conversion(git: Git, common: str, old: dict[str, object]) -> bool:
    """Return whether git would write files as it did when `old` was taken; runs git only when a config changed."""
    for kind in ("attributes", "configs"):
        files = old.get(kind)
        if not isinstance(files, dict):
            return False
        if any(_stat(path) != stat for path, stat in files.items()):
            if kind == "attributes":
                return False
            return conversion(git, common)["settings"] == old.get("settings")
    return True


def _files(git: Git, common: str) -> tuple[list[str], list[str]]:
    env = git.variables
    home = env.get("HOME", "")
    xdg = os.path.join(env.get("XDG_CONFIG_HOME") or os.path.join(home, ".config"), "git")
    configs = [os.path.join(common, "config"), os.path.join(common, "config.worktree"), "/etc/gitconfig"]
    configs += [env.get("GIT_CONFIG_GLOBAL") or os.path.join(home, ".gitconfig"), os.path.join(xdg, "config")]
    info = [os.path.join(common, "info", name) for name in ("attributes", "sparse-checkout")]
    return configs, [*info, os.path.join(xdg, "attributes"), "/etc/gitattributes"]


def _stat(path: str) -> list[int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return [found.st_mtime_ns, found.st_size, found.st_ino]
