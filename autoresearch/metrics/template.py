"""The steps of a dense log at C speed: learn how one line names its step, read all lines that do it the same way.

`console.step_near` decides what the step of a value is; this is its shortcut for a piece of which every occurrence of
the name is a value. A piece in which any line names its step otherwise is not taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from autoresearch.metrics import backwards, console
from autoresearch.metrics.aggregate import NO_STEP

_ALONE = re.compile(rb"(?<![\w.+-])[-+.0-9][-+.0-9eE]{0,23}(?![\w.])")
_ANY_NUMBER = rb"[-+.0-9eE]{1,24}"
_NUMBERS = 12  # in front of a name that are passed over; with _NEAR less than step_near looks back
_NEAR = 200
_TEXT = rb"[^\r\n]{0,300}?"
_WORDS = (b"step", b"iter", b"epoch")
TRIES = 12


class Shape(NamedTuple):
    """A way to name a step, and what a piece must not hold else."""

    pattern: re.Pattern[bytes]  # its group is the step; one match an occurrence
    epoch: bool  # it is an epoch: no step may be named anywhere
    loose: bool  # the text between is not fixed: nothing in it may name another step


class Learner:
    """Knows the shapes of one log."""

    def __init__(self, judge: console.Judge) -> None:
        self.needle = judge.needle
        self.shapes: list[Shape] = []
        self.left = TRIES

    def steps(self, data: bytes, first: int, end: int, count: int) -> list[int] | None:
        """The steps of the `count` values in `data[first:end]`, NO_STEP where there is none; None: look at each."""
        stop = min(end + len(self.needle) - 1, len(data))
        if b"\x1b" in data or data.count(self.needle, first, stop) != count:
            return None
        # The lines of the first and the last occurrence belong to the piece as a whole.
        low = backwards.line_start(data, data.find(self.needle, first, stop))
        high = backwards.line_end(data, data.rfind(self.needle, first, stop)) + 1
        if data.count(self.needle, low, first + len(self.needle) - 1) or data.find(self.needle, stop, high) >= 0:
            return None
        said = _Said(data, low, high)
        for shape in self.shapes:
            steps = _take(shape, data, low, high, count, said)
            if steps is not None:
                return steps
        if not any(map(said.count, _WORDS)):
            return [NO_STEP] * count
        return self._learn(data, low, high, count, said)

    def _learn(self, data: bytes, low: int, high: int, count: int, said: _Said) -> list[int] | None:
        # Not the first one: its line may begin before the piece.
        hit = data.find(self.needle, data.find(self.needle, low, high) + 1, high)
        if self.left <= 0 or hit < 0:
            return None
        self.left -= 1
        for shape in learn(data, self.needle, hit):
            steps = _take(shape, data, low, high, count, said)
            if steps is not None:
                self.shapes.insert(0, shape)
                return steps
        return None


class _Said:
    """How often a piece says a word in any case, counted when it is asked."""

    def __init__(self, data: bytes, low: int, high: int) -> None:
        self._lower: Callable[[], bytes] = lambda: data[low:high].lower()
        self._text: bytes | None = None
        self._counts: dict[bytes, int] = {}

    def count(self, word: bytes) -> int:
        if word not in self._counts:
            if self._text is None:
                self._text = self._lower()
            self._counts[word] = self._text.count(word)
        return self._counts[word]


def learn(data: bytes, needle: bytes, hit: int) -> list[Shape]:
    """How the line around a hit names its step, the strictest way first."""
    end = hit + len(needle)
    low, high = backwards.line_start(data, hit), min(backwards.line_end(data, end), end + 400)
    before = list(console.STEP.finditer(data, max(low, hit - backwards.BEFORE), hit))
    behind = list(console.STEP.finditer(data, end, high))
    name = re.escape(needle)
    if not before:
        if not behind or console.EPOCH.match(behind[0].group()):
            return []
        return [Shape(re.compile(name + _TEXT + _step(data, behind[0])), False, True)]
    steps = [match for match in before if not console.EPOCH.match(match.group())]
    match = (steps or before)[-1]
    lead = _lead(data, match.end(), hit)
    shapes = [Shape(re.compile(_step(data, match) + _TEXT + name), not steps, True)]
    if lead and match is before[-1]:
        shapes.insert(0, Shape(re.compile(_step(data, match, lead[:2]) + lead + name), not steps, False))
    return shapes


def _lead(data: bytes, low: int, hit: int) -> bytes:
    """What stands between a step and the name, its numbers left open; empty where that is too much."""
    between = data[low:hit]
    parts = _ALONE.split(between)
    if len(between) > _NEAR or len(parts) > _NUMBERS or re.search(rb"[\r\n]", between):
        return b""
    return _ANY_NUMBER.join(re.escape(part) for part in parts)


def _step(data: bytes, match: re.Match[bytes], follows: bytes = b"") -> bytes:
    literal = re.escape(data[match.start() : match.start(1)])
    # A step of `1.5e3`, `10%` or `1,000` is none; where a plain mark is known to follow, there is nothing to look for.
    plain = follows[:1] in (b":", b"|", b";", b"\\", b")", b"]") or follows[:2] in (b",\\", b',"', b",'")
    closed = b"" if plain else rb"(?![0-9]|[0-9.]*[eE.%][0-9]|,[0-9])"
    return literal + rb"(?<![\w/.-]" + literal + rb")([0-9]{1,15})" + closed


def _take(shape: Shape, data: bytes, low: int, high: int, count: int, said: _Said) -> list[int] | None:
    rows = shape.pattern.findall(data, low, high)
    if len(rows) != count:
        return None
    named = (said.count(b"step") + said.count(b"iter")) if shape.loose or shape.epoch else 0
    if shape.epoch:
        if named or (shape.loose and said.count(b"epoch") != count):
            return None
    elif shape.loose and named != count:
        return None
    return list(map(int, rows))
