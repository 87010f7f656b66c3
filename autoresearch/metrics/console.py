"""A metric by its name in anybody's console log.

The name is found literally, then judged by what stands in front of it (`best_val_bpb` and `train loss` are other
metrics than `val_bpb` and `loss`) and behind it (a separator, perhaps brackets or a type, one number, an end).
"""

from __future__ import annotations

import os
import re
from array import array
from typing import NamedTuple

from autoresearch.metrics import backwards, numbers
from autoresearch.metrics.aggregate import NO_STEP, Found

ANSI = rb"\x1b(?:\[[0-?]{0,24}[ -/]{0,4}[@-~]|\][^\x07\x1b\r\n]{0,500}(?:\x07|\x1b\\)|[()][0-9A-B])"
_GAP = rb"(?>(?:[ \t]|\xc2\xa0|" + ANSI + rb"){0,80})"
_SEP = rb":=|==|=>|->|[:=|]|\xef\xbc[\x9a\x9d]|\xe2\x94[\x82\x83\x86]|\xe2\x95\x91|\xe2\x86\x92|\.{2,80}"
_BOLD = rb"(?<=[:=|])\*\*|(?<=[:=|] )\*\*"  # `name: **0.5**`, `**name:** 0.5`; `name ** 2` is a power
_OPEN = (
    rb"(?:[\[({\"'`]|"
    + _BOLD
    + rb"|(?:(?:torch|np|numpy|jnp|tf)\.)?(?:tensor|[aA]rray|Tensor|float[0-9_]{0,3}|bfloat16)\()"
)
BEHIND = numbers.later(
    rb"(?P<quote>(?:\\?[\"'`]|\*\*|\xe2\x80\x9d)?)(?P<gap>"
    + _GAP
    + rb")(?P<sep>(?:"
    + _SEP
    + rb")?)(?P<gap2>"
    + _GAP
    + rb")"
    rb"(?P<open>" + _OPEN + rb"{0,4})" + _GAP + rb"(?P<value>" + numbers.EITHER.encode() + rb")"
)
# What follows a name that heads a column: `tables` looks for it where there is no value.
HEAD = numbers.later(rb"(?:\*\*)?[ \t]{0,80}(?:\||\xe2\x94[\x82\x83\x86]|\xe2\x95\x91|\r|\n)")
_ENDS = (b"\n", b"\r")
LATE = 1 << 20  # bytes at the end of a log that are looked at first
DENSE = 16  # values that are judged before it pays to learn what they look like
ANSI_CODE = numbers.later(ANSI)
ANSI_TEXT = numbers.later(ANSI.decode("ascii"))
# Not behind `=`, where it is a value of its own (`phase=train loss=0.5`), nor as the rest of a unit (`9.9it/s`, `5°C`).
_WORD_BEFORE = numbers.later(r"(?:^|[^\w=./°-])([^\W\d_][\w./-]*(?:['’]s)?) $")
# `Best model val_acc: 0.9` is no more `val_acc` than `best val_acc` is.
_BEST_OF = numbers.later(
    r"(?:^|[^\w=./°-])(?:best|highest|lowest|previous|baseline|initial) [^\W\d_][\w./-]* $", re.IGNORECASE
)
_NUMBER_BEFORE = numbers.later(r"[0-9][ \t]$")
_LOGGER = numbers.later(r"(?:^|[\s\]])(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL):[\w.]{0,80}:$")
_COUNTED = numbers.later(r"(?:epoch|step|iter|iteration|rank|batch)_?\d+", re.IGNORECASE)
# Words that may stand in front of a metric without being a part of its name.
_PLAIN_WORDS = frozenset(
    re.findall(
        r"\S+",
        "debug info warn warning error critical nan inf none null true false n/a and with has had is the at of got now "
        "current final finally reached achieved gives gave yields reports",
    )
)
# Words that make another metric even of a name that says much by itself.
_QUALIFIERS = frozenset(
    re.findall(
        r"\S+",
        "best min max avg average mean median std total sum running smoothed smooth ema raw target goal expected "
        "baseline previous prev old initial lowest highest top delta train training val valid validation test eval "
        "evaluation dev teacher student reference policy value per-token",
    )
)
STEP = numbers.later(
    rb"(?i)(?<![\w/.-])(?:(?:global|total|train|training)[_ ])?(?:steps?|iterations?|iter|epoch)"
    rb"[\"']?[ \t]{0,8}[:=#]?[ \t]{0,8}"
    rb"([0-9]{1,15})(?![0-9]|[0-9.]*[eE.%][0-9]|,[0-9])"
)
EPOCH = numbers.later(rb"(?i)epoch")


