"""A refusal that shows the place: the text a person gave, and carets under what was not understood."""

from __future__ import annotations

from autoresearch.errors import Usage

EDGE = 60  # characters shown either side of the place


def refusal(what: str, text: str, start: int, end: int, why: str, fix: str) -> Usage:
    """Return the error for `text[start:end]`; the caller raises it.

    Args:
        what: the knob, e.g. `STOP`.
        text: what was given, as it was given.
        start, end: the place in characters; an empty or outlying place still gets one caret.
        why, fix: one line each.
    """
    start = max(0, min(start, len(text)))
    end = max(start, min(end, len(text)))
    first = max(0, start - EDGE)
    shown = _printable(text)
    before, marked, after = shown[first:start], shown[start:end], shown[end : end + EDGE]
    under = " " * _columns(before) + "^" * max(1, _columns(marked))
    return Usage(what, _printable(why), f"{fix}\n    {before}{marked}{after}\n    {under}")


def _printable(text: str) -> str:
    """Return the text with one blank for each character that could steer a terminal or not be encoded."""
    return "".join(char if char.isprintable() else " " for char in text)


def _columns(text: str) -> int:
    """Return how many terminal columns a text takes: wide East Asian characters take two, accents none."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)
