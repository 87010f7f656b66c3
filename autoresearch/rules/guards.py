"""Guards: what must hold beside the metric before a result may be kept (`GUARD="memory_gb <= 70"`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import inf, isfinite
from typing import NamedTuple

from autoresearch.direction import meets
from autoresearch.errors import Usage

_ONE = re.compile(
    r"\s*(?P<name>[A-Za-z_][A-Za-z0-9_./:@-]*)\s*(?P<op>>=|=>|<=|=<|>|<|≥|≧|≤|≦)"
    r"\s*(?P<bound>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?![A-Za-z0-9_%]|\.[0-9])\s*",
    re.ASCII,
)
_JOINT = re.compile(r"(?:,|、|and(?![A-Za-z0-9_])|&&?|かつ)\s*", re.ASCII | re.IGNORECASE)
_SIGNS = {"≥": ">=", "≧": ">=", "=>": ">=", "≤": "<=", "≦": "<=", "=<": "<="}
FIX = 'write it like GUARD="memory_gb <= 70, tokens_per_sec >= 1000"'


class Guard(NamedTuple):
    """One bound on a number of the run: `memory_gb` of the row, or a metric by its name."""

    name: str
    op: str  # >= <= > or <
    bound: float

    def __str__(self) -> str:
        return f"{self.name} {self.op} {self.bound:.12g}"

    def holds(self, value: float) -> bool:
        """Return whether a value keeps the bound; one that is no finite number does not."""
        return meets(value, self.op, self.bound)


def parse(text: str) -> tuple[Guard, ...]:
    """Read `GUARD`: bounds joined by commas or `and`, all of which must hold.

    Raises:
        Usage: not understood, joined by `or`, or impossible together; the place is marked.
    """
    from autoresearch.durations import narrow

    shape, found, place = narrow(text), [], 0
    if not shape.strip():
        return ()
    while True:
        match = _ONE.match(shape, place)
        value = float(match["bound"]) if match else inf
        if match is None or not isfinite(value):
            raise _bad(text, shape, place)
        found.append(Guard(match["name"], _SIGNS.get(match["op"], match["op"]), value))
        place = match.end()
        if place == len(shape):
            break
        joint = _JOINT.match(shape, place)
        if joint is None or joint.end() == len(shape):
            raise _bad(text, shape, place)
        place = joint.end()
    for name in sorted({guard.name for guard in found}):
        _possible(name, [guard for guard in found if guard.name == name])
    return tuple(found)


def _bad(text: str, shape: str, place: int) -> Usage:
    """Return the refusal of what stands at `place`."""
    from autoresearch.carets import refusal

    rest = shape[place:]
    start = place + len(rest) - len(rest.lstrip())
    word = re.match(r"\s*(or\b|または|[^,、]*)", rest)
    end = max(start, place + (len(word[0].rstrip()) if word else 0))
    if shape[start:end].lower() in ("or", "または"):
        return refusal("GUARD", text, start, end, "`or` between guards is refused: every guard must hold", FIX)
    shown = text[start:end] or "the end"
    return refusal("GUARD", text, start, end, f"`{shown}` is not understood", FIX)


def _possible(name: str, same: list[Guard]) -> None:
    """Refuse bounds on one name that no value meets, such as `x >= 3, x <= 2`."""
    low = max((guard for guard in same if guard.op[0] == ">"), key=lambda g: (g.bound, g.op == ">"), default=None)
    high = min((guard for guard in same if guard.op[0] == "<"), key=lambda g: (g.bound, g.op != "<"), default=None)
    if low is None or high is None:
        return
    strict = low.op == ">" or high.op == "<"
    if low.bound > high.bound or (low.bound == high.bound and strict):
        raise Usage("GUARD", f"no {name} is both {low.op} {low.bound:.12g} and {high.op} {high.bound:.12g}", FIX)


def failures(guards: Iterable[Guard], values: Mapping[str, float | None]) -> list[str]:
    """Return the guards that do not hold, with what was found: `memory_gb 73.2, not <= 70`.

    Args:
        guards: from `parse`.
        values: the numbers of the run by name; one that is absent or None was not found, and a guard
            whose number is unknown does not hold: it cannot be kept on trust.
    """
    found = []
    for guard in guards:
        value = values.get(guard.name)
        if value is None:
            found.append(f"{guard.name} unknown, not {guard.op} {guard.bound:.12g}")
        elif not guard.holds(value):
            found.append(f"{guard.name} {value:.12g}, not {guard.op} {guard.bound:.12g}")
    return found


def names(guards: Iterable[Guard]) -> list[str]:
    """Return the names whose values `failures` needs, each once, in the order given."""
    return list(dict.fromkeys(guard.name for guard in guards))
