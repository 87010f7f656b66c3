"""Removing directories of a campaign: only below its marker, never through a link, a mount or another owner's.

Work is done through a pinned parent directory and a rename to `.trash-...` first, so that a swapped path cannot lead
elsewhere, the name is free at once, and a removal that was cut off is finished by the next one.
"""

from __future__ import annotations

import os
import shutil
import stat

from autoresearch import clock, paths
from autoresearch.errors import Refused
from autoresearch.running import disk

TRASH = ".trash-"


def check(where: paths.Campaign, path: str) -> None:
    """Refuse a path that is not safely this campaign's.

    Args:
        where: the campaign's places; its marker names the repository, and lies on its disk.
        path: a directory at or below the campaign's root.

    Raises:
        Refused: no marker of ours, another device or owner, a link, a mount inside, or outside the campaign.
    """
    root = where.root
    fix = "look at it and remove it by hand"
    try:
        with open(where.marker, encoding="utf-8") as file:
            owner, name = file.read().splitlines()[:2]
            device = os.fstat(file.fileno()).st_dev
    except (OSError, ValueError):
        raise Refused("clean-campaign", f"{root} has no marker of autoresearch", fix) from None
    real = os.path.realpath(path)
    if (owner, name) != (where.repository, where.name):
        raise Refused("clean-campaign", f"{root} belongs to {owner}", "call it in that repository")
    if os.path.commonpath([os.path.realpath(root), real]) != os.path.realpath(root) or os.path.islink(path):
        raise Refused("clean-campaign", f"{path} leads outside of {root}", fix)
    info = os.lstat(path)
    if info.st_dev != device or info.st_uid != os.geteuid():
        raise Refused("clean-campaign", f"{path} is on another disk or another account's", fix)
    for mount in disk.mounts():
        if os.path.commonpath([real, mount]) == real:
            raise Refused("clean-campaign", f"{mount} is mounted inside", f"umount {mount}, then call again")


def remove(where: paths.Campaign, path: str) -> None:
    """Remove a directory that `check` has passed, through its pinned parent."""
    check(where, path)
    parent, name = os.path.split(path)
    fd = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        trash = f"{TRASH}{os.getpid()}-{int(clock.now() * 1000)}-{name}"
        os.rename(name, trash, src_dir_fd=fd, dst_dir_fd=fd)
        _empty(fd, trash)
    finally:
        os.close(fd)


def finish_trash(parent: str) -> None:
    """Remove what an earlier removal in this directory left unfinished."""
    try:
        fd = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        for name in os.listdir(fd):
            if name.startswith(TRASH):
                _empty(fd, name)
    finally:
        os.close(fd)


def _empty(parent: int, name: str) -> None:
    try:
        shutil.rmtree(name, dir_fd=parent)
    except PermissionError:
        _open_up(parent, name)
        shutil.rmtree(name, dir_fd=parent)


def _open_up(parent: int, name: str) -> None:
    """Give back the permissions that a run took from directories of ours; a link is left alone, chmod follows it."""
    os.chmod(name, 0o700, dir_fd=parent)
    for _, folders, _, fd in os.fwalk(name, dir_fd=parent):
        for folder in folders:
            if stat.S_ISDIR(os.stat(folder, dir_fd=fd, follow_symlinks=False).st_mode):
                os.chmod(folder, 0o700, dir_fd=fd)
