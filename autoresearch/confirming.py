"""CONFIRM: the fresh pairs of parent and candidate that decide a gain; told from the ledger, so a kill loses none."""

from __future__ import annotations

from collections.abc import Sequence

from autoresearch import ledger, names, parents
from autoresearch.campaign import Campaign
from autoresearch.reservation import Draft
from autoresearch.rows import Row, holding, places
from autoresearch.rules import judging, verdict
from autoresearch.sessions import session

# How a run ends that says nothing of what it ran: somebody stopped it, or its machine failed it.
NO_ANSWER = ("stopped", "lost", "launcher", "disk")


def unconfirmed(rows: Sequence[Row], commit: str) -> Row | None:
    """Return the row whose gain waits for its fresh pairs; None when its commit has a verdict, also a person's."""
    for at in reversed(places(rows, "commit", commit)):
        row = rows[at]
        if row.status == "crash" or (parents.confirms(row) and not judging.is_marked(row)):
            continue
        return row if row.verdict_by == "rule" and row.reason.startswith(verdict.UNCONFIRMED) else None
    return None


def failed(row: Row) -> bool:
    """Return whether the confirming runs gave no valid value, so that the gain is as open as before them."""
    return row.verdict_by == "confirm" and row.reason.startswith(verdict.UNCONFIRMED)


def confirmed_by(rows: Sequence[Row], row: Row) -> Row | None:
    """Return the row that a confirming run was made for, None for any other run."""
    wanted = parents.confirms(row)
    return row_of(rows, wanted) if wanted else None


def row_of(rows: Sequence[Row], attempt: str) -> Row | None:
    """Return the row of the attempt with this id, None when it has none."""
    experiment = names.experiment_of(attempt)
    return ledger.find(rows, experiment, int(attempt.removeprefix(experiment).removeprefix(".") or "1"))


def next_run(campaign: Campaign, rows: Sequence[Row], idea: Row, pairs: int, lock: str = "") -> Draft:
    """Return the next confirming run of an idea that has no verdict yet.

    Args:
        campaign: an open campaign.
        rows: its ledger.
        idea: the row whose gain is to be confirmed.
        pairs: how many fresh pairs decide.
        lock: of the chain of runs it belongs to; empty for its first.
    """
    needed = confirmation(rows, idea, pairs).needed()
    # With nothing left to do it would have its verdict: fewer pairs are asked for than when it was cut short.
    other = parents.owner_of(rows, compared_commit(rows, idea)) if needed[:1] == ["parent"] else None
    target = other or idea
    return Draft(
        experiment=target.experiment,
        commit=target.commit,
        parent_commit=target.parent_commit,
        parent="",
        description=target.description,
        overrides=parents.recorded_overrides(campaign, target.commit) if target.experiment != parents.BASELINE else [],
        role="confirm",
        confirms=idea.id,
        pairs=pairs,
        lock=lock,
    )


def compared_commit(rows: Sequence[Row], idea: Row) -> str:
    """Return the commit that an idea was compared with: its parent's, or the baseline's where that has no value."""
    if parents.values_of(rows, idea.parent_commit):
        return idea.parent_commit
    base = parents.latest(rows, parents.BASELINE)
    return base.commit if base else idea.parent_commit


def confirmation(rows: Sequence[Row], idea: Row, pairs: int) -> verdict.Confirmation:
    """Return the fresh runs of an idea so far. One that says nothing is not among them, and is made again."""
    runs = [
        ("candidate" if row.commit == idea.commit else "parent", row.value if row.status != "crash" else None)
        for row in fresh_runs(rows, idea)
        if row.end_cause not in NO_ANSWER
    ]
    return verdict.Confirmation(pairs, tuple(runs))


def fresh_runs(rows: Sequence[Row], idea: Row) -> list[Row]:
    """Return the rows of the runs that were made to confirm an idea."""
    found = [rows[at] for at in holding(rows, "reason", judging.confirming(idea.id))]
    return [row for row in found if parents.confirms(row) == idea.id]


def settle(campaign: Campaign, row: Row, pairs: int) -> None:
    """Write the verdict of the idea that a confirming run was made for, once the fresh pairs give one.

    It goes into the rows of the idea's commit, after their git notes: done again after a kill, it ends the same.
    """
    from autoresearch.conclude import note_line
    from autoresearch.git import notes

    with campaign.locked():
        rows = campaign.rows()
        idea = confirmed_by(rows, row)
        if idea is None or unconfirmed(rows, idea.commit) != idea or confirmation(rows, idea, pairs).needed():
            return
        found = decide(campaign, rows, idea, pairs)
        changed = {
            row.index: row._replace(
                status=found.status, verdict_by="confirm", reason=f"{found.reason} (first: {row.reason})"
            )
            for at in places(rows, "commit", idea.commit)
            if (row := rows[at]).status != "crash"
        }
        for row in changed.values():
            notes.append(campaign.git, row.commit, note_line(campaign, row))
        ledger.rewrite(campaign.ledger_path, [changed.get(row.index, row) for row in rows])
    session.checkpoint(campaign.where, f"{idea.id}: {found.status}, by its confirming runs", found.reason)


def decide(campaign: Campaign, rows: Sequence[Row], idea: Row, pairs: int) -> verdict.Verdict:
    """Return the verdict that the fresh pairs of an idea give."""
    from autoresearch.git import hypothesis

    other, fresh = parents.owner_of(rows, compared_commit(rows, idea)), fresh_runs(rows, idea)
    added, removed = hypothesis.lines(campaign.git, idea.parent_commit, idea.commit)
    return verdict.conclude(
        confirmation(rows, idea, pairs),
        judging.spread(campaign, rows),
        campaign.plan.direction,
        first=verdict.Verdict("discard", idea.reason),
        lines_delta=added - removed,
        guards=[why for row in fresh if (why := row.reason.partition(judging.GUARD)[2].split("; ")[0])],
        comparable=judging.one_place(fresh),
        name=other.experiment if other else "",
    )