class Hit(NamedTuple):
    """A judged occurrence: a value, or the fault that forbids to take it."""

    value: float | None
    text: str
    fault: str
    at: int  # offset of the name in the file
    step: int | None


class Judge:
    """Judges occurrences of one name; collects the longer names that it was a part of, for the message."""

    def __init__(self, name: str, options: tuple[str, ...]) -> None:
        self.name, self.needle, self.options = name, name.encode("utf-8", "surrogateescape"), options
        self.others: dict[str, None] = {}
        self.steps = True  # whether steps are wanted
        # What in front of the name says by itself that it begins here; a digit only where no word may be before it.
        digits = b"" if self.name.isalnum() else b"0123456789"
        self.clear = {bytes((byte, 32)) for byte in digits + b",;|"}
        self.heads = False  # whether the name may head a column somewhere

    def __call__(self, data: bytes, hit: int, base: int) -> Hit | None:
        """A `Hit`, or None when this occurrence says nothing about the metric."""
        end = hit + len(self.needle)
        self.heads = self.heads or HEAD.match(data, end) is not None
        if not (data[hit - 2 : hit] in self.clear or self._starts_here(data, hit)):
            return None
        match = BEHIND.match(data, end)
        if match is None:
            self._note_longer(data, end)
            return None
        separator = match.group("sep")
        loose = not separator
        if loose and not (match.group("gap") or match.group("gap2")):
            opened = match.group("open")
            if not opened or (opened[:1].isalpha() and not match.group("quote")):
                return None  # `val_bpb5`, `val_bpbtensor(5)`
        text = match.group("value").decode("ascii")
        step = step_near(data, hit, end) if self.steps else None
        if data[match.end() : match.end() + 1] in _ENDS and not self.options and b"[" not in match.group("open"):
            return Hit(numbers.strict(text), text, "", base + hit, step)
        after = visible(data[match.end() : match.end() + 200])
        if _FILE.match(after):
            return None
        indexed = match.group("open").strip(b"\"'`") and _INDEXED.match(after)
        if loose and (indexed or _NAMED_ON.match(after)):
            # `acc 5: 0.8`, `acc[5]: 0.8`: the number belongs to a longer name
            self._note(visible(data[hit : match.end()]) + after[:1].strip())
            return None
        parsed = numbers.follow(text, after[:48], self.options)
        fault = parsed.fault or several(match.group("open"), separator, after)
        return Hit(None if fault else parsed.value, parsed.text, fault, base + hit, step)

    def _starts_here(self, data: bytes, hit: int) -> bool:
        low = max(backwards.line_start(data[max(0, hit - 300) : hit], 300), 0) + max(0, hit - 300)
        before = visible(data[low:hit])
        if not before:
            return True
        last = before[-1]
        if last.isalnum() or last in "_./-@\\":
            self._note(re.split(r"[\s\"'(|=,;]", before)[-1] + self.name)
            return False
        if last == ":":
            glued = before[-2:-1].isalnum() and not _LOGGER.search(before)
            if glued:
                self._note(before.split()[-1] + self.name)
            return not glued
        word = _WORD_BEFORE.search(before)
        if word is None or not (self._qualifies(word.group(1)) or _BEST_OF.search(before)):
            return True
        unit = word.group(1) != "min" and numbers.UNIT_WORD.match(f" {word.group(1)}#")
        if unit and _NUMBER_BEFORE.search(before, 0, word.start(1)):
            return True  # `12 s loss: 0.5`: the unit of the number before; `max reward 1 min reward 0` has none
        self._note(f"{word.group(1)} {self.name}")
        return False

    def _qualifies(self, word: str) -> bool:
        """Whether a word in front makes the name another one: any does for `loss`, a few do for `val_bpb`."""
        low = word.lower().removesuffix("'s")
        if len(word) > 40 or low in _PLAIN_WORDS or _COUNTED.fullmatch(word):
            return False
        return low in _QUALIFIERS or self.name.isalnum() or len(low) < len(word)

    def _note_longer(self, data: bytes, end: int) -> None:
        rest = re.match(rb"[\w./@-]{1,40}", data[end : end + 40])
        if rest:
            self._note(self.name + rest.group().decode("ascii", "replace"))

    def _note(self, other: str) -> None:
        if len(self.others) < 5 and len(other) < 80:
            self.others[other] = None


