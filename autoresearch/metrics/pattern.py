"""A metric by the user's own regular expression: `log:/REGEX/` and `log:/REGEX/i`.

A backtracking expression can take ages on one line. It runs in a forked child that is killed at its limit, so that
neither the supervisor nor a verb can hang on it.
"""

from __future__ import annotations

import os
import re
import struct
from array import array
from collections.abc import Iterator

from autoresearch.errors import Usage
from autoresearch.metrics import backwards, child, numbers
from autoresearch.metrics.aggregate import NO_STEP, Found

LIMIT_S = 20.0
_ROW = struct.Struct("<dqq")


def parse(text: str) -> re.Pattern[str]:
    """The expression of `/REGEX/` or `/REGEX/i`, checked for what it captures.

    Raises:
        Usage: when it is not valid, or when it is not clear which group is the number.
    """
    body, slash, flags = text[1:].rpartition("/")
    if not text.startswith("/") or not slash or flags.strip("i") or not body:
        raise Usage("METRIC", f"log:{text} is no pattern", "write log:/REGEX/ or log:/REGEX/i")
    try:
        # `^` and `$` mean the line: lines are handed over one at a time.
        pattern = re.compile(body, re.IGNORECASE if flags else 0)
    except (re.error, OverflowError, RecursionError) as error:
        raise Usage("METRIC", f"log:{text}: {error}", "check the regular expression") from error
    others = set(pattern.groupindex) - {"value", "step"}
    unnamed = pattern.groups - len(pattern.groupindex)
    if "value" not in pattern.groupindex and (unnamed > 1 or others):
        raise Usage("METRIC", f"log:{text} has several groups", "name the number (?P<value>...), a step (?P<step>...)")
    return pattern


def _group(pattern: re.Pattern[str]) -> int:
    """The index of the group that is the number; 0, the whole match, when there is none."""
    if "value" in pattern.groupindex:
        return pattern.groupindex["value"]
    named = set(pattern.groupindex.values())
    return next((index for index in range(1, pattern.groups + 1) if index not in named), 0)


def judge(match: re.Match[str], group: int, options: tuple[str, ...]) -> numbers.Parsed | None:
    """What one match says: a value, a fault, or None when its group took no part."""
    raw = match.group(group)
    if raw is None:
        return None
    text = raw.strip(" \t")
    line, end = match.string, match.start(group) + len(raw.rstrip(" \t"))
    begin = match.start(group) + len(raw) - len(raw.lstrip(" \t"))
    before = line[max(0, begin - 2) : begin]
    # What the expression itself matched behind the number is there because its writer wanted it dropped.
    free = match.end() > end
    fault = _cut(text, before)
    if fault:
        return numbers.Parsed(None, text, fault)
    if "," in text or text.endswith("%"):
        number = re.match(numbers.NUMBER, text, re.ASCII)
        if number is not None:
            return numbers.follow(number.group(), text[number.end() :], options)
    return numbers.follow(text, line[end : end + 48], options, free=free)


def _cut(text: str, before: str) -> str:
    last = before[-1:]
    part = last != "" and (last.isdigit() or last in "._")
    if last in ("-", "+"):
        # A sign in front belongs to the number; a dash between two words does not.
        part = len(before) < 2 or before[-2] in " \t:=([{,|\"'eE"
    if last in ("e", "E"):
        part = before[:1].isdigit() or before[:1] == "."
    if last == ",":
        part = before[:1].isdigit() and text[:3].isdigit() and len(text) >= 3
    return f"part of a number: `{text}` of `{before}{text}`" if part else ""


