"""Which content was tried before: a digest of files and override words an idea. A hint, never a record."""

from __future__ import annotations

import json
import os

from autoresearch import files, paths


def key(tree: str, overrides: list[str]) -> str:
    """Return the identity of what would run: the git tree of the files, and the words for the command."""
    return files.digest(json.dumps([tree, overrides]).encode())


def earlier(where: paths.Campaign, wanted: str, name: str) -> str:
    """Return another experiment that had this content, empty when none had."""
    try:
        with open(_file(where), "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return ""
    place = data.find(wanted.encode())
    if place < 0:
        return ""
    found = data[place : data.find(b"\n", place)].split(b"\t")[-1].decode()
    return "" if found == name else found


def add(where: paths.Campaign, content: str, name: str) -> None:
    """Remember the content of an idea; the caller holds the campaign's lock."""
    files.append(_file(where), f"{content}\t{name}\n".encode())


def _file(where: paths.Campaign) -> str:
    return os.path.join(where.state, "contents")
