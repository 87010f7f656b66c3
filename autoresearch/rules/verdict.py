"""Keep, discard or crash: what a run's number is worth against its parent's. Pure.

A single lucky run must not win: where the noise is known, a gain has to exceed it; with `CONFIRM`
every apparent gain is run again, in fresh pairs with its parent, and only those runs decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import NamedTuple

from autoresearch.direction import gain as better_by
from autoresearch.rules.noise import Noise, pooled
from autoresearch.rules.statistics import mean

GOOD_ENDS = ("ok", "recipe-timeout")
UNCONFIRMED = "unconfirmed: "


class Measurement(NamedTuple):
    """The valid values of one commit, one for each run, and how the run in question ended."""

    values: tuple[float, ...] = ()  # valid ones only; a crash's 0.000000 never gets here
    end_cause: str = "ok"
    name: str = ""  # experiment, for the reason: `better than baseline`
    reason: str = ""  # why there is no value (Reading.reason)

    @property
    def valid(self) -> bool:
        """Whether there is anything to compare."""
        return bool(self.values) and all(isfinite(value) for value in self.values)


class Verdict(NamedTuple):
    """The ledger's `status` and `reason`; `confirm` asks for fresh pairs before the verdict stands."""

    status: str
    reason: str
    confirm: bool = False


def comparison_parent(parent: Measurement | None, baseline: Measurement) -> Measurement:
    """Return what a candidate is compared with: its parent, or the baseline where that has no valid value."""
    return parent if parent is not None and parent.valid else baseline


def gain(candidate: Sequence[float], parent: Sequence[float], direction: str) -> float:
    """Return how much better the candidate's mean is; positive is better for `max` and `min` alike."""
    return better_by(mean(list(candidate)), mean(list(parent)), direction)


def judge_baseline(baseline: Measurement) -> Verdict:
    """Return the verdict of a baseline: measured is a keep, anything else a crash."""
    return _crash(baseline) or Verdict("keep", "baseline")


def judge(
    candidate: Measurement,
    parent: Measurement,
    noise: Noise,
    direction: str,
    *,
    lines_delta: int = 0,
    guards: Sequence[str] = (),
    comparable: str = "",
    confirm: bool = False,
) -> Verdict:
    """Decide about a candidate's run.

    Args:
        candidate: its values and how the run ended.
        parent: from `comparison_parent`; without a valid value nothing can be compared.
        noise: declared or pooled over the campaign; when unknown, repeats of these two are used.
        direction: `max` or `min`.
        lines_delta: lines of code and config added minus removed by the change.
        guards: the guards that do not hold, as text (`guards.failures`).
        comparable: why the number cannot be compared with the parent's; empty when it can.
        confirm: CONFIRM is on: an apparent gain is not yet a verdict (`Verdict.confirm`).

    Returns:
        The verdict. With `confirm` set in it, the status is what stands if no confirming run follows.
    """
    if crash := _crash(candidate):
        return crash
    if not parent.valid:
        found = Verdict("keep", "unverified: neither parent nor baseline has a valid value")
        return _held_back(found, guards, comparable)
    if noise.spread is None:
        noise = pooled([candidate.values, parent.values])
    found = _compare(candidate, parent, noise, direction, lines_delta)
    better = gain(candidate.values, parent.values, direction) > 0
    final = _held_back(found, guards, comparable)
    if not (confirm and better) or found.reason.startswith("simpler") or final is not found:
        return final
    return Verdict("discard", f"{UNCONFIRMED}{found.reason}", True)


def _crash(run: Measurement) -> Verdict | None:
    """Return the crash verdict of a run that gave no valid number or did not end well."""
    if run.end_cause not in GOOD_ENDS:
        return Verdict("crash", ": ".join(part for part in (run.end_cause, run.reason) if part))
    if not run.valid:
        return Verdict("crash", run.reason or "no valid value of the metric")
    return None


def _compare(candidate: Measurement, parent: Measurement, noise: Noise, direction: str, lines_delta: int) -> Verdict:
    g = gain(candidate.values, parent.values, direction)
    other = parent.name or "its parent"
    if noise.spread is None:
        if g > 0:
            return Verdict("keep", f"unverified: better than {other} by {g:.4g}, noise unknown")
        margin, known = 0.0, ""
    else:
        margin = noise.margin(len(candidate.values), len(parent.values))
        known = f", noise {margin:.4g}"
    if g > margin:
        return Verdict("keep", f"better than {other} by {g:.4g}{known}")
    if abs(g) <= margin and lines_delta < 0:
        return Verdict("keep", f"simpler: {-lines_delta} fewer lines, {_signed(g)} against {other}{known}")
    if g > 0:
        return Verdict("discard", f"within noise: better than {other} by {g:.4g}{known}")
    return Verdict("discard", f"worse than {other} by {-g:.4g}{known}" if g < 0 else f"no better than {other}: equal")


def _signed(g: float) -> str:
    return "equal" if g == 0 else f"{g:+.4g}"