class _Scan:
    """The child's work: values in file order, handed over as it goes."""

    def __init__(self, pattern: re.Pattern[str], options: tuple[str, ...]) -> None:
        self.pattern, self.options = pattern, options
        self.group = _group(pattern)
        self.step = pattern.groupindex.get("step")
        self.rows: list[bytes] = []

    def line(self, data: bytes, at: int) -> bool:
        """Judge the matches of one line; True when there was any."""
        from autoresearch.metrics import console

        some = False
        text = console.visible(data)
        for match in self.pattern.finditer(text):
            parsed = judge(match, self.group, self.options)
            if parsed is None:
                continue
            some = True
            if parsed.value is None:
                note = parsed.fault.encode("utf-8", "replace")[:400]
                self.rows.append(b"F" + struct.pack("<H", len(note)) + note)
                continue
            step = self._step(match, data)
            note = parsed.text.encode("utf-8", "replace")[:64]
            self.rows.append(b"V" + struct.pack("<H", _ROW.size + len(note)) + _ROW.pack(parsed.value, step, at) + note)
        return some

    def _step(self, match: re.Match[str], data: bytes) -> int:
        from autoresearch.metrics import console

        if self.step is not None:
            text = match.group(self.step) or ""
            return int(text) if re.fullmatch("[0-9]{1,15}", text, re.ASCII) else NO_STEP
        near = console.step_near(data, len(data), len(data))
        return NO_STEP if near is None else near

    def taken(self) -> bytes:
        """What was found since the last call."""
        data = b"".join(self.rows)
        self.rows = []
        return data


def _scan(path: str, scan: _Scan, whole: bool) -> Iterator[bytes]:
    with backwards.Log(path) as log:
        high = log.size
        while high > 0:
            # From the end, a stretch of whole lines at a time; the last stretch with a match decides.
            low = 0 if whole else _line_begin(log, max(0, high - backwards.PIECE))
            some = False
            for at, line in backwards.lines(log, low, high):
                some = scan.line(line, at) or some
                if len(scan.rows) > 1000:
                    yield scan.taken()
            if some or whole:
                break
            high = low
        yield scan.taken()


def _line_begin(log: backwards.Log, at: int) -> int:
    before = log.read(at - backwards.LONGEST, at)
    begin = backwards.line_start(before, len(before))
    return at if begin == 0 and at > len(before) else at - len(before) + begin


def find(text: str, path: str, options: tuple[str, ...] = (), *, whole: bool = True, limit_s: float = LIMIT_S) -> Found:
    """The values that `/REGEX/` finds in a log.

    Args:
        text: the expression between slashes.
        path: the log.
        options: declared readings, see `numbers.check_options`.
        whole: read the whole file; else only as far from the end as needed for the last value.
        limit_s: seconds after which the search is given up.
    """
    pattern = parse(text)
    source = f"console {os.path.basename(path)} {text}"
    if not os.path.isfile(path):
        return Found(source, trouble=f"cannot read {path}: it is no regular file")
    if not os.access(path, os.R_OK):
        return Found(source, trouble=f"cannot read {path}: Permission denied")
    scan = _Scan(pattern, options)
    data, code = child.finish(child.start(lambda: _scan(path, scan, whole)), limit_s)
    if code is None:
        return Found(source, trouble=f"the expression {text} took longer than {limit_s:g} s and was given up")
    if code != 0:
        return Found(source, trouble=f"reading {path} with the expression {text} failed")
    return _unpack(data, source, path, whole)


def _unpack(data: bytes, source: str, path: str, whole: bool) -> Found:
    values, steps, offsets, at = array("d"), array("q"), array("q"), 0
    texts: list[str] = []
    faults: list[tuple[int, str]] = []
    while at < len(data):
        kind, size = data[at : at + 1], struct.unpack_from("<H", data, at + 1)[0]
        body, at = data[at + 3 : at + 3 + size], at + 3 + size
        if kind == b"F":
            del faults[3:]
            faults.append((len(values), body.decode("utf-8", "replace")))
            continue
        value, step, offset = _ROW.unpack_from(body)
        values.append(value)
        steps.append(step)
        offsets.append(offset)
        texts.append(body[_ROW.size :].decode("utf-8", "replace"))
    trouble = "" if values or faults else f"nothing in {os.path.basename(path)} matches {source.split(' ', 2)[2]}"

    def locate(index: int) -> tuple[int, str, int | None]:
        return offsets[index], texts[index], None

    return Found(source, values, steps, locate, path, tuple(faults), trouble, complete=whole)
