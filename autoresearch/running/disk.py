"""How much room there is, asked in a way that a hung file system cannot hang (helper process, given up).

Sizes are GiB (2**30 bytes), as `df -h` shows them. Free means free for an ordinary user (f_bavail).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from autoresearch.errors import Refused
from autoresearch.running import processes

GIB = 2**30
PROBE_S = 3.0
SPARE_INODES = 1000
READ_ONLY = 1  # ST_RDONLY


class Space(NamedTuple):
    """Room on the file system that holds `path`, or the reason why that is not known."""

    path: str
    free_gb: float = 0.0
    total_gb: float = 0.0
    free_pct: float = 0.0
    inodes_free: int | None = None  # None where the file system has no fixed number of them (btrfs)
    inodes_pct: float = 100.0
    read_only: bool = False
    trouble: str = ""  # the number fields mean nothing when this is set


def look(path: str) -> Space:
    """Return the room for `path` or its nearest existing parent; hangs when the file system does."""
    there = path
    while True:
        try:
            found = os.statvfs(there)
            break
        except (FileNotFoundError, NotADirectoryError):
            if there == (there := os.path.dirname(there) or "/"):
                return Space(path, trouble="no such path")
        except OSError as error:
            return Space(path, trouble=error.strerror or str(error))
    total, usable = found.f_blocks * found.f_frsize, found.f_blocks - found.f_bfree + found.f_bavail
    return Space(
        path,
        found.f_bavail * found.f_frsize / GIB,
        total / GIB,
        100.0 * found.f_bavail / usable if usable > 0 else 0.0,
        found.f_favail if found.f_files else None,
        100.0 * found.f_favail / found.f_files if found.f_files else 100.0,
        bool(found.f_flag & READ_ONLY),
    )


def spaces(paths: Sequence[str], timeout_s: float = PROBE_S) -> list[Space]:
    """Return the room for each path. What does not answer in time says so in `trouble`; never hangs.

    One helper serves all paths; only when it does not come back is each asked alone.
    """
    raw = processes.bounded(lambda: "\n".join(_pack(look(path)) for path in paths).encode(), timeout_s)
    if raw is not None:
        return [_unpack(path, line) for path, line in zip(paths, raw.decode().split("\n"), strict=True)]
    if len(paths) == 1:
        return [Space(paths[0], trouble=f"the file system has not answered for {timeout_s:g} s")]
    return [spaces([path], timeout_s)[0] for path in paths]


def free(path: str, timeout_s: float = PROBE_S) -> Space:
    """Return the room for one path; see `spaces`."""
    return spaces([path], timeout_s)[0]


def _pack(space: Space) -> str:
    inodes = "" if space.inodes_free is None else str(space.inodes_free)
    numbers = (*map(repr, space[1:4]), inodes, repr(space.inodes_pct), str(int(space.read_only)))
    return "\t".join((*numbers, " ".join(space.trouble.split())))


def _unpack(path: str, line: str) -> Space:
    free_gb, total_gb, free_pct, inodes, inodes_pct, read_only, trouble = line.split("\t")
    return Space(
        path,
        float(free_gb),
        float(total_gb),
        float(free_pct),
        int(inodes) if inodes else None,
        float(inodes_pct),
        read_only == "1",
        trouble,
    )


def shortage(space: Space, min_free_gb: float, min_free_pct: float = 0.0) -> str:
    """Return why there is too little room, or nothing. Either limit alone is enough, and so are inodes.

    Inodes are short below one in a hundred and below 1000: a big file system never runs out at 1 %.
    """
    if space.trouble:
        return space.trouble
    if space.read_only:
        return "it is mounted read-only"
    if space.free_gb < min_free_gb:
        return f"{space.free_gb:.3g} GB free, less than {min_free_gb:g} GB"
    if space.free_pct < min_free_pct:
        return f"{space.free_pct:.1f} % free, less than {min_free_pct:g} %"
    if space.inodes_free is not None and space.inodes_free < SPARE_INODES and space.inodes_pct < 1.0:
        return f"{space.inodes_free} inodes left"
    return ""


def check(paths: Sequence[str], min_free_gb: float, min_free_pct: float) -> list[Space]:
    """Return the room for each path, when there is enough everywhere.

    Args:
        paths: repository and scratch; they need not exist yet.
        min_free_gb: GiB that must be free on each.
        min_free_pct: percent that must be free on each.

    Raises:
        Refused: naming the first path with too little room, or one that cannot be written.
    """
    found = spaces(paths, PROBE_S)
    for space in found:
        if why := shortage(space, min_free_gb, min_free_pct):
            fix = "free some space, or lower MIN_FREE_GB / MIN_FREE_PCT"
            raise Refused("disk", f"{space.path}: {why}", fix)
    return found


def mounts() -> list[str]:
    """Return where file systems are mounted, bind mounts too; does not touch any of them."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        return [_plain(line.split(" ", 5)[4]) for line in file]


def _plain(text: str) -> str:
    r"""Undo mountinfo's escapes (`\040` and the like)."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text


def is_mount(path: str) -> bool:
    """Tell whether something is mounted exactly at `path`."""
    return os.path.normpath(path) in mounts()
