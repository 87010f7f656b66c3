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
_ALONE = re.compile(rb"(?<![\w.+-])" + numbers.NUMBER.encode() + rb"(?![\w.])")
_ANY_NUMBER = rb"[-+.0-9eE]{1,32}"
_STEP_GROUP = rb"([0-9]{1,15})"
_UNEXPECTED = {"value": (b"step", b"epoch", b"iter"), "epoch-value": (b"step", b"iter")}


class Shape(NamedTuple):
    """A learned line: its pattern and whether the step, the value or only a value is captured, in which order."""

    pattern: re.Pattern[bytes]
    bare: re.Pattern[bytes]  # the same with the value as its only group
    order: str  # step-value, epoch-value, value-step or value
    needle: bytes


def learn(data: bytes, needle: bytes, hit: int) -> Shape | None:
    """The shape of the line around a hit, or None when it is none of the simple ones."""
    end = hit + len(needle)
    match = console.BEHIND.match(data, end)
    if match is None or match.group("open") or match.group("sep") not in (b":", b"=", b"") or b"\x1b" in match.group():
        return None
    glue = data[end : match.start("value")]
    low, high = backwards.line_start(data, hit), min(backwards.line_end(data, end), end + 400)
    if not glue or hit - low > 400:
        return None
    name = re.escape(needle)
    value = name + rb"(?<![\w./@\\:\x80-\xff-]" + name + rb")" + re.escape(glue) + _VALUE
    before, behind = list(console.STEP.finditer(data, low, hit)), list(console.STEP.finditer(data, end, high))
    lead = _lead(data, before[-1].end() if before else low, hit)
    if lead is None:
        return None
    steps = [not console.EPOCH.match(step.group()) for step in (*before, *behind)]
    if before and (all(steps) or (not any(steps) and len(before) == 1)):
        order = "step-value" if all(steps) else "epoch-value"
        return _shape(_step(data, before[-1]) + lead + value, order, needle)
    if behind and not before and steps[0]:
        return _shape(value + rb"[^\r\n]{0,300}?" + _step(data, behind[0]), "value-step", needle)
    if steps:
        return None
    return _shape(value.replace(name, name + rb"(?<![\w.][ ]" + name + rb")", 1), "value", needle)


def _shape(pattern: bytes, order: str, needle: bytes) -> Shape:
    return Shape(re.compile(pattern), re.compile(pattern.replace(_STEP_GROUP, _STEP_GROUP[1:-1])), order, needle)


def _lead(data: bytes, low: int, hit: int) -> bytes | None:
    """What stands between a step (or the line's start) and the name: what decides where the name begins is literal."""
    between = data[low:hit]
    if not between or b"\x1b" in between or hit - low > 300:
        return None
    if between[-1:] in b",;|([{\"'=" or between[-2:] in (b", ", b"; ", b"| ", b": "):
        return rb"[^\r\n]{0,300}?" + re.escape(between[-2:])
    parts = _ALONE.split(between)
    return None if len(parts) > 20 else _ANY_NUMBER.join(re.escape(part) for part in parts)


def _step(data: bytes, match: re.Match[bytes]) -> bytes:
    literal = re.escape(data[match.start() : match.start(1)])
    return literal + rb"(?<![\w/.-]" + literal + rb")" + _STEP_GROUP + rb"(?![0-9.]*[eE.%][0-9])"


def take(shape: Shape, data: bytes, first: int, stop: int, gather: console.Gather) -> bool:
    """Take all values of a piece, or none and say False when an occurrence has another shape."""
    # The lines of the first and the last occurrence belong to the piece as a whole.
    low = backwards.line_start(data, data.find(shape.needle, first, stop))
    high = backwards.line_end(data, data.rfind(shape.needle, first, stop)) + 1
    if data.count(shape.needle, low, first + len(shape.needle) - 1) or data.find(shape.needle, stop, high) >= 0:
        return False
    if shape.order in _UNEXPECTED:
        lower = data[low:high].lower()
        if any(word in lower for word in _UNEXPECTED[shape.order]):
            return False
    count = data.count(shape.needle, first, stop)
    rows = (shape.pattern if gather.wants_steps else shape.bare).findall(data, low, high)
    if len(rows) != count:
        return False
    if not gather.wants_steps:
        gather.values.extend(map(float, rows))
        gather.has_steps = False
    elif shape.order == "value":
        gather.values.extend(map(float, rows))
        gather.steps.extend([NO_STEP] * count)
    else:
        left, right = zip(*rows, strict=True)
        steps, values = (left, right) if shape.order != "value-step" else (right, left)
        gather.values.extend(map(float, values))
        gather.steps.extend(map(int, steps))
    return True
