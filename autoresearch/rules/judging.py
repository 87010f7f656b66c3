"""From the ledger to a verdict: which values are compared, how noisy they are, what holds a keep back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from autoresearch import parents
from autoresearch.attempts import State
from autoresearch.campaign import Campaign
from autoresearch.rows import Row, column
from autoresearch.rules import noise, verdict
from autoresearch.rules.statistics import mean
from autoresearch.rules.verdict import Measurement, Verdict

GUARD = "guard: "
RULED = ("", "rule", "confirm")  # who decides by itself; anybody else is a person whose mark stands


class Result(NamedTuple):
    """What is known of an attempt when it is judged."""

    value: float | None  # the valid metric, else None
    end_cause: str
    reason: str  # why there is no value
    guards: dict[str, float]  # what guards may ask about: memory_gb, elapsed_min, side signals
    comparable: str = ""  # why the number cannot be compared with its parent's; empty when it can
    device: str = ""  # the type of the GPUs; empty when unknown


class Judged(NamedTuple):
    """The verdict, the parent's value that the row carries, and who decided."""

    verdict: Verdict
    parent_metric: float | None
    by: str = "rule"


def judge(campaign: Campaign, rows: Sequence[Row], state: State, result: Result) -> Judged:
    """Return the verdict of an attempt; its own row is not in `rows` yet."""
    again = state.confirms if state.role == "repeat" else ""  # the keep whose luck this run looks at
    own = parents.values_of(rows, state.commit, again) + ([result.value] if result.value is not None else [])
    candidate = Measurement(
        tuple(own) if result.value is not None else (), result.end_cause, state.experiment, result.reason
    )
    if state.smoke:
        found = verdict.judge_baseline(candidate)
        return Judged(found if found.status == "crash" else Verdict("keep", "smoke: proves only that it runs"), None)
    if state.role == "confirm":
        failed = failed_guards(campaign, result.guards) if state.experiment == state.idea else []
        return _confirming(rows, state, candidate, failed)
    if state.experiment == parents.BASELINE:
        return Judged(_baseline(campaign, candidate, result), None)
    before = parents.judged(rows, state.commit)
    if before is not None and is_marked(before) and verdict.judge_baseline(candidate).status != "crash":
        return Judged(Verdict(before.status, f"as marked by {before.verdict_by}"), None, before.verdict_by)
    parent = comparison(rows, state.parent_commit, state.parent)
    known = spread(campaign, rows, state, result.value)
    found = verdict.judge(
        candidate,
        parent,
        known,
        campaign.plan.direction,
        lines_delta=state.lines_delta or 0,
        guards=failed_guards(campaign, result.guards),
        comparable=result.comparable or other_place(campaign, rows, state, result.device),
        confirm=state.pairs > 0 and state.role == "idea" and not state.more,
    )
    if again:
        found = found._replace(reason=f"{found.reason}; {parents.FRESH}{again}")
    return Judged(found, mean(parent.values) if parent.valid else None)


def _baseline(campaign: Campaign, run: Measurement, result: Result) -> Verdict:
    """Return the verdict of the baseline; a guard that it misses is named, since a wrong name would hold back all."""
    found = verdict.judge_baseline(run)
    failed = failed_guards(campaign, result.guards) if found.status == "keep" else []
    return found._replace(reason=f"{found.reason}; it misses the guard: {' and '.join(failed)}") if failed else found


def other_place(campaign: Campaign, rows: Sequence[Row], state: State, device: str) -> str:
    """Return why a number does not compare with its parent's: another launcher or type of GPU; empty when it does."""
    parent = parents.judged(rows, state.parent_commit) or parents.latest(rows, parents.BASELINE)
    if parent is None:
        return ""
    return one_place([parent, Row(experiment="this", launcher=campaign.plan.launcher, device=device)])


def one_place(rows: Sequence[Row]) -> str:
    """Return why the numbers of some runs do not compare: where two of them ran; empty when they do.

    A type of GPU that is not known is no ground.
    """
    for of in ("launcher", "device"):
        ran = {getattr(row, of): row.experiment for row in rows if getattr(row, of)}
        if len(ran) > 1:
            return ", ".join(f"{name} ran on {place}" for place, name in ran.items())
    return ""


def is_marked(row: Row) -> bool:
    """Return whether a person has decided about a row, or about its commit before: that stands."""
    return row.verdict_by not in RULED


def _confirming(rows: Sequence[Row], state: State, run: Measurement, guards: list[str]) -> Judged:
    """Return the status of a confirming run: it only measures, so its commit keeps the verdict it has.

    Also a crash names what it was to confirm: a failure that nothing counted would be repeated for ever.
    """
    crash = verdict.judge_baseline(run)
    if crash.status == "crash":
        return Judged(crash._replace(reason=f"{confirming(state.confirms)}: {crash.reason}"), None)
    before = parents.judged(rows, state.commit)
    why = f"; {GUARD}{' and '.join(guards)}" if guards else ""  # the verdict of the fresh pairs asks for it
    found = Verdict(before.status if before else "discard", f"{confirming(state.confirms)}{why}")
    return Judged(found, None, before.verdict_by if before and is_marked(before) else "rule")


def confirming(attempt_id: str) -> str:
    """Return the reason of a run that confirms an attempt; the confirmation is rebuilt from these rows."""
    return f"{parents.CONFIRMS}{attempt_id}"


def comparison(rows: Sequence[Row], commit: str, experiment: str) -> Measurement:
    """Return what a candidate is compared with: its parent, or the baseline where that has no valid value."""
    base = parents.latest(rows, parents.BASELINE)
    baseline = measurement(rows, base.commit, parents.BASELINE) if base else Measurement()
    return verdict.comparison_parent(measurement(rows, commit, experiment or commit[:12]), baseline)


def measurement(rows: Sequence[Row], commit: str, name: str) -> Measurement:
    """Return the valid values of a commit."""
    return Measurement(tuple(parents.values_of(rows, commit)), "ok", name)


def spread(
    campaign: Campaign, rows: Sequence[Row], state: State | None = None, value: float | None = None
) -> noise.Noise:
    """Return the noise of the metric: declared, else pooled over every commit that was run more than once."""
    once: set[str] = {state.commit} if state is not None else set()
    again: set[str] = set()
    commits, statuses = column(rows, "commit"), column(rows, "status")
    for commit in commits:
        (again if commit in once else once).add(commit)
    measured: dict[str, list[int]] = {}
    for at, commit in enumerate(commits):
        if commit in again and statuses[at] != "crash":
            measured.setdefault(commit, []).append(at)
    # A value that was picked for being far off says nothing of how far off values are.
    pairs = [(commit, rows[at].value) for commit, found in measured.items() for at in parents.counted(rows, found)]
    if state is not None:
        pairs.append((state.commit, value))
    return noise.known(campaign.plan.noise, noise.grouped(pairs).values())


def failed_guards(campaign: Campaign, values: dict[str, float]) -> list[str]:
    """Return the plan's guards that do not hold, as text."""
    if not campaign.plan.guard:
        return []
    from autoresearch.rules import guards

    return guards.failures(guards.parse(campaign.plan.guard), values)
