"""The files of a session in the user's repository: where they lie, their sections, and how they are rewritten.

`session/<YYYYmmdd_HHMMSS>/{session_state.md, timeline.md, files.md, handoff.md}`. The notes are hints, checked against
git and the ledger by `resume`; so they are not fsynced, and a disk that is full costs a note, never a run.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from autoresearch import files, paths
from autoresearch.errors import TryAgain

STATE = ("Goal", "Current Subtask", "Loaded Skills", "Current Status", "Plan", "Assumptions", "Blockers")
FILES = ("Inspected", "Changed", "Generated")
HANDOFF = ("Resume From Here", "Next Actions", "Watch Outs")
LARGEST = 64_000  # bytes of a file after which its old detail is summarised
MOST_LINES = 60  # of a section
NOTHING = "- none noted"


class Notes(NamedTuple):
    """One session's directory and its files."""

    directory: str

    @property
    def name(self) -> str:
        """`YYYYmmdd_HHMMSS`, local time."""
        return os.path.basename(self.directory)

    @property
    def state(self) -> str:
        """What holds now."""
        return os.path.join(self.directory, "session_state.md")

    @property
    def timeline(self) -> str:
        """What happened, one line an event, appended only."""
        return os.path.join(self.directory, "timeline.md")

    @property
    def files(self) -> str:
        """Which files matter."""
        return os.path.join(self.directory, "files.md")

    @property
    def handoff(self) -> str:
        """What whoever goes on needs first."""
        return os.path.join(self.directory, "handoff.md")


class Page(NamedTuple):
    """A note file: the lines above its first section, and the lines of each section (blank ones left out)."""

    head: list[str]
    sections: dict[str, list[str]]


def pointer(where: paths.Campaign) -> str:
    """Return the file that names the session a campaign writes into."""
    return os.path.join(where.state, "session")


def current(where: paths.Campaign) -> Notes | None:
    """Return the session of a campaign, None when it has none or it was removed."""
    try:
        with open(pointer(where), encoding="utf-8", errors="surrogateescape") as file:
            notes = Notes(file.read().rstrip("\n"))
    except FileNotFoundError:
        return latest(where)
    return notes if os.path.isdir(notes.directory) else None


def latest(where: paths.Campaign) -> Notes | None:
    """Return the newest session whose notes name this campaign: what is left when the pointer is lost."""
    home = os.path.join(where.repository, "session")
    try:
        names = sorted(os.listdir(home), reverse=True)
    except OSError:
        return None
    for name in names[:200]:
        notes = Notes(os.path.join(home, name))
        if f"Campaign: {where.name}" in read(notes.state).split("\n", 6)[:6]:
            return notes
    return None


def create(where: paths.Campaign, now: float) -> Notes:
    """Make the directory of a new session and let the campaign point to it.

    Two sessions of one second get neighbouring names. Where the repository has a file named `session`, the notes lie
    with the campaign's records.

    Raises:
        OSError: the disk is full or read-only.
    """
    home = os.path.join(where.repository, "session")
    if os.path.lexists(home) and not os.path.isdir(home):
        home = os.path.join(where.records, "session")
    os.makedirs(home, mode=0o700, exist_ok=True)
    for later in range(600):
        directory = os.path.join(home, time.strftime("%Y%m%d_%H%M%S", time.localtime(now + later)))
        try:
            os.mkdir(directory, 0o700)
            break
        except FileExistsError:
            continue
    os.makedirs(where.state, mode=0o700, exist_ok=True)
    swap(pointer(where), f"{directory}\n")
    return Notes(directory)


