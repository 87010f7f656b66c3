"""How much the metric moves when nothing changes: measured from repeats of same commits, or declared."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import fsum, inf, isfinite, sqrt
from typing import NamedTuple

from autoresearch.errors import Usage
from autoresearch.rules.statistics import mean, t_quantile


class Noise(NamedTuple):
    """One standard deviation of the metric between runs of one commit; `spread` is None when unknown."""

    spread: float | None = None
    dof: float = 0.0  # degrees of freedom behind it; inf when it was declared
    source: str = ""  # measured, declared, or empty

    def margin(self, here: int, there: int, level: float = 0.95) -> float:
        """Return the gain that chance alone exceeds in 1 - `level` of the cases.

        Args:
            here, there: runs behind the two means that are compared, at least one each.
            level: 0.95 or 0.99, one-sided.

        Raises:
            ValueError: the noise is unknown.
        """
        if self.spread is None:
            raise ValueError("the noise is unknown")
        return t_quantile(self.dof, level) * self.spread * sqrt(1 / here + 1 / there)


UNKNOWN = Noise()


def pooled(groups: Iterable[Sequence[float]]) -> Noise:
    """Return the noise that repeats show, pooled over all commits that were run more than once.

    Each group's squares are taken about its own mean, so it does not matter that commits differ.

    Args:
        groups: the valid values of one commit each; groups of fewer than two say nothing.
    """
    off: list[float] = []
    dof = 0
    for values in groups:
        if len(values) > 1:
            middle = mean(list(values))
            off.extend(abs(value - middle) for value in values)
            dof += len(values) - 1
    if not dof:
        return UNKNOWN
    widest = max(off)  # a unit in which no square is too large or too small for a number
    spread = widest * sqrt(fsum((far / widest) ** 2 for far in off) / dof) if 0 < widest < inf else widest
    return Noise(spread, float(dof), "measured")


def grouped(rows: Iterable[tuple[str, float | None]]) -> dict[str, list[float]]:
    """Return the valid values by commit, in the order of the rows.

    Args:
        rows: commit and valid metric (None when invalid) of each row that is comparable.
    """
    found: dict[str, list[float]] = {}
    for commit, value in rows:
        if value is not None and isfinite(value):
            found.setdefault(commit, []).append(value)
    return found


def declared(text: str) -> Noise:
    """Read `NOISE=0.004`: the metric's standard deviation in its own units; 0 says that runs repeat exactly.

    Raises:
        Usage: not a finite number of zero or more.
    """
    given = text.strip()
    number = float(given) if re.fullmatch(r"[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?", given, re.ASCII) else inf
    if not isfinite(number):
        raise Usage("NOISE", f"{text!r} is not a number of zero or more", "write it like NOISE=0.004")
    return Noise(number, inf, "declared")


def known(text: str, groups: Iterable[Sequence[float]]) -> Noise:
    """Return the declared noise when the plan has one, else what the repeats show."""
    return declared(text) if text.strip() else pooled(groups)
