"""All values of a metric in a log of any size, in little memory.

A first pass keeps of every piece of the file how many values it has and the least and greatest of them. Who asks
for single values or for the whole curve has the pieces read again, one at a time. A big file is passed over by two
processes, one half each: `grep | awk` has two cores as well.
"""

from __future__ import annotations

import marshal
import math
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

from autoresearch import direction
from autoresearch.metrics import backwards, child, console, template
from autoresearch.metrics.aggregate import NO_STEP, Found
from autoresearch.metrics.bulk import Bulk

KEPT = 5 << 19  # values that are kept in memory (20 MiB), from the first on
SENT = 1 << 18  # and of a second half (2 MiB)


class Span(NamedTuple):
    """One piece of the file: its offsets, how many values are before it and in it, its least and greatest value."""

    first: int
    end: int
    before: int
    held: int
    low: float  # of the finite ones; nan where there is none
    high: float


class Sweep:
    """The values of one name in one log."""

    def __init__(self, log: backwards.Log, judge: console.Judge) -> None:
        """Read the whole log once."""
        self.path, self.size, self.judge = log.path, log.size, judge
        self.bulk, self.shape = Bulk(judge), template.Learner(judge)
        self.seeker = backwards.Seeker(judge.needle)
        self.spans: list[Span] = []
        self.starts: list[int] = []
        self.total = 0
        self.faults: list[tuple[int, str]] = []
        self.keep = KEPT
        self._kept: dict[int, array[float]] = {}
        self._last: tuple[int, Sequence[float]] = (-1, ())
        self._last_steps: tuple[int, Sequence[int]] = (-1, ())
        self._piece_read: tuple[int, tuple[bytes, int, int, int]] = (-1, (b"", 0, 0, 0))
        self._place: tuple[int, tuple[int, str, int | None]] | None = None
        judge.steps = False
        middle = log.size // 2 // backwards.PIECE * backwards.PIECE if log.size >= child.WORTH else 0
        helper = self._second_half(log, middle) if middle else None
        joined = False
        try:
            self._pass(log, 0, middle)
        finally:
            if helper is not None:
                joined = self._join(*child.finish(helper))
        if not joined:
            self._pass(log, middle, log.size)

    def _pass(self, log: backwards.Log, low: int, high: int) -> None:
        for data, base, first, end in backwards.pieces(log, low, high):
            self._piece(data, base, first, end)

    def _second_half(self, log: backwards.Log, middle: int) -> child.Child | None:
        """Have a child pass over the file from `middle` on; None where that is not possible or not faster."""

        def work() -> Iterator[bytes]:
            self.keep = SENT
            self._pass(log, middle, log.size)
            kept = {number: values.tobytes() for number, values in self._kept.items()}
            others = list(self.judge.others)
            yield marshal.dumps((list(map(tuple, self.spans)), kept, self.total, self.faults, self.judge.heads, others))

        return child.beside(work)

    def _join(self, data: bytes, code: int | None) -> bool:
        """Add what the child has found; False when it came to nothing."""
        if code != 0:
            return False
        try:
            spans, kept, total, faults, heads, others = marshal.loads(data)
        except (ValueError, EOFError, TypeError):
            return False
        for number, values in kept.items():
            self._kept[len(self.spans) + number] = array("d", values)
        for row in spans:
            span = Span(*row)
            self.starts.append(span.before + self.total)
            self.spans.append(span._replace(before=span.before + self.total))
        for before, fault in faults:
            self._fault(self.total + before, fault)
        self.total += total
        self.judge.heads = self.judge.heads or heads
        self.judge.others.update(dict.fromkeys(others[: 5 - len(self.judge.others)]))
        return True

    def _piece(self, data: bytes, base: int, first: int, end: int) -> None:
        stop = min(end + len(self.judge.needle) - 1, len(data))
        if self.seeker.last(data, first, stop) < 0:
            return
        values, faults = self.bulk.take(data, base, first, end)
        for before, fault in faults:
            self._fault(self.total + before, fault)
        if not values:
            return
        finite = values if math.isfinite(sum(values)) else [value for value in values if math.isfinite(value)]
        low, high = (min(finite), max(finite)) if finite else (math.nan, math.nan)
        if self.total < self.keep:
            self._kept[len(self.spans)] = array("d", values)
        self._last = (len(self.spans), values)
        self.spans.append(Span(base + first, base + end, self.total, len(values), low, high))
        self.starts.append(self.total)
        self.total += len(values)

    def _fault(self, before: int, fault: str) -> None:
        # The first ones and the last say enough; a log of malformed lines must not fill the memory.
        del self.faults[3:]
        self.faults.append((before, fault))

    def values(self, number: int) -> Sequence[float]:
        """The values of one span."""
        if self._last[0] != number:
            kept = self._kept.get(number)
            if kept is None:
                self.judge.steps = False
                kept = array("d", self.bulk.take(*self._read(number)).values)
                span = self.spans[number]
                # Where the file was changed since, no number that was not there may come out of it.
                kept = kept[: span.held] + array("d", [math.nan]) * (span.held - len(kept))
            self._last = (number, kept)
        return self._last[1]

    def steps(self, number: int) -> Sequence[int]:
        """The steps of one span, NO_STEP where there is none."""
        if self._last_steps[0] != number:
            data, base, first, end = self._read(number)
            span = self.spans[number]
            steps = self.shape.steps(data, first, end, span.held)
            if steps is None:
                self.judge.steps = True
                found = (hit.step for hit in self.bulk.each(data, base, first, end))
                steps = [NO_STEP if step is None else step for step in found]
            steps = steps[: span.held] + [NO_STEP] * (span.held - len(steps))
            self._last_steps = (number, steps)
        return self._last_steps[1]

    def _read(self, number: int) -> tuple[bytes, int, int, int]:
        if self._piece_read[0] != number:
            span = self.spans[number]
            base = max(span.first - backwards.BEFORE, 0)
            try:
                with backwards.Log(self.path) as log:
                    # Not farther than the first pass has seen: what a number is depends on what follows it.
                    data = log.read(base, min(span.end + backwards.AFTER, self.size))
            except OSError:
                data = b""
            self._piece_read = (number, (data, base, span.first - base, span.end - base))
        return self._piece_read[1]

    def find(self, index: int) -> int:
        """The number of the span that holds a value."""
        return bisect_right(self.starts, index) - 1

    def locate(self, index: int) -> tuple[int, str, int | None]:
        """(offset, as printed, step) of one value."""
        if self._place is None or self._place[0] != index:
            self._place = (index, self._locate(index))
        return self._place[1]

    def _locate(self, index: int) -> tuple[int, str, int | None]:
        number = self.find(index)
        data, base, first, end = self._read(number)
        self.judge.steps = False
        at = self.bulk.place(data, base, first, end, index - self.starts[number])
        self.judge.steps = True
        hit = self.judge(data, at, base) if at >= 0 else None
        # None: the file has changed since.
        return (hit.at, hit.text, hit.step) if hit is not None else (self.spans[number].first, "", None)

    def found(self, source: str, wants_steps: bool) -> Found:
        """What a reader of this metric gets."""
        steps = Steps(self) if wants_steps else ()
        return Found(source, Values(self), steps, self.locate, self.path, faults=tuple(self.faults))


