"""Every value of a piece of a log with one expression: learn what stands around the values, take all that look alike.

`console.Judge` decides what a value is; this is its shortcut. A value is taken without being judged only when the
bytes in front of its name, between the two, and behind the number are ones that were judged before and mean the same
in any line: what stands farther away cannot change them. Everything else in the piece is judged one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from autoresearch.metrics import backwards, console, numbers

# float() refuses what of this is no number, and then the piece is looked at one by one.
_VALUE = rb"([-+.0-9eEinfatyNI]+)"
FEW = 64  # occurrences in a piece up to which a search from its end beats an expression over all of it
AGAIN = 15  # pieces behind one with more of them that are taken to be like it, without a count
NOTED = 4096  # bytes of a piece in which longer names are looked for while there is no value
NEAR = 400  # bytes behind an occurrence that may decide what it is
MOST = 24  # shapes of one log that are learned; every one makes the expression slower
_NEXT = re.compile(
    rb"[ \t]{0,8}[\r\n]|,[ \t]{0,4}[A-Za-z_\"']|[)\]};|]|[ \t]{1,8}[|(]"
    rb"|[ \t]{1,8}[A-Za-z_][\w./]{0,30}(?:[:=,]|[ \t](?P<digit>[0-9])?)"
)
_JOINS = ([b"to"], [b"of"], [b"out"], [b"x"])  # `0.5 to 0.4`, `3 of 4`, `3 out of 4`, `5 x 10^3`
_CLEAR_BLANK = re.compile(rb"[^\w./\x1b\x80-\xff-] ")
_CLEAR = re.compile(rb"[\t\n\r!-~](?<![\w./@\\:-])")
# A number as a word of its own is no part of a name; where it is one (`top1`), no such mark stands in front of it.
_BORDER = rb"[\s=:,|(\[{;#]"
_NUMBER_BEFORE = re.compile(_BORDER + rb"([0-9][-+.0-9e]{0,15}) \Z")


class Taken(NamedTuple):
    """The values of one piece and its faults as (values before it, why)."""

    values: list[float]
    faults: list[tuple[int, str]]


class Bulk:
    """Reads pieces of one log for one name; the shapes that it learns in one piece serve in the next ones."""

    def __init__(self, judge: console.Judge) -> None:
        self.judge, self.needle = judge, judge.needle
        self.separable = backwards.separable(self.needle)
        # A metric called `nan` may be its own value.
        self.able = not judge.options and self.needle[:1].isalpha() and self.separable and _float(self.needle) is None
        self.leads: list[bytes] = []
        self.glues: list[bytes] = []
        self.ends: list[bytes] = []
        self.judged = 0
        # One match an occurrence that is no part of a longer word; its group is empty where the shape is not known.
        self.pattern: re.Pattern[bytes] | None = None
        self.odd = False  # whether the last piece held something that had to be judged
        self.uncounted = 0  # pieces that are still taken to be full of the name
        self.plain: Bulk | None = None  # reads what is left of coloured pieces

    def take(self, data: bytes, base: int, first: int, end: int) -> Taken:
        """All values of the occurrences that begin in `data[first:end]`; `base` is the offset of `data`."""
        few = self._few(data, first, end)
        if few is None and not self.odd and self.pattern is not None and b"\x1b" not in data:
            values = _floats(self.pattern, data, first, end)
            if values is not None:
                return Taken(values, [])
        if few is None and self.able and b"\x1b" in data:
            taken = self._without_colours(data, base, first, end)
            if taken is not None:
                return taken
        values, faults, odd = [], [], False
        for _, value, hit in self._hits(data, base, first, end, few):
            if value is not None:
                values.append(value)
            if hit is not None:
                odd = True
                if hit.fault:
                    faults.append((len(values), hit.fault))
        self.odd = odd and few is None
        return Taken(values, faults)

    def _without_colours(self, data: bytes, base: int, first: int, end: int) -> Taken | None:
        """The values of a piece that is full of the name, read as a terminal shows it; None where that is not sure."""
        if b"\x1b]" in data:
            return None  # a link: its address may hold the name
        if self.plain is None:
            self.plain = Bulk(self.judge)
        first, end = _beside_code(data, first), _beside_code(data, end)
        before, piece, behind = (
            console.ANSI_CODE.sub(b"", data[low:high]) for low, high in ((0, first), (first, end), (end, len(data)))
        )
        behind, cut, _ = behind.partition(b"\x1b")  # what is read may end in mid-sequence
        # Colours within the name: nobody would find it but here.
        joined = piece.count(self.needle) != data.count(self.needle, first, end)
        if b"\x1b" in before + piece or (cut and len(behind) < NEAR) or joined:
            return None
        return self.plain.take(before + piece + behind, base, len(before), len(before) + len(piece))

    def place(self, data: bytes, base: int, first: int, end: int, index: int) -> int:
        """Where in `data` the name of a piece's value number `index` stands; -1 when it is not there."""
        hits = self._hits(data, base, first, end, self._few(data, first, end))
        places = (at for at, value, _ in hits if value is not None)
        return next((at for number, at in enumerate(places) if number == index), -1)

    def each(self, data: bytes, base: int, first: int, end: int) -> Iterator[console.Hit]:
        """Every value of a piece, judged one by one."""
        for at, value, hit in self._hits(data, base, first, end, self._few(data, first, end)):
            judged = hit or self.judge(data, at, base)
            if value is not None and judged is not None:
                yield judged

    def _few(self, data: bytes, first: int, end: int) -> list[int] | None:
        """The places of the name in a piece where it is rare, else None."""
        if self.uncounted:
            self.uncounted -= 1
            return None
        places: list[int] = []
        stop = min(end + len(self.needle) - 1, len(data))
        # From the end: `rfind` skips over what cannot be the name three times as fast as `find`.
        while (hit := data.rfind(self.needle, first, stop)) >= 0:
            places.append(hit)
            if len(places) > FEW:
                self.uncounted = AGAIN
                return None
            stop = hit + len(self.needle) - 1
        places.reverse()
        return places

    def _hits(
        self, data: bytes, base: int, first: int, end: int, few: list[int] | None
    ) -> Iterator[tuple[int, float | None, console.Hit | None]]:
        """(place, value, what the judge said when it was asked) of all occurrences that say something."""
        if few is None and self.separable and not self.judged and not self.judge.others:
            # For the message: the name may be a part of others, which an expression passes over.
            for place in _every(data, self.needle, first, min(end, first + NOTED)):
                self.judge(data, place, base)
        if few is None and (not self.able or b"\x1b" in data):
            every = backwards.whole_words if self.separable else _every
            few = every(data, self.needle, first, min(end + len(self.needle) - 1, len(data)))
        yield from self._listed(data, base, few) if few is not None else self._matched(data, base, first, end)

    def _listed(
        self, data: bytes, base: int, places: list[int]
    ) -> Iterator[tuple[int, float | None, console.Hit | None]]:
        pattern = self.pattern if b"\x1b" not in data else None
        for at in places:
            match = pattern.match(data, at) if pattern is not None else None
            value = _float(match.group(1)) if match is not None else None
            if value is not None:
                yield at, value, None
            elif (hit := self._judge(data, at, base)) is not None:
                yield at, hit.value, hit

    def _matched(
        self, data: bytes, base: int, first: int, end: int
    ) -> Iterator[tuple[int, float | None, console.Hit | None]]:
        at = first
        while at >= 0:
            pattern, begin, at = self.pattern or self._compile(), at, -1
            for match in pattern.finditer(data, begin):
                if match.start() >= end:
                    break
                value = _float(match.group(1))
                if value is not None:
                    yield match.start(), value, None
                    continue
                hit = self._judge(data, match.start(), base)
                if hit is not None:
                    yield match.start(), hit.value, hit
                if self.pattern is not pattern:
                    at = match.end()  # go on with what was learned here
                    break

    def _judge(self, data: bytes, at: int, base: int) -> console.Hit | None:
        hit = self.judge(data, at, base)
        if hit is None or hit.value is None:
            return hit
        self.judged += 1
        known = len(self.leads) + len(self.glues) + len(self.ends)
        if self.able and self.judged > console.DENSE and known < MOST and b"\x1b" not in data:
            self._learn(data, at)
        return hit

    def _learn(self, data: bytes, at: int) -> None:
        """Learn the surroundings of a judged value where each of them means the same in any line."""
        match = console.BEHIND.match(data, at + len(self.needle))
        if match is None or match.group("open") or match.group("sep") not in (b":", b"=", b""):
            return
        lead, end = _lead(data, at), _end(data, match.end())
        glue = data[at + len(self.needle) : match.start("value")]
        if not lead or not end or not glue or not glue.isascii():
            return
        new = False
        for known, one in ((self.leads, lead), (self.glues, glue), (self.ends, end)):
            if one not in known:
                known.insert(0, one)  # the newest first: numbers of steps grow
                new = True
        if new:
            self._compile()

    def _compile(self) -> re.Pattern[bytes]:
        name = re.escape(self.needle)
        shapes = []
        for mark in dict.fromkeys(glue[:1] for glue in self.glues):
            leads = (rb"(?<=" + lead + name + re.escape(mark) + rb")" for lead in self.leads)
            shapes.append(_any(*leads) + _any(*(re.escape(glue[1:]) for glue in self.glues if glue[:1] == mark)))
        # The name stands first and literal: that is what `re` searches fast.
        known = (_any(*shapes) + _VALUE + rb"(?=" + b"|".join(self.ends) + rb")",) if shapes else ()
        self.pattern = re.compile(name + backwards.word(self.needle, *known))
        return self.pattern


