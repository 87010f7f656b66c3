"""Where a campaign stands: the facts for the stop rules, from the ledger and the attempts under way."""

from __future__ import annotations

from collections.abc import Sequence

from autoresearch import clock, parents
from autoresearch.attempts import State
from autoresearch.campaign import Campaign
from autoresearch.plan import Plan
from autoresearch.rows import Row, column, finite
from autoresearch.rules import stop

# A recipe's own clock starts after set-up and it saves before it stops: the outer limit leaves room for both.
ROOM_S, ROOM_SHARE = 600.0, 0.25


def rules(campaign: Campaign) -> stop.Rules:
    """Return the campaign's stop rules as approved."""
    return stop.Rules.from_json(campaign.plan.rules)


def facts(campaign: Campaign, rows: Sequence[Row], states: list[State], now: float | None = None) -> stop.Facts:
    """Return what the stop rules ask about.

    Args:
        campaign: an open campaign.
        rows: its ledger.
        states: its attempts without a row; plumbing runs count for nothing.
        now: epoch seconds, default the wall clock.
    """
    now = clock.now() if now is None else now
    recorded = {(row.experiment, row.attempt) for row in rows[-len(states) - 50 :]} if states else set()
    running = [s for s in states if not s.smoke and (s.experiment, str(s.attempt)) not in recorded]
    started = campaign.started()
    first, deadline = started if started else (None, 0.0)
    used_by_one = gpus(campaign.plan)
    return stop.Facts(
        now=now,
        first_launch=first,
        deadline=deadline or None,
        attempts=rows,
        running=[state.experiment for state in running],
        gpu_hours_used=_gpu_hours(rows, running, used_by_one, now) if used_by_one else 0.0,
        gpu_hours_held=_gpu_hours_held(running, used_by_one, now),
        direction=campaign.plan.direction,
        gpus=used_by_one,
    )


def gpus(plan: Plan) -> float:
    """Return the GPUs of one run as far as the plan says them, by its recipe or by a setting; 0 when it does not."""
    if plan.gpus:
        return float(plan.gpus * plan.nodes)
    if plan.launcher == "ray":
        return finite(plan.setting("RAY_GPUS")) or 0.0
    if plan.launcher == "local" and plan.setting("GPUS"):
        from autoresearch.running import devices

        return float(len(devices.wanted(plan.setting("GPUS"), "")[0]))
    return 0.0


def _gpu_hours(rows: Sequence[Row], running: list[State], used_by_one: float, now: float) -> float:
    minutes = sum(filter(None, map(finite, column(rows, "elapsed_min"))))
    minutes += sum(max(0.0, now - state.started_at) / 60 for state in running if state.started_at)
    return minutes / 60 * used_by_one


def _gpu_hours_held(running: list[State], used_by_one: float, now: float) -> float:
    """Return what running attempts may still use, each up to its cap."""
    ends = [(state.started_at or now) + state.cap_s for state in running if state.cap_s is not None]
    return sum(max(0.0, end - now) for end in ends) / 3600 * used_by_one


def run_cap(campaign: Campaign, known: stop.Facts) -> float | None:
    """Return the seconds one more run may take: the tighter of the rules' and the recipe's own; None for no cap."""
    limits = [stop.cap(rules(campaign), known), outer_limit(campaign.plan)]
    return min((limit for limit in limits if limit is not None), default=None)


def outer_limit(plan: Plan) -> float | None:
    """Return the seconds after which a recipe with a limit of its own is ended from outside; None without one."""
    own = plan.recipe_timeout_s
    return own + max(ROOM_S, ROOM_SHARE * own) if own else None


def line(campaign: Campaign, rows: Sequence[Row], states: list[State]) -> stop.Standing:
    """Return the standing with its sentence: `stop condition not yet met: 3/24 attempted, 6h12m remaining`."""
    known = facts(campaign, rows, states)
    return stop.standing(rules(campaign), known, cap_s=None)


def next_step(campaign: Campaign, rows: Sequence[Row], states: list[State], met: bool) -> tuple[str, str]:
    """Return what is to be done next in an approved campaign: a keyword and the line to type.

    Args:
        campaign: an open campaign.
        rows: its ledger.
        states: its attempts without a row.
        met: whether a stop rule is met.
    """
    name = campaign.name
    if states:
        return "wait", f"make wait CAMPAIGN={name} NAME={states[0].idea}"
    if campaign.has_lost_rows():
        return "ledger", f"make ledger CAMPAIGN={name} YES=1, which brings back the rows that git has"
    if met:
        return "summarize", f"make summarize CAMPAIGN={name}"
    first = parents.latest(rows, parents.BASELINE)
    if first is None:
        return "baseline", f"make baseline CAMPAIGN={name}"
    if parents.judged(rows, first.commit) is None:
        return "baseline", f"make show CAMPAIGN={name} NAME=baseline, put it right, then: make baseline CAMPAIGN={name}"
    return "experiment", f"make experiment CAMPAIGN={name} NAME=y HYPOTHESIS='area: change' ... (make ideas lists some)"