class Values(Sequence[float]):
    """All values of a sweep as a sequence."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep

    def __len__(self) -> int:
        return self.sweep.total

    @overload
    def __getitem__(self, index: int) -> float: ...
    @overload
    def __getitem__(self, index: slice) -> list[float]: ...
    def __getitem__(self, index: int | slice) -> float | list[float]:
        """One value, or a list of several."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        number, place = _where(self.sweep, index)
        return self.sweep.values(number)[place]

    def __iter__(self) -> Iterator[float]:
        for number in range(len(self.sweep.spans)):
            yield from self.sweep.values(number)

    def blocks(self) -> Iterator[tuple[Sequence[int], Sequence[float]]]:
        """Steps and values, a piece at a time."""
        for number in range(len(self.sweep.spans)):
            yield self.sweep.steps(number), self.sweep.values(number)

    def best_index(self, wanted: str) -> int | None:
        """See `direction.best_index`: only the piece that holds the best value is looked into."""
        spans = self.sweep.spans
        bests = [span.high if wanted == "max" else span.low for span in spans]
        number = direction.best_index(bests, wanted)
        if number is None:
            return None
        place = direction.best_index(self.sweep.values(number), wanted)
        return None if place is None else spans[number].before + place


class Steps(Sequence["int | None"]):
    """All steps of a sweep as a sequence, NO_STEP where a value has none."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep

    def __len__(self) -> int:
        return self.sweep.total

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int | None]: ...
    def __getitem__(self, index: int | slice) -> int | list[int | None]:
        """One step, or a list of several."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        number, place = _where(self.sweep, index)
        return self.sweep.steps(number)[place]

    def __iter__(self) -> Iterator[int]:
        for number in range(len(self.sweep.spans)):
            yield from self.sweep.steps(number)

    def last_index(self, step: int) -> int | None:
        """Where the last value of a step is, or None."""
        for number in range(len(self.sweep.spans) - 1, -1, -1):
            steps = self.sweep.steps(number)
            if step in steps:
                return self.sweep.starts[number] + len(steps) - 1 - steps[::-1].index(step)
        return None


def _where(sweep: Sweep, index: int) -> tuple[int, int]:
    """(span, place in it) of an index, which may count from the end."""
    if index < 0:
        index += sweep.total
    if not 0 <= index < sweep.total:
        raise IndexError(index)
    number = sweep.find(index)
    return number, index - sweep.starts[number]
