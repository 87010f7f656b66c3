"""Finding the files of one attempt: below its own directories, and not older than the run."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator

from autoresearch.metrics import Where

DEPTH = 8
# File systems stamp with a clock that may lag a few milliseconds behind time.time().
SLACK = 0.05


def fresh(path: str, started_at: float) -> bool:
    """Whether a file was written by the run; one that cannot be looked at was not."""
    try:
        return os.stat(path).st_mtime >= started_at - SLACK
    except OSError:
        return False


def walk(root: str, *, own: bool = False, depth: int = DEPTH) -> Iterator[str]:
    """Every regular file at or below `root`, without following links to directories.

    Args:
        root: a file or a directory; nothing is yielded when it does not exist.
        own: leave out `2`, `3`, ... directly below: they are the log directories of later attempts.
        depth: how many directories deep.
    """
    if os.path.isfile(root):
        yield root
        return
    try:
        entries = sorted(os.scandir(root), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if not entry.is_dir(follow_symlinks=False):
            if os.path.isfile(entry.path):  # opening a pipe would wait for its writer
                yield entry.path
        elif depth > 0 and entry.name not in (".git", ".venv", "__pycache__", "node_modules"):
            if own and entry.name.isdigit() and 2 <= int(entry.name) < 10_000:
                continue
            yield from walk(entry.path, depth=depth - 1)


def search(roots: list[str], started_at: float, patterns: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Files whose name fits a pattern: (those of this run by age, those that are older), each once.

    The first root that holds one of this run's decides; the others are not looked at then.
    """
    old: list[str] = []
    for index, root in enumerate(roots):
        if not root:
            continue
        hits = [path for path in walk(root, own=index == 0) if _fits(os.path.basename(path), patterns)]
        now = [path for path in hits if fresh(path, started_at)]
        old += [path for path in hits if path not in now]
        if now:
            return sorted(now, key=lambda path: (os.stat(path).st_mtime, path)), old
    return [], old


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def named(path: str, where: Where) -> list[str]:
    """The files that a source's PATH may mean: absolute, or relative to the tree, then the logs, then the artifacts.

    Of a path's end there may be several below the logs: those of this run then, the last written one last.
    """
    if os.path.isabs(path):
        return [path] if os.path.exists(path) else []
    for root in (where.tree, where.logs, where.artifacts):
        if root and os.path.exists(os.path.join(root, path)):
            return [os.path.join(root, path)]
    for root in (where.logs, where.artifacts):
        hits = [found for found in walk(root, own=True) if found.endswith(os.sep + path)] if root else []
        if hits:
            return sorted((hit for hit in hits if fresh(hit, where.started_at)), key=_written) or hits
    return []


def _written(path: str) -> tuple[float, str]:
    try:
        return os.stat(path).st_mtime, path
    except OSError:
        return 0.0, path


def stale(path: str) -> str:
    """The reason that a file is not read: it was written before the run."""
    import time

    try:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(os.stat(path).st_mtime))
    except OSError as error:
        return f"cannot read {path}: {error.strerror}"
    return f"{path} was last written at {stamp}, before the run started"
