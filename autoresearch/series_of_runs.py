"""The runs that follow a run: repeats that were asked for, and the fresh pairs that confirm a gain."""

from __future__ import annotations

from autoresearch import attempts, confirming, launch, ledger, parents, recovery, reservation
from autoresearch.attempts import State
from autoresearch.campaign import Campaign
from autoresearch.errors import AutoresearchError
from autoresearch.reservation import Draft
from autoresearch.rows import Row
from autoresearch.rules import verdict
from autoresearch.sessions import session


def next_one(campaign: Campaign, last: State) -> State | None:
    """Return the next reserved and prepared run of a chain, None when the chain is over.

    A stop rule that is met ends the chain like any launch; what was measured until then stands.
    """
    row = ledger.find(campaign.rows(smoke=last.smoke), last.experiment, last.attempt)
    if row is None or is_cut(row) or attempts.stop_asked(campaign.where, last):
        return None
    draft = next_draft(campaign, last, row)
    if draft is None:
        return None
    try:
        campaign.renew_rules()
        return start(campaign, draft)
    except AutoresearchError as refusal:
        session.checkpoint(campaign.where, f"no run follows {last.id}", refusal.why)
        return None


def is_cut(row: Row) -> bool:
    """Return whether a run ends its chain: it was stopped, or is a confirming one that would be made again for ever."""
    return row.end_cause == "stopped" or (bool(parents.confirms(row)) and row.end_cause in confirming.NO_ANSWER)


def next_draft(campaign: Campaign, last: State, row: Row) -> Draft | None:
    """Return the run that the verdict of an idea waits for after its run `last`, None when there is none."""
    if last.more > 0:
        # What fails at its first run would most likely fail at all of them, each as long as a run may take.
        return _repeat(last) if parents.judged(campaign.rows(), last.commit) else None
    if last.smoke or last.role == "repeat":
        return None
    return _look_again(campaign, last, row) or _confirming_run(campaign, last, row)


def start(campaign: Campaign, draft: Draft) -> State:
    """Reserve a further run of a chain, give it a tree, and prepare it."""
    state = reservation.reserve(campaign, draft, lambda: None)
    try:
        return launch.prepare(campaign, state)
    except BaseException:
        recovery.give_up(campaign, state)
        raise


def _repeat(last: State) -> Draft:
    return Draft(
        experiment=last.experiment,
        commit=last.commit,
        parent_commit=last.parent_commit,
        parent=last.parent,
        description=last.description,
        overrides=last.overrides,
        lines_delta=last.lines_delta,
        smoke=last.smoke,
        role="repeat",
        more=last.more - 1,
        confirms=last.confirms,
        notes=last.notes,
        lock=last.lock,
    )


def _look_again(campaign: Campaign, last: State, row: Row) -> Draft | None:
    """Return the first fresh run of an idea that was just kept, when the plan repeats: it was picked for its value."""
    if last.role != "idea" or last.experiment == parents.BASELINE:
        return None
    count = verdict.remeasurements(verdict.Verdict(row.status, row.reason), campaign.plan.repeats)
    return _repeat(last._replace(more=count, confirms=row.id)) if count else None


def _confirming_run(campaign: Campaign, last: State, row: Row) -> Draft | None:
    """Return the next run that confirms the idea of this chain, None when it has its verdict."""
    if not last.pairs:
        return None
    rows = campaign.rows()
    idea = confirming.confirmed_by(rows, row) if last.role == "confirm" else row
    if idea is None or confirming.unconfirmed(rows, idea.commit) != idea:
        return None
    return confirming.next_run(campaign, rows, idea, last.pairs, last.lock)
