"""Tables drawn with bars in a console log: the metric's name heads a column."""

from __future__ import annotations

import re
from array import array

from autoresearch.metrics import backwards, console, numbers
from autoresearch.metrics.aggregate import Found

_BAR = re.compile(r"[|│┃┆║]")
_RULE = re.compile(r"[\s|+\-=_:─━═┄┈│┃┼╪╇┿╋┡┩┢┪├┤┝┥┏┓┗┛╭╮╰╯┌┐└┘┬┴┳┻╞╡╤╧╔╗╚╝║╠╣╬]*")
_STEPS = ("step", "steps", "global_step", "iteration", "iter", "epoch")
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
    offset = 0
    while (offset := backwards.find(log, judge.needle, offset)) >= 0:
        base = max(offset - 4096, 0)
        around = log.read(base, offset + 4096)
        hit = offset - base
        start, end = backwards.line_start(around, hit), backwards.line_end(around, hit)
        heads = _cells(console.visible(around[start:end]))
        if judge.name in heads and len(heads) > 1 and not any(_is_number(head) for head in heads):
            offset = _rows(log, base + end, heads, judge, gather, places)
        else:
            offset += len(judge.needle)

    def locate(index: int) -> tuple[int, str]:
        return places[index], numbers.render(gather.values[index])

    return Found(source, gather.values, gather.steps, locate, log.path, faults=tuple(gather.faults))


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
    match = re.match(rf"{numbers.NUMBER}|{numbers.NONFINITE}", cells[column], re.ASCII)
    if match is None:
        return
    parsed = numbers.follow(match.group(), cells[column][match.end() :], judge.options)
    step = next((int(cells[index]) for index in steps if re.fullmatch("[0-9]{1,15}", cells[index])), None)
    gather.add(console.Hit(None if parsed.fault else parsed.value, parsed.text, parsed.fault, at, step))
    if not parsed.fault:
        places.append(at)