def visible(data: bytes) -> str:
    """One line's text without ANSI sequences, up to its end."""
    end = backwards.line_end(data, 0)
    return (
        ANSI_CODE.sub(b"", data[:end]).decode("utf-8", "replace")
        if b"\x1b" in data
        else data[:end].decode("utf-8", "replace")
    )


_NAMED_ON = numbers.later(r"[\s\"']*[:=]")  # behind a number that is a part of a longer name
_INDEXED = numbers.later(rf"[\"']?[)\]}}]+[\"']?(?:\s*(?::|=|->|→)|\s*\|?\s*{numbers.NUMBER})", re.ASCII)
_FILE = numbers.later(r"[\w.=-]*\.(?:ckpt|pth?|h5|hdf5|keras|safetensors)\b")  # the number is a part of its name
_BAR = numbers.later(r"[|│┃┆║]")
_CELL = numbers.later(rf"\s*(?:{numbers.NUMBER}|{numbers.NONFINITE})\s*", re.ASCII)
_ARROW = numbers.later(rf"\s*(?:->|=>|→|\bto\s)\s*{numbers.NUMBER}", re.ASCII)
_NEXT_ITEM = numbers.later(rf"\s*[,;\s]\s*{numbers.NUMBER}", re.ASCII)
_NUMBER_NEXT = r"[-+.]?[0-9]"
# A bare number right behind, itself with nothing, a number or another name's value behind it.
_NEXT_NUMBER = numbers.later(
    rf"\s+{numbers.NUMBER}[,;)\]]?(?:\s*$|[,\s]\s*{_NUMBER_NEXT}|[,\s]\s*[^\W\d][^\s:=]{{0,40}}(?:\s?[:=]|\s{_NUMBER_NEXT}))"
    rf"|,\s+{numbers.NUMBER}\s*(?:,|$)"
)


def several(opened: bytes, separator: bytes, after: str) -> str:
    """The fault of a number that is one of several; empty where it stands alone.

    Args:
        opened: the brackets in front of it.
        separator: what stands between it and the name.
        after: what stands behind it in its line.
    """
    if separator[-1:] in (b"|", b"\x82", b"\x83", b"\x86", b"\x91") and _more_cells(after):
        return "several numbers: its table row has more than one value; use log:/REGEX/ to choose"
    if opened.strip(b"\"'`") and (_NEXT_ITEM.match(after) or (b"[" in opened and not after.strip(" \t,"))):
        return "several numbers: a list or an array, not one number; use log:/REGEX/ to choose"
    if _ARROW.match(after):
        return "several numbers: a change from one value to another; use log:/REGEX/ to choose"
    if _NEXT_NUMBER.match(after):
        return "several numbers: another one stands right behind it; use log:/REGEX/ to choose"
    return ""


def _more_cells(after: str) -> bool:
    """Whether a table row goes on with more numbers that no name of their own stands in front of."""
    cells = _BAR.split(after)[1:]
    while cells and not cells[-1].strip():
        cells.pop()
    numeric = [_CELL.fullmatch(cell) is not None for cell in cells]
    paired = all(is_number or any(map(str.isalpha, cell)) for is_number, cell in zip(numeric, cells, strict=True))
    return any(numeric) and not (paired and numeric == [index % 2 == 1 for index in range(len(cells))])


