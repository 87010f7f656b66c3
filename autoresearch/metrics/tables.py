"""Tables drawn with bars in a console log: the metric's name heads a column."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator

from autoresearch.metrics import backwards, console, numbers
from autoresearch.metrics.aggregate import Found

_BAR = re.compile(r"[|│┃┆║]")
_RULE = re.compile(r"[\s|+\-=_:─━═┄┈│┃┼╪╇┿╋┡┩┢┪├┤┝┥┏┓┗┛╭╮╰╯┌┐└┘┬┴┳┻╞╡╤╧╔╗╚╝║╠╣╬]*")
_STEPS = ("step", "steps", "global_step", "iteration", "iter", "epoch")
MOST = 20_000  # heads that are looked at
LONGEST = 4 << 20  # bytes of one table that are looked at


def _cells(line: str) -> list[str]:
    cells = [cell.strip() for cell in _BAR.split(line)]
    while cells and not cells[0]:
        cells.pop(0)
    while cells and not cells[-1]:
        cells.pop()
    return cells


def find(log: backwards.Log, judge: console.Judge, source: str) -> Found:
    """The values below a column head that is the metric's name, over all tables of the log."""
    gather, places = console.Gather(), array("q")
    behind = 0
    for offset in _heads(log, judge.needle):
        if offset < behind:
            continue
        base = max(offset - 4096, 0)
        around = log.read(base, offset + 4096)
        hit = offset - base
        start, end = backwards.line_start(around, hit), backwards.line_end(around, hit)
        heads = _cells(console.visible(around[start:end]))
        if judge.name in heads and len(heads) > 1 and not any(_is_number(head) for head in heads):
            behind = _rows(log, base + end, heads, judge, gather, places)

    def locate(index: int) -> tuple[int, str, int | None]:
        return places[index], numbers.render(gather.values[index]), None

    return Found(source, gather.values, gather.steps, locate, log.path, faults=tuple(gather.faults))


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


def _rows(
    log: backwards.Log, offset: int, heads: list[str], judge: console.Judge, gather: console.Gather, places: array[int]
) -> int:
    """Take the rows below a head; returns the offset behind the table."""
    column = heads.index(judge.name)
    steps = [index for index, head in enumerate(heads) if head.lower() in _STEPS]
    data = log.read(offset, offset + LONGEST)
    index = 0
    while index < len(data):
        end = backwards.line_end(data, index)
        line = console.visible(data[index:end])
        cells = _cells(line)
        if len(cells) == len(heads) and _BAR.search(line):
            if cells == heads:
                break  # the same table printed anew
            _row(cells, column, steps, judge, gather, places, offset + index)
        elif not _RULE.fullmatch(line):
            break
        index = end + 1
    return offset + max(index, 1)


def _row(
    cells: list[str],
    column: int,
    steps: list[int],
    judge: console.Judge,
    gather: console.Gather,
    places: array[int],
    at: int,
) -> None:
    match = re.match(rf"{numbers.EITHER}", cells[column], re.ASCII)
    if match is None:
        return
    parsed = numbers.follow(match.group(), cells[column][match.end() :], judge.options)
    step = next((int(cells[index]) for index in steps if re.fullmatch("[0-9]{1,15}", cells[index])), None)
    gather.add(console.Hit(None if parsed.fault else parsed.value, parsed.text, parsed.fault, at, step))
    if not parsed.fault:
        places.append(at)
