"""Writes docs/reference.md from the headers of bin/, the one place that describes each verb and its knobs.

Usage: generate.py [--check]. With --check nothing is written: exit 1 when the file is out of date.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "reference.md"
INTRO = """\
<!-- Made by docs/generate.py from the headers of bin/; edit those, then run it. -->

# Reference

Every verb with its knobs, as `bin/VERB --help` shows them. A knob is a word `NAME=value` on make's command line or an
argument of the program; what it holds is data and never run. An unknown knob stops the call with 2.
"""


class Header(NamedTuple):
    """What the header of a program says."""

    program: str
    target: str  # of make
    summary: str
    usage: str
    knobs: list[tuple[str, str]]
    codes: list[tuple[int, str]]
    example: str


def main(argv: list[str]) -> int:
    """Write the reference, or compare it with --check."""
    text = render(headers())
    if argv == ["--check"]:
        if TARGET.exists() and TARGET.read_text(encoding="utf-8") == text:
            return 0
        print(f"{TARGET.relative_to(ROOT)} is out of date: python docs/generate.py", file=sys.stderr)
        return 1
    if argv:
        print(__doc__, file=sys.stderr)
        return 2
    TARGET.write_text(text, encoding="utf-8")
    return 0


def headers() -> list[Header]:
    """Return every program's header, in the order that `make help` lists them."""
    help_text = (ROOT / "bin" / "help").read_text(encoding="utf-8")
    listed = re.search(r"order=\(([^)]*)\)", help_text)
    order = listed[1].split() if listed else []
    names = {match[2]: match[1] for match in re.finditer(r"^\s+([\w-]+)\) printf '([\w-]+)' ;;", help_text, re.M)}
    targets = {program: target for target, program in names.items()}
    found = [parse(path, targets.get(path.name, path.name)) for path in sorted((ROOT / "bin").iterdir())]
    return sorted(found, key=lambda head: order.index(head.program) if head.program in order else len(order))


def parse(path: Path, target: str) -> Header:
    """Return what one header says; raises ValueError for one that lacks a part."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        if not line.startswith("#"):
            break
        lines.append(line[1:].removeprefix(" "))
    text = "\n".join(lines)
    parts = {}
    for name in ("Summary", "Usage", "Exit codes", "Example"):
        match = re.search(rf"^{name}: (.*(?:\n {{2,}}.*)*)", text, re.M)
        if match is None:
            raise ValueError(f"{path}: the header has no `{name}:`")
        parts[name] = " ".join(match[1].split())
    codes = [(int(code), what.strip()) for code, what in re.findall(r"(\d+) ([^;]+)", parts["Exit codes"].rstrip("."))]
    return Header(path.name, target, parts["Summary"], parts["Usage"], knobs_of(text), codes, parts["Example"])


def knobs_of(text: str) -> list[tuple[str, str]]:
    """Return the knobs of a header: as written, and what each means."""
    knobs: list[tuple[str, str]] = []
    section = text.partition("\nKnobs:")[2].partition("\n\n")[0]
    for line in section.splitlines():
        match = re.match(r" {2}([A-Z][A-Z0-9_]*(?:=\S+)?) +(\S.*)", line)
        if match:
            knobs.append((match[1], match[2]))
        elif knobs and line.startswith("    "):
            knobs[-1] = (knobs[-1][0], f"{knobs[-1][1]} {line.strip()}")
    return knobs


def render(found: list[Header]) -> str:
    """Return the reference as Markdown."""
    out = [INTRO]
    out.append(" · ".join(f"[{head.target}](#{head.target})" for head in found) + "\n")
    for head in found:
        out.append(f"## {head.target}\n")
        out.append(f"{head.summary[0].upper()}{head.summary[1:]}\n")
        called = "" if head.program == head.target else f" Program: `bin/{head.program}`."
        codes = "; ".join(f"{code} {what}" for code, what in head.codes)
        out.append(f"    {head.example}\n")
        if head.knobs:
            rows = [f"| `{knob}` | {cell(what)} |" for knob, what in head.knobs]
            out.append("\n".join(["| knob | |", "| --- | --- |", *rows]) + "\n")
        out.append(f"Exit codes: {codes}.{called}\n")
    return "\n".join(out)


def cell(text: str) -> str:
    """Return text for a cell of a table."""
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