def step_near(data: bytes, hit: int, end: int) -> int | None:
    """The step (or else the epoch) that the line of a hit names; None without one."""
    low = max(0, hit - backwards.BEFORE)
    low += backwards.line_start(data[low:hit], hit - low)
    high = min(backwards.line_end(data, end), end + 400)
    epoch = None
    if data.find(b"\x1b", low, high) >= 0:
        # A colour code ends in a letter: `step` would look like the end of a longer word.
        before, behind = ANSI_CODE.sub(b"", data[low:hit]), ANSI_CODE.sub(b"", data[end:high])
        matches = [*reversed(list(STEP.finditer(before))), *STEP.finditer(behind)]
    else:
        matches = [*reversed(list(STEP.finditer(data, low, hit))), *STEP.finditer(data, end, high)]
    for match in matches:
        if not EPOCH.match(match.group()):
            return int(match.group(1))
        epoch = int(match.group(1)) if epoch is None else epoch
    return epoch


def find(name: str, path: str, options: tuple[str, ...] = (), *, whole: bool = True, steps: bool = True) -> Found:
    """The values of the metric `name` in the console log `path`.

    Args:
        name: as the log prints it.
        path: the log.
        options: declared readings, see `numbers.check_options`.
        whole: read the whole file (all values, `best`); else only the last value is looked for, from the end.
        steps: False when nobody will ask for more than the step of a single value.
    """
    source = f"console {os.path.basename(path)}"
    judge = Judge(name, options)
    try:
        with backwards.Log(path) as log:
            # Without a curve, a last value that cannot be taken decides: thousands before it are not judged then.
            late = None if steps or not whole else backwards.last_hit(log, judge.needle, judge, max(0, log.size - LATE))
            if late is not None and late.value is None:
                return Found(source, faults=((0, late.fault),), complete=False)
            found = _all(log, judge, source, steps) if whole else _last(log, judge, source)
            if found.values or found.faults:
                return found
            if not judge.heads:
                return _nothing(judge, path, source)
            from autoresearch.metrics import tables

            found = tables.find(log, judge, source)
    except OSError as error:
        return Found(source, trouble=f"cannot read {path}: {error.strerror}")
    return found if found.values or found.faults else _nothing(judge, path, source)


def _nothing(judge: Judge, path: str, source: str) -> Found:
    name = judge.name
    others = ", ".join(f'"{other}"' for other in judge.others)
    hint = f"; there is {others}" if others else ""
    empty = " (the log is empty)" if not os.path.getsize(path) else ""
    return Found(source, trouble=f'no value of "{name}" in {os.path.basename(path)}{empty}{hint}')


def _last(log: backwards.Log, judge: Judge, source: str) -> Found:
    hit = backwards.last_hit(log, judge.needle, judge)
    if hit is None:
        return Found(source)
    if hit.value is None:
        return Found(source, faults=((0, hit.fault),), complete=False)
    place = (hit.at, hit.text, hit.step)
    return Found(source, [hit.value], [hit.step], lambda _: place, log.path, complete=False)


def _all(log: backwards.Log, judge: Judge, source: str, wants_steps: bool) -> Found:
    from autoresearch.metrics import sweep

    return sweep.Sweep(log, judge).found(source, wants_steps)


class Gather:
    """Columns of values and steps, for what is read row by row."""

    def __init__(self) -> None:
        self.values, self.steps = array("d"), array("q")
        self.faults: list[tuple[int, str]] = []

    def add(self, hit: Hit) -> None:
        """Take one judged occurrence."""
        if hit.value is None:
            # The first ones and the last say enough; a log of malformed lines must not fill the memory.
            del self.faults[3:]
            self.faults.append((len(self.values), hit.fault))
            return
        self.values.append(hit.value)
        self.steps.append(NO_STEP if hit.step is None else hit.step)
