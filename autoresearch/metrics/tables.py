"""Tables drawn with bars in a console log: the metric's name heads a column."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from typing import NamedTuple

from autoresearch.metrics import backwards, console, numbers
from autoresearch.metrics.aggregate import Found

_BAR = re.compile(r"[|│┃┆║]")
_NUMBERED = re.compile(numbers.EITHER, re.ASCII)
_BARS = (b"|", b"\xe2\x94", b"\xe2\x95")
_RULE = re.compile(r"[\s|+\-=_:─━═┄┈│┃┼╪╇┿╋┡┩┢┪├┤┝┥┏┓┗┛╭╮╰╯┌┐└┘┬┴┳┻╞╡╤╧╔╗╚╝║╠╣╬]*")
_STEPS = ("step", "steps", "global_step", "iteration", "iter", "epoch")
MOST = 20_000  # heads that are looked at


def _cells(line: str) -> list[str]:
    # The frame is no cell, but an empty cell within it is one: a group's name stands in its first row only.
    cells = [cell.strip().strip("*`") for cell in _BAR.split(line)]  # the best row of a table is often bold
    return cells[not cells[0] : len(cells) - (len(cells) > 1 and not cells[-1])]


class _Table(NamedTuple):
    """The table that the lines are in: its heads, the metric's column, the columns that may hold a step."""

    heads: list[str]
    column: int
    steps: list[int]


def find(log: backwards.Log, judge: console.Judge, source: str) -> Found:
    """The values below a column head that is the metric's name, over all tables of the log."""
    gather, places = console.Gather(), array("q")
    for offset in _heads(log, judge.needle):
        base = max(offset - 4096, 0)
        around = log.read(base, offset + 4096)
        start = backwards.line_start(around, offset - base)
        if _table(_cells(console.visible(around[start:])), judge.name) is not None:
            _rows(log, base + start, judge, gather, places)
            break

    def locate(index: int) -> tuple[int, str, int | None]:
        return places[index], numbers.render(gather.values[index]), None

    return Found(source, gather.values, gather.steps, locate, log.path, faults=tuple(gather.faults))


def _table(cells: list[str], name: str) -> _Table | None:
    """The table that a line of these cells heads, None when it is no head with the metric's name."""
    if name not in cells or len(cells) < 2 or any(_is_number(cell) for cell in cells):
        return None
    return _Table(cells, cells.index(name), [index for index, cell in enumerate(cells) if cell.lower() in _STEPS])


def _heads(log: backwards.Log, needle: bytes) -> Iterator[int]:
    """Offsets of occurrences that a bar or the line's end follows, the first thousands of them."""
    pattern = re.compile(re.escape(needle) + b"(?=" + console.HEAD.pattern + b")")
    left = MOST
    for data, base, first, end in backwards.pieces(log, 0, log.size):
        if data.rfind(needle, first, end + len(needle)) < 0:
            continue
        for match in pattern.finditer(data, first):
            if match.start() >= end:
                break
            yield base + match.start()
            left -= 1
            if not left:
                return


def _is_number(text: str) -> bool:
    try:
        numbers.strict(text)
    except ValueError:
        return False
    return True


def _rows(log: backwards.Log, low: int, judge: console.Judge, gather: console.Gather, places: array[int]) -> None:
    """Take the rows of all tables from a head on: other lines may come between them, another head ends a table."""
    table: _Table | None = None
    for at, data in backwards.lines(log, low, log.size):
        if not any(bar in data for bar in _BARS):
            continue
        line = console.visible(data)
        cells = _cells(line)
        head = _table(cells, judge.name)
        if head is not None:
            table = head
        elif table is not None and len(cells) == len(table.heads) and not _RULE.fullmatch(line):
            if any(map(_NUMBERED.match, cells)):
                _row(cells, table, judge, gather, places, at)
            elif all(cells):
                table = None


def _row(
    cells: list[str], table: _Table, judge: console.Judge, gather: console.Gather, places: array[int], at: int
) -> None:
    match = _NUMBERED.match(cells[table.column])
    if match is None:
        return
    after = cells[table.column][match.end() :]
    parsed = numbers.follow(match.group(), after, judge.options)
    fault = parsed.fault or console.several(b"", b"", after)
    if table.heads.count(judge.name) > 1:
        fault = f'several numbers: more than one column is called "{judge.name}"; use log:/REGEX/ to choose'
    step = next((int(cells[index]) for index in table.steps if re.fullmatch("[0-9]{1,15}", cells[index])), None)
    gather.add(console.Hit(None if fault else parsed.value, parsed.text, fault, at, step))
    if not fault:
        places.append(at)
