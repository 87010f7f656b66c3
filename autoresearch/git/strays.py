"""What a run left in its tree: moved to the experiment's artifacts, lost never; what can be made again is removed."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from typing import NamedTuple

FOLDER = "left_in_tree"
# Made again by a command, large, or stale by nature.
REMAKEABLE = frozenset({".venv", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".ipynb_checkpoints"})


class Taken(NamedTuple):
    """What became of the strays; paths below the tree."""

    moved: list[str]  # now below `where`, under the same path
    removed: list[str]
    stuck: list[str]  # could not be moved: `path: why`
    where: str  # the directory that took them, empty when none was needed


def is_remakeable(path: str) -> bool:
    """Return whether a stray can be made again, by its name."""
    name = os.path.basename(path.rstrip("/"))
    return name in REMAKEABLE or name.endswith((".pyc", ".egg-info"))


def collect(tree: str, strays: Iterable[str], changed: Iterable[str], artifacts: str) -> Taken:
    """Move strays, and copy changed files of the commit, from a tree to `<artifacts>/left_in_tree`.

    Args:
        tree: absolute path of the tree.
        strays: what is not in its commit.
        changed: files of the commit that were edited; a deleted one leaves nothing to keep.
        artifacts: the experiment's directory for it; made when missing.

    Returns:
        What was moved, removed and stuck.
    """
    taken = Taken([], [], [], _free_name(os.path.join(artifacts, FOLDER)))
    for path in strays:
        try:
            if is_remakeable(path):
                discard(os.path.join(tree, path.rstrip("/")))
                taken.removed.append(path)
            else:
                _move(tree, path.rstrip("/"), taken.where)
                taken.moved.append(path)
        except OSError as error:
            taken.stuck.append(f"{path}: {error.strerror or error}")
    for path in changed:
        try:
            if _keep(tree, path, taken.where):
                taken.moved.append(path)
        except OSError as error:
            taken.stuck.append(f"{path}: {error.strerror or error}")
    return taken if taken.moved else taken._replace(where="")


def _free_name(path: str) -> str:
    number, name = 1, path
    while os.path.lexists(name):
        number += 1
        name = f"{path}.{number}"
    return name


def _move(tree: str, path: str, where: str) -> None:
    source, target = os.path.join(tree, path), os.path.join(where, path)
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _refuse_mounts(tree)  # what lies on a mount of the run's is not ours to move
        import shutil

        shutil.move(source, target)


def _keep(tree: str, path: str, where: str) -> bool:
    """Copy a changed file; a directory in its place is moved. Nothing is followed out of the tree."""
    source, target = os.path.join(tree, path), os.path.join(where, path)
    parent = os.path.realpath(os.path.dirname(source))
    inside = os.path.realpath(tree)
    if not os.path.lexists(source) or os.path.commonpath([parent, inside]) != inside:
        return False
    if os.path.isdir(source) and not os.path.islink(source):
        _move(tree, path, where)
        return True
    import shutil
    import stat

    if stat.S_ISREG(os.lstat(source).st_mode) or os.path.islink(source):
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        shutil.copy2(source, target, follow_symlinks=False)
        return True
    return False


def discard(path: str) -> None:
    """Remove a file, link or directory of ours; a link is never followed, a mount below is refused.

    Raises:
        OSError: it could not be removed, or something is mounted in it.
    """
    if os.path.islink(path) or not os.path.isdir(path):
        os.unlink(path)
        return
    _refuse_mounts(path)
    import shutil

    parent = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # A new name first: the old one is free at once, and a removal that was cut short is told apart.
        name = f".trash-{os.getpid()}-{os.path.basename(path)}"
        os.rename(os.path.basename(path), name, src_dir_fd=parent, dst_dir_fd=parent)
        shutil.rmtree(name, dir_fd=parent)
    finally:
        os.close(parent)


def erase(path: str) -> None:
    """Remove a directory of ours where it is, for a removal that is taken up again; errors as in `discard`."""
    _refuse_mounts(path)
    import shutil

    shutil.rmtree(path)


def _refuse_mounts(path: str) -> None:
    mounted = mounts_below(path)
    if mounted:
        raise OSError(errno.EBUSY, f"{mounted[0]} is mounted in it")


def mounts_below(path: str) -> list[str]:
    """Return the mount points at or below a directory, bind mounts too."""
    from autoresearch.running import disk

    inside = os.path.realpath(path)
    try:
        return [name for name in disk.mounts() if name == inside or name.startswith(inside + "/")]
    except OSError:
        return [inside] if os.path.ismount(inside) else []
