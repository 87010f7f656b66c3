"""Every value of a dense log at C speed: learn the shape of one line, take all lines that have it.

A piece is taken only when every occurrence of the name in it has the learned shape; the judgement of single
occurrences (console.Judge) stays the one that decides what a value is, this is its shortcut.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from autoresearch.metrics import backwards, console, numbers
from autoresearch.metrics.aggregate import NO_STEP

# What may follow a value here: the line's end, a comma, a bar, or the next name with its separator or number.
_CLOSED = rb"(?=[ \t]{0,8}[\r\n]|,[ \t]|\Z|[ \t]{1,8}(?:[|(]|[A-Za-z_][\w/.]{0,40}(?:[ \t]?[:=]|[ \t][-+.]?[0-9])))"
_VALUE = rb"(" + numbers.NUMBER.encode() + rb")" + _CLOSED
_ANY_STEP = re.compile(rb"(?i)step|epoch|iter")


class Shape(NamedTuple):
    """A learned line: its pattern and whether the step, the value or only a value is captured, in which order."""

    pattern: re.Pattern[bytes]
    order: str  # step-value, value-step or value
    needle: bytes


def learn(data: bytes, needle: bytes, hit: int) -> Shape | None:
    """The shape of the line around a hit, or None when it is none of the simple ones."""
    end = hit + len(needle)
    match = console._BEHIND.match(data, end)
    if match is None or match.group("open") or match.group("sep") not in (b":", b"=", b""):
        return None
    glue = data[end : match.start("value")]
    if not glue:
        return None
    name = re.escape(needle)
    # The look behind stands after the literal: in front of it, it would cost the fast search for the literal.
    metric = name + rb"(?<![\w./@\\:\x80-\xff-]" + name + rb")(?<![\w.][ ]" + name + rb")" + re.escape(glue) + _VALUE
    low = backwards.line_start(data, hit)
    high = backwards.line_end(data, end)
    before = [m for m in console._STEP.finditer(data, low, hit)]
    behind = [m for m in console._STEP.finditer(data, end, min(high, end + 400))]
    if before and not console._EPOCH.match(before[-1].group()):
        return Shape(re.compile(_step(data, before[-1]) + rb"[^\r\n]{0,400}?" + metric), "step-value", needle)
    if not before and behind and not console._EPOCH.match(behind[0].group()):
        return Shape(re.compile(metric + rb"[^\r\n]{0,300}?" + _step(data, behind[0])), "value-step", needle)
    return None if before or behind else Shape(re.compile(metric), "value", needle)


def _step(data: bytes, match: re.Match[bytes]) -> bytes:
    literal = re.escape(data[match.start() : match.start(1)])
    return literal + rb"(?<![\w/.-]" + literal + rb")([0-9]{1,15})(?![0-9.]*[eE.%][0-9])"


def take(shape: Shape, data: bytes, first: int, stop: int, gather: console.Gather) -> bool:
    """Take all values of a piece, or none and say False when an occurrence has another shape."""
    # The lines of the first and the last occurrence belong to the piece as a whole.
    low = backwards.line_start(data, data.find(shape.needle, first, stop))
    high = backwards.line_end(data, data.rfind(shape.needle, first, stop)) + 1
    count = data.count(shape.needle, low, high)
    if count != data.count(shape.needle, first, stop):
        return False
    if shape.order == "value" and _ANY_STEP.search(data, low, high):
        return False
    rows = shape.pattern.findall(data, low, high)
    if len(rows) != count:
        return False
    if shape.order == "value":
        gather.values.extend(map(float, rows))
        gather.steps.extend([NO_STEP] * count)
    else:
        left, right = zip(*rows, strict=True)
        steps, values = (left, right) if shape.order == "step-value" else (right, left)
        gather.values.extend(map(float, values))
        gather.steps.extend(map(int, steps))
    return True
