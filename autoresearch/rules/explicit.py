"""Stop rules as explicit values: bound to the campaign's metric, and as the plan and `status` show them."""

from __future__ import annotations

import time

from autoresearch import durations
from autoresearch.direction import reaching
from autoresearch.errors import Usage
from autoresearch.rules.stop import Rules


def resolve(rules: Rules, *, metric: str, direction: str) -> Rules:
    """Bind a target to the campaign's metric, for the plan.

    Args:
        metric: as in the plan; `SOURCE:NAME` answers to `NAME` too.
        direction: `max` or `min`.

    Raises:
        Usage: the target names another metric, or points against the direction.
    """
    if rules.target is None:
        return rules
    name, op, value = rules.target
    names = {metric, metric.partition(":")[2] or metric}
    if name and name not in names:
        raise Usage("STOP", f"the campaign measures {metric!r}, not {name!r}", f"write `target {value:g}`")
    good = reaching(direction)
    if op and op not in good:
        why = f"`{op} {value:g}` is against the direction {direction}: the worst result would end the campaign"
        raise Usage("STOP", why, f"write `target {value:g}` or correct DIRECTION")
    return rules._replace(target=(name or metric, op or good[0], value))


def describe(rules: Rules, *, deadline_at: float | None = None) -> list[tuple[str, str]]:
    """Return the rules as explicit values, in a fixed order, for the plan and `status`.

    Args:
        deadline_at: the deadline kept on disk (epoch seconds), once there is one.
    """
    rows: list[tuple[str, str]] = []
    if rules.experiments is not None:
        why = " (no stop rule given: the baseline and at most three, then ask)" if rules.default else ""
        rows.append(("target_experiment_count", f"{rules.experiments}{why}"))
    ends = [rules.until_text or _utc(rules.until)] if rules.until is not None else []
    if rules.total_s is not None:
        ends.insert(0, f"{durations.format(rules.total_s)} after the first launch")
    if deadline_at is not None:
        rows.append(("campaign_deadline", f"{_utc(deadline_at)} ({' or '.join(ends)})"))
    elif ends:
        rows.append(("campaign_deadline", " or ".join(ends) + (", the earlier" if len(ends) > 1 else "")))
    rows.append(("per_experiment_timeout", _each(rules)))
    if rules.target is not None:
        metric, op, value = rules.target
        rows.append(("target_metric", f"{metric or 'the metric'} {op or 'at or beyond'} {value:.12g}"))
    if rules.plateau is not None:
        rows.append(("plateau", f"{rules.plateau} ideas in a row without a new best"))
    if rules.crashes_in_a_row is not None:
        rows.append(("crashes_in_a_row", f"{rules.crashes_in_a_row}"))
    if rules.gpu_hours is not None:
        rows.append(("gpu_hours", f"{rules.gpu_hours:g}"))
    return rows


def _each(rules: Rules) -> str:
    if rules.each_s is not None:
        return durations.format(rules.each_s)
    if rules.total_s is not None or rules.until is not None:
        return "none of its own: a run gets the time left to the deadline"
    return "none: a run may take for ever, unless its recipe has a limit"


def _utc(epoch: float | None) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch)) if epoch is not None else ""
