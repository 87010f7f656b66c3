"""Short private names for long directories, because a Unix socket's path may have 107 bytes.

Ray puts `ray/session_<date>_<pid>/sockets/plasma_store` behind RAY_TMPDIR: 39 bytes are always safe.
vLLM puts `/<36 characters>` behind TMPDIR: 70 are. The links lie in a directory that only their
owner can enter or change; programs open the socket through the link, the data lands behind it.
"""

from __future__ import annotations

import os
import stat
from binascii import crc32
from typing import NamedTuple

from autoresearch.errors import Refused

RAY_MAX = 39
TMP_MAX = 70
ROOTS = ("/tmp", "/var/tmp", "/dev/shm")
HOME_TURNS = ("", "a", "b", "c")
LINK_TURNS = ("", *"123456789")
_HARMLESS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-")


class Links(NamedTuple):
    """What to hand over as RAY_TMPDIR and TMPDIR: links, or the directories themselves when short enough."""

    ray: str
    tmp: str


def make(ray_dir: str, tmp_dir: str, *, roots: tuple[str, ...] = ROOTS) -> Links:
    """Return short names for an attempt's two directories, which must exist.

    The same directories get the same names again; a link is used only when it is ours and leads to
    exactly that directory.

    Raises:
        Refused: no directory for links can be made, or each candidate's name belongs to somebody else.
    """
    return Links(_short(ray_dir, RAY_MAX, roots), _short(tmp_dir, TMP_MAX, roots))


def _short(target: str, most: int, roots: tuple[str, ...]) -> str:
    if len(os.fsencode(target)) <= most and _HARMLESS.issuperset(target):
        return target
    if not os.path.isdir(target):
        raise Refused("sockets", f"{target} is not a directory")
    home = _home(roots)
    name = f"{crc32(os.fsencode(target)):08x}"
    for turn in LINK_TURNS:
        link = os.path.join(home, name + turn)
        if len(os.fsencode(link)) <= RAY_MAX and _link(target, link, home):
            return link
    raise Refused("sockets", f"no free short name in {home}", f"remove stale links: ls -l {home}")


def _link(target: str, link: str, home: str) -> bool:
    """Make a link or find it made; False when the name leads elsewhere."""
    for _ in range(3):
        try:
            os.symlink(target, link)
            return True
        except FileExistsError:
            return leads_to(link, target)
        except FileNotFoundError:
            _private(home)  # another attempt that ended just now removed the empty directory
    return False


def leads_to(link: str, target: str) -> bool:
    """Tell whether `link` is a symbolic link of this user to exactly `target`."""
    try:
        found = os.lstat(link)
        return stat.S_ISLNK(found.st_mode) and found.st_uid == os.geteuid() and os.readlink(link) == target
    except OSError:
        return False


def _home(roots: tuple[str, ...]) -> str:
    tried = []
    for root in roots:
        for turn in HOME_TURNS:
            home = os.path.join(root, f"ar-{os.geteuid()}{turn}")
            tried.append(home)
            if _private(home):
                return home
    fix = f"remove what is there, or make one of them yours with mode 0700: {tried[0]}"
    raise Refused("sockets", f"no private directory could be made ({', '.join(tried)})", fix)


def _private(home: str) -> bool:
    """Make a directory that is ours alone, or find it made; never one that somebody prepared for us."""
    try:
        os.mkdir(home, 0o700)
    except FileExistsError:
        pass
    except OSError:
        return False
    try:
        found = os.lstat(home)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & 0o077 == 0


def remove(links: Links, ray_dir: str, tmp_dir: str) -> None:
    """Remove an attempt's links, and their directory when it is empty; nothing else is ever removed."""
    _unlink(links.ray, ray_dir)
    _unlink(links.tmp, tmp_dir)


def _unlink(link: str, target: str) -> None:
    if link != target and leads_to(link, target):
        try:
            os.unlink(link)
            os.rmdir(os.path.dirname(link))
        except OSError:
            pass  # other attempts have links there