def _beside_code(data: bytes, at: int) -> int:
    """The same place, or the end of the escape sequence that it is in."""
    code = console.ANSI_CODE.match(data, max(data.rfind(b"\x1b", max(at - 600, 0), at), 0))
    return max(at, code.end()) if code is not None else at


def _any(*choices: bytes) -> bytes:
    return choices[0] if len(choices) == 1 else rb"(?:" + b"|".join(choices) + rb")"


def _every(data: bytes, needle: bytes, first: int, stop: int) -> list[int]:
    places = []
    while (hit := data.find(needle, first, stop)) >= 0:
        places.append(hit)
        first = hit + 1
    return places


def _floats(pattern: re.Pattern[bytes], data: bytes, first: int, end: int) -> list[float] | None:
    """The values of all matches, or None when one has no number or none that is known to be one."""
    rows = pattern.findall(data, first)
    beyond = len(pattern.findall(data, end))  # what begins in the context behind the piece
    try:
        return list(map(float, rows[: len(rows) - beyond] if beyond else rows))
    except ValueError:
        return None


def _float(text: bytes | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _lead(data: bytes, at: int) -> bytes:
    """What stands in front of the name, as an expression of fixed width; empty where it alone does not decide."""
    if _CLEAR.fullmatch(data, max(at - 1, 0), at):
        return re.escape(data[at - 1 : at])
    if _CLEAR_BLANK.fullmatch(data, max(at - 2, 0), at):
        return re.escape(data[at - 2 : at])
    number = _NUMBER_BEFORE.search(data[max(at - 20, 0) : at])
    if number is None:
        return b""
    return _BORDER + rb"[0-9][-+.0-9e]{%d} " % (len(number.group(1)) - 1)


def _end(data: bytes, at: int) -> bytes:
    """What stands behind the number, as an expression; empty where it alone does not decide."""
    match = _NEXT.match(data, at)
    if match is None:
        return b""
    text = match.group()
    # With anything behind it: is it a unit then, or may a second number follow that belongs to the first?
    if any(numbers.UNIT_WORD.match(text.decode("ascii") + more) for more in "#s") or text.split()[:1] in _JOINS:
        return b""
    if text[:1] == b",":
        return re.escape(text[:-1]) + rb"[A-Za-z_\"']"
    return re.escape(text) if match.group("digit") is None else re.escape(text[:-1]) + b"[0-9]"