def read(path: str) -> str:
    """Return a note's text, empty when it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace", newline="\n") as file:
            return file.read()
    except OSError:
        return ""


def swap(path: str, text: str) -> None:
    """Replace a note whole; a reader or a kill meets the old text or the new.

    Raises:
        OSError: the disk is full or read-only; the old text stays.
    """
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with files.naming(path), os.fdopen(fd, "wb") as file:
            file.write(text.encode("utf-8", "surrogateescape" if path.endswith("/session") else "replace"))
        os.replace(temporary, path)
    except OSError:
        try:
            os.unlink(temporary)
        except OSError:
            pass
        raise


def sweep(notes: Notes) -> None:
    """Remove what a kill in the middle of `swap` left behind: our own temporary files, older than a minute."""
    import re

    try:
        for name in os.listdir(notes.directory):
            path = os.path.join(notes.directory, name)
            ours = re.fullmatch(r"(session_state|timeline|files|handoff)\.md\.[0-9]+\.tmp", name)
            if ours and time.time() - os.lstat(path).st_mtime > 60:
                os.unlink(path)
    except OSError:
        pass


@contextmanager
def locked(where: paths.Campaign, wait_s: float = 2.0) -> Iterator[bool]:
    """Hold the lock of a campaign's notes; yields False when it cannot be had, and the notes go on without it."""
    try:
        manager = files.locked(os.path.join(where.state, "session.lock"), wait_s=wait_s)
        manager.__enter__()
    except (OSError, TryAgain):
        yield False
        return
    try:
        yield True
    finally:
        manager.__exit__(None, None, None)


def parse(text: str) -> Page:
    """Return a note file in its parts; sections that people added are kept."""
    head: list[str] = []
    sections: dict[str, list[str]] = {}
    lines = head
    for line in text.split("\n"):
        if line.startswith("## "):
            lines = sections.setdefault(line[3:].strip(), [])
        elif line.strip():
            lines.append(line)
    return Page(head, sections)


def render(page: Page, wanted: tuple[str, ...]) -> str:
    """Return a note file's text with the wanted sections first and in order, each with at least one line."""
    names = [*wanted, *(name for name in page.sections if name not in wanted)]
    title, below = page.head[:1], page.head[1:]
    parts = ["\n".join(title), "\n".join(below)]
    for name in names:
        lines = _shortened(page.sections.get(name) or [NOTHING])
        parts.append("\n".join([f"## {name}", "", *lines]))
    return "\n\n".join(part for part in parts if part) + "\n"


def _shortened(lines: list[str]) -> list[str]:
    """Keep a section readable: its newest lines, and how many older ones the timeline has."""
    if len(lines) > 1:
        lines = [line for line in lines if line != NOTHING] or [NOTHING]
    if len(lines) <= MOST_LINES:
        return lines
    old = [line for line in lines if line.startswith("- (older: ")]
    kept = [line for line in lines if line not in old]
    gone = sum(int(line.split()[2]) for line in old if line.split()[2:3] and line.split()[2].isdigit())
    gone += len(kept) - (MOST_LINES - 1)
    return [f"- (older: {gone} lines, see the timeline)", *kept[-(MOST_LINES - 1) :]]


def labelled(lines: list[str], values: dict[str, str]) -> list[str]:
    """Return a section with its lines `- label: value` set; an empty value removes the line; other lines stay."""
    own = [f"- {label}: {value}" for label, value in values.items() if value]
    return [*own, *(line for line in lines if line != NOTHING and _label(line) not in values)]


def _label(line: str) -> str:
    return line[2:].partition(": ")[0] if line.startswith("- ") else ""


def append(notes: Notes, line: str) -> None:
    """Append one line to the timeline in one write; a cut-off last line is closed first.

    Raises:
        OSError: the disk is full or read-only; nothing of the line stays.
    """
    fd = os.open(notes.timeline, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(fd).st_size
        data = f"{line}\n".encode("utf-8", "replace")
        if size == 0:
            data = f"# Timeline of session {notes.name}\n\n".encode() + data
        elif os.pread(fd, 1, size - 1) != b"\n":
            data = b"\n" + data
        with files.naming(notes.timeline):
            if os.write(fd, data) != len(data):  # the disk had room for a part of it
                os.ftruncate(fd, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(fd)
