"""The runs that follow a run: repeats that were asked for, and the fresh pairs that confirm a gain."""

from __future__ import annotations

import os
from collections.abc import Sequence

from autoresearch import attempts, launch, ledger, parents, recovery, reservation
from autoresearch.attempts import State
from autoresearch.campaign import Campaign
from autoresearch.errors import AutoresearchError
from autoresearch.reservation import Draft
from autoresearch.rows import Row
from autoresearch.rules import judging, verdict


def next_one(campaign: Campaign, last: State) -> State | None:
    """Return the next reserved and prepared run of a chain, None when the chain is over.

    A stop rule that is met ends the chain like any launch; what was measured until then stands.
    """
    rows = campaign.rows(smoke=last.smoke)
    row = ledger.find(rows, last.experiment, last.attempt)
    if row is None or row.end_cause == "stopped" or os.path.exists(attempts.stop_file(campaign.where, last.id)):
        return None
    draft = (
        _repeat(last)
        if last.more > 0
        else _look_again(campaign, last, row) or _confirming_run(campaign, rows, last, row)
    )
    if draft is None:
        return None
    try:
        return start(campaign, draft)
    except AutoresearchError:
        return None


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
    if last.role != "idea" or last.smoke or last.experiment == parents.BASELINE:
        return None
    count = verdict.remeasurements(verdict.Verdict(row.status, row.reason), campaign.plan.repeats)
    return _repeat(last._replace(more=count, confirms=row.id)) if count else None


def _confirming_run(campaign: Campaign, rows: Sequence[Row], last: State, row: Row) -> Draft | None:
    """Return the next confirming run, or write the verdict when all are made."""
    idea = _idea_of(rows, last, row)
    if idea is None or last.smoke:
        return None
    runs = confirmation(campaign, rows, idea)
    needed = runs.needed()
    if not needed:
        decide(campaign, idea)
        return None
    candidate = needed[0] == "candidate"
    target = idea if candidate else parents.owner_of(rows, compared_commit(rows, idea))
    if target is None:
        return None
    return Draft(
        experiment=target.experiment,
        commit=target.commit,
        parent_commit=target.parent_commit,
        parent="",
        description=target.description,
        overrides=parents.recorded_overrides(campaign, target.commit) if target.experiment != parents.BASELINE else [],
        role="confirm",
        confirms=idea.id,
        lock=last.lock,
    )


def _idea_of(rows: Sequence[Row], last: State, row: Row) -> Row | None:
    """Return the row that the chain confirms: the one its confirming runs name, or the one that asks for them."""
    if last.role == "confirm":
        return next((found for found in rows if found.id == last.confirms), None)
    return row if row.reason.startswith("unconfirmed: ") else None


def compared_commit(rows: Sequence[Row], idea: Row) -> str:
    """Return the commit that an idea was compared with: its parent's, or the baseline's where that has no value."""
    if parents.values_of(rows, idea.parent_commit):
        return idea.parent_commit
    base = parents.latest(rows, parents.BASELINE)
    return base.commit if base else idea.parent_commit


def confirmation(campaign: Campaign, rows: Sequence[Row], idea: Row) -> verdict.Confirmation:
    """Return the fresh runs of an idea so far, from the ledger alone."""
    runs = [
        ("candidate" if row.commit == idea.commit else "parent", row.value if row.status != "crash" else None)
        for row in rows
        if parents.confirms(row) == idea.id
    ]
    return verdict.Confirmation(campaign.plan.confirm, tuple(runs))


def decide(campaign: Campaign, idea: Row) -> None:
    """Write the verdict that the fresh pairs give into the rows of the idea's commit."""
    from autoresearch.git import notes

    with campaign.locked():
        rows = campaign.rows()
        other = parents.owner_of(rows, compared_commit(rows, idea))
        found = verdict.conclude(
            confirmation(campaign, rows, idea),
            judging.spread(campaign, rows),
            campaign.plan.direction,
            first=verdict.Verdict("discard", idea.reason),
            comparable=judging.one_place([row for row in rows if parents.confirms(row) == idea.id]),
            name=other.experiment if other else "",
        )
        changed = [
            row._replace(status=found.status, verdict_by="confirm", reason=f"{found.reason} (first: {row.reason})")
            for row in rows
            if row.commit == idea.commit and row.status != "crash"
        ]
        by_index = {row.index: row for row in changed}
        ledger.rewrite(campaign.ledger_path, [by_index.get(row.index, row) for row in rows])
    from autoresearch.conclude import note_line

    for row in changed:
        notes.append(campaign.git, row.commit, note_line(campaign, row))
