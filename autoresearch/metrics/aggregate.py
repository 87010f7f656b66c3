"""From everything that a source holds to the one number of `METRIC_AT`."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, repeat
from operator import eq
from typing import NamedTuple, overload

from autoresearch import direction
from autoresearch.errors import Usage
from autoresearch.metrics import Point, Reading, numbers

NO_STEP = -(1 << 63)
_AT = re.compile(r"(last|best|min|max)|(mean|median):([1-9][0-9]{0,8})|(step):([0-9]{1,18})", re.ASCII)


class Found(NamedTuple):
    """What a source holds of one metric, in the order it was written; values may be nan or infinite."""

    source: str
    values: Sequence[float] = ()
    steps: Sequence[int | None] = ()  # parallel to values, or empty; NO_STEP is None in an array
    locate: Callable[[int], tuple[int, str, int | None]] | None = None  # index -> (byte in `path`, as printed, step)
    path: str = ""
    faults: tuple[tuple[int, str], ...] = ()  # (values before it, why a value there cannot be taken)
    trouble: str = ""  # why there is no value at all
    complete: bool = True  # False: only the last value was looked for
    single: bool = False  # the store has single precision


class At(NamedTuple):
    """`METRIC_AT`, parsed: `kind` and, for mean, median and step, its number."""

    kind: str
    n: int = 0


def parse_at(text: str) -> At:
    """Parse `last`, `best`, `min`, `max`, `mean:N`, `median:N` or `step:N`; Usage on anything else."""
    match = _AT.fullmatch(text)
    if match is None:
        raise Usage("METRIC_AT", f"{text!r} is not known", "use last, best, min, max, mean:N, median:N or step:N")
    word, window, n, step, at_step = match.groups()
    if word:
        return At(word)
    return At(window, int(n)) if window else At(step, int(at_step))


def merge_trouble(name: str, found: Found) -> str:
    """The reason that a Reading without a value carries."""
    return found.trouble or f'no value of "{name}" in {found.source}'


def reading(name: str, found: Found, at: str, wanted: str) -> Reading:
    """Aggregate what was found to a Reading.

    Args:
        name: the metric's name.
        found: the values of one source.
        at: `METRIC_AT`.
        wanted: the direction, `max` or `min`.

    A series that ends in nan or infinity has diverged, whatever `at` asks: an earlier good value is never returned.
    """
    how = parse_at(at)
    values, count = found.values, len(found.values)
    late = [reason for index, reason in found.faults if index >= count]
    any_fault = late or ([reason for _, reason in found.faults] if how.kind != "last" else [])
    empty = Reading(name, None, "", n_values=count, source=found.source if count or found.faults else "")
    if any_fault:
        return empty._replace(reason=any_fault[-1])
    if not count:
        return empty._replace(reason=merge_trouble(name, found))
    if not math.isfinite(values[-1]):
        return empty._replace(reason=_diverged(found, count - 1), step=step_at(found, count - 1))
    best = direction.best_index(values, wanted) if found.complete else None
    chosen = _choose(found, how, wanted)
    if isinstance(chosen, str):
        return empty._replace(reason=chosen)
    index, value, text = chosen
    return Reading(
        name,
        value,
        text,
        step=step_at(found, index),
        best=None if best is None else _exact(found, best)[0],
        n_values=count if found.complete else 0,
        source=found.source + _place(found, index),
    )


def _choose(found: Found, how: At, wanted: str) -> tuple[int, float, str] | str:
    values, count = found.values, len(found.values)
    if how.kind in ("mean", "median"):
        return _window(found, how)
    if how.kind == "step":
        index = _last_at(found, how.n)
        if index is None:
            return f"no value at step {how.n}: {_range(found)}"
        if not math.isfinite(values[index]):
            return _diverged(found, index)
    elif how.kind == "last":
        index = count - 1
    else:
        index = direction.best_index(values, wanted if how.kind == "best" else how.kind)
        assert index is not None  # the last value is finite
    return _printed(found, index)


def _last_at(found: Found, step: int) -> int | None:
    """Where the last value of a step is, or None."""
    known: Callable[[int], int | None] | None = getattr(found.steps, "last_index", None)
    if known is not None:
        return known(step)
    return next((i for i in range(len(found.values) - 1, -1, -1) if step_at(found, i) == step), None)


def _window(found: Found, how: At) -> tuple[int, float, str] | str:
    count = len(found.values)
    if count < how.n:
        return f"{how.kind}:{how.n} needs {how.n} values: {count} found"
    window = array("d")
    for index in range(count - how.n, count):
        value = found.values[index]
        if not math.isfinite(value):
            return _diverged(found, index)
        window.append(numbers.shortest_single(value) if found.single else value)
    if how.kind == "mean":
        value = math.fsum(window) / how.n
    else:
        ordered, half = sorted(window), how.n // 2
        value = ordered[half] if how.n % 2 else ordered[half - 1] + (ordered[half] - ordered[half - 1]) / 2
    return count - 1, value, numbers.render(value)


def _exact(found: Found, index: int) -> tuple[float, str]:
    value = found.values[index]
    if found.single:
        value = numbers.shortest_single(value)
    return value, numbers.render(value)


def _printed(found: Found, index: int) -> tuple[int, float, str]:
    value, text = _exact(found, index)
    if found.locate is not None:
        text = numbers.keep(found.locate(index)[1], value)
    return index, value, text


def step_at(found: Found, index: int) -> int | None:
    """The step of one value (a negative index counts from the end); None where the source has none."""
    if index < 0:
        index += len(found.values)
    locate = found.locate
    step = found.steps[index] if found.steps else locate(index)[2] if locate is not None else None
    return None if step == NO_STEP else step


def _range(found: Found) -> str:
    low, high = None, 0
    for step in found.steps:
        if step is not None and step != NO_STEP:
            low, high = (step, step) if low is None else (min(low, step), max(high, step))
    return f"{found.source} has no steps" if low is None else f"steps {low} to {high} are there"


def _diverged(found: Found, index: int) -> str:
    value, step = found.values[index], step_at(found, index)
    word = "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return f"diverged: {word}" + (f" at step {step}" if step is not None else f" in {found.source}")


def _place(found: Found, index: int) -> str:
    if found.locate is None or not found.path:
        return ""
    from autoresearch.metrics import backwards

    return backwards.place(found.path, found.locate(index)[0])


_POINT: Callable[[tuple[int | None, float]], Point] = partial(tuple.__new__, Point)
_Block = tuple[Sequence[int | None], Sequence[float]]


def _points(block: _Block) -> Iterator[Point]:
    steps, values = block
    if NO_STEP in steps:
        steps = [None if step == NO_STEP else step for step in steps]
    # As Point._make does it, without a call of Python code for every point.
    return map(_POINT, zip(steps, values, strict=True))


class Curve(Sequence[Point]):
    """The points of a series that are made as they are asked for: a list of ten millions would take gigabytes."""

    def __init__(self, found: Found) -> None:
        self._found = found

    def __len__(self) -> int:
        return len(self._found.values)

    @overload
    def __getitem__(self, index: int) -> Point: ...
    @overload
    def __getitem__(self, index: slice) -> list[Point]: ...
    def __getitem__(self, index: int | slice) -> Point | list[Point]:
        """One point, or a list of several."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        value = self._found.values[index]
        return Point(step_at(self._found, index) if self._found.steps else None, value)

    def __iter__(self) -> Iterator[Point]:
        steps, values = self._found.steps, self._found.values
        if not steps:
            return map(Point, repeat(None), values)
        # A series that is not held in memory is gone through in blocks.
        blocks: Callable[[], Iterable[_Block]] = getattr(values, "blocks", lambda: [(steps, values)])
        return chain.from_iterable(map(_points, blocks()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]