def _held_back(found: Verdict, guards: Sequence[str], comparable: str) -> Verdict:
    """Turn a keep into a discard when a guard does not hold or the number cannot be compared."""
    if found.status != "keep":
        return found
    if guards:
        return Verdict("discard", f"guard: {'; '.join(guards)} ({found.reason})")
    if comparable:
        return Verdict("discard", f"not comparable: {comparable} ({found.reason})")
    return found


class Confirmation(NamedTuple):
    """The fresh runs of a CONFIRM so far: (side, valid value or None), side `parent` or `candidate`.

    To be rebuilt from the ledger's rows at any time: it has no memory of its own, so a kill loses
    nothing. Values from before it do not enter: a candidate was picked because its first run was high.
    """

    pairs: int
    runs: tuple[tuple[str, float | None], ...] = ()

    def values(self, side: str) -> tuple[float, ...]:
        """Return the valid values of one side, in the order they were measured."""
        return tuple(value for which, value in self.runs if which == side and value is not None and isfinite(value))

    def failed(self, side: str) -> int:
        """Return how many runs of one side gave no valid value."""
        return sum(which == side for which, _ in self.runs) - len(self.values(side))

    def broken(self) -> str:
        """Return the side whose runs failed twice, or an empty text: one failure is repeated, two are an answer."""
        return next((side for side in ("candidate", "parent") if self.failed(side) > 1), "")

    def needed(self) -> list[str]:
        """Return the runs still to do, next one first; empty when the decision can be made.

        The order alternates and turns round (parent, candidate, candidate, parent, ...), so that a
        drift of the machine does not favour one side.
        """
        if self.broken():
            return []
        missing = {side: self.pairs - len(self.values(side)) for side in ("parent", "candidate")}
        order: list[str] = []
        for pair in range(self.pairs):
            sides = ("parent", "candidate") if pair % 2 == 0 else ("candidate", "parent")
            for side in sides:
                if pair >= self.pairs - missing[side]:
                    order.append(side)
        return order


def conclude(
    confirmation: Confirmation,
    noise: Noise,
    direction: str,
    *,
    first: Verdict,
    lines_delta: int = 0,
    guards: Sequence[str] = (),
    comparable: str = "",
    name: str = "",
) -> Verdict:
    """Decide from the fresh pairs alone.

    Half of all useless changes look better at first. Those whose first gain was within the noise (or
    met an unknown one) must now pass at 99 %, those that exceeded it at 95 %, one-sided: together
    fewer than one useless change in a hundred is kept, and real gains are not asked for too much.

    Args:
        confirmation: the fresh runs; with some still needed (stopped, no time left) it stays a discard.
        noise: pooled over the campaign, these runs included; unknown: taken from these runs.
        direction: `max` or `min`.
        first: the verdict of the first run (from `judge`).
        lines_delta, guards, comparable: as in `judge`; of the confirming runs.
        name: the parent's experiment.
    """
    if broken := confirmation.broken():
        return Verdict("discard", f"unconfirmed: the {broken}'s confirming runs gave no valid value")
    if left := len(confirmation.needed()):
        done = len(confirmation.runs)
        return Verdict("discard", f"unconfirmed: {done} of {done + left} confirming runs were made")
    here, there = confirmation.values("candidate"), confirmation.values("parent")
    if noise.spread is None:
        noise = pooled([here, there])
    other, pairs = name or "its parent", f"{confirmation.pairs} fresh pairs"
    g = gain(here, there, direction)
    if noise.spread is None:  # one pair, and nothing else was ever repeated
        if g > 0:
            return _held_back(Verdict("keep", f"unverified: {pairs} gain {g:.4g}, noise unknown"), guards, comparable)
        return Verdict("discard", f"not confirmed: {pairs} gain {g:.4g} against {other}")
    clear = first.reason.startswith(f"{UNCONFIRMED}better than")
    margin = noise.margin(len(here), len(there), 0.95 if clear else 0.99)
    if g > margin:
        found = Verdict("keep", f"confirmed: better than {other} by {g:.4g} in {pairs}, noise {margin:.4g}")
    elif abs(g) <= margin and lines_delta < 0:
        found = Verdict("keep", f"simpler: {-lines_delta} fewer lines, {_signed(g)} in {pairs}, noise {margin:.4g}")
    else:
        what = "within noise" if g > 0 else "worse"
        found = Verdict("discard", f"{what}: {_signed(g)} against {other} in {pairs}, noise {margin:.4g}")
    return _held_back(found, guards, comparable)


def remeasurements(found: Verdict, repeats: int) -> int:
    """Return how many more runs a new keep gets, so that one lucky value does not become everyone's parent.

    Args:
        found: the verdict; a confirmed keep has its fresh runs already.
        repeats: REPEATS of the plan; 0 and 1 mean that repeats are off.
    """
    again = found.status == "keep" and repeats > 1 and not found.reason.startswith("confirmed")
    return repeats if again else 0
