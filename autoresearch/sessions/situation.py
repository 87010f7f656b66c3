"""The whole picture of a campaign at one moment, from its records and git, never from the notes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from autoresearch import attempts, ledger, parents, paths, plan, recovery
from autoresearch.attempts import State
from autoresearch.campaign import Campaign
from autoresearch.errors import AutoresearchError
from autoresearch.git.repository import Change
from autoresearch.rows import Row, holding, places
from autoresearch.rules import explicit, standing, stop
from autoresearch.sessions import session

# Settings that leave a check out; the notes name them.
_SKIPPED = {
    "FORCE_LOCAL": "the GPUs the recipe wants were not checked (FORCE_LOCAL)",
    "CLEAN_CACHE": "the shared cache is not used (CLEAN_CACHE)",
}


class Situation(NamedTuple):
    """What is known of a campaign. Changes are None when git could not be asked."""

    opened: Campaign
    approval: str  # approved, changed (the plan is another one since), missing
    objective: str
    book: ledger.Ledger
    states: list[State]
    orphans: list[State]
    standing: stop.Standing
    best: Row | None  # of the kept ones
    changes: list[Change] | None
    head: str  # the user's own branch and commit, for the reader

    @property
    def rows(self) -> Sequence[Row]:
        """The ledger's rows, oldest first."""
        return self.book.rows


def look(where: paths.Campaign) -> Situation:
    """Return the situation of a campaign, approved or not.

    Raises:
        Refused: it has no plan that can be read.
    """
    opened, approval = _open(where)
    book = ledger.read(opened.ledger_path)
    states = attempts.every(where)
    return Situation(
        opened=opened,
        approval=approval,
        objective=session.objective(where, opened.plan.objective),
        book=book,
        states=states,
        orphans=[state for state in states if recovery.is_orphan(opened, state)],
        standing=standing.line(opened, book.rows, states),
        best=parents.best_kept(book.rows, opened.plan.direction),
        changes=_changes(opened),
        head=_head(opened),
    )


def _open(where: paths.Campaign) -> tuple[Campaign, str]:
    approval = plan.read_approval(where)
    if approval is None:
        made = plan.load(where.plan)[0]
        return Campaign(where, plan.Approval("", "", "", made, [])), "missing"
    return Campaign(where, approval), "approved" if plan.binds(where, approval) else "changed"


def _changes(opened: Campaign) -> list[Change] | None:
    from autoresearch.git import repository

    try:
        return repository.user_changes(opened.git)
    except AutoresearchError:
        return None


def _head(opened: Campaign) -> str:
    from autoresearch.git import repository

    try:
        place = repository.look(opened.git)
    except AutoresearchError:
        return ""
    return f"{place.branch.removeprefix('refs/heads/') or 'detached HEAD'} at {place.head[:12]}"


def next_action(now: Situation) -> tuple[str, str]:
    """Return what is to be done next: a keyword (approve, wait, ledger, baseline, summarize, experiment) and the line.

    Where a stop rule is met and the summary is newer than the last row, the keyword is `report`.
    """
    name = now.opened.name
    if now.approval != "approved":
        return "approve", f"make approve CAMPAIGN={name} YES=1, after the user's yes to the plan"
    if now.standing.met and not now.states and _is_summarized(now):
        return "report", "report the summary to the user; make extend STOP='...' needs their yes"
    return standing.next_step(now.opened, now.rows, now.states, now.standing.met)


def _is_summarized(now: Situation) -> bool:
    try:
        return os.stat(now.opened.where.summary).st_mtime >= os.stat(now.opened.ledger_path).st_mtime
    except OSError:
        return False


def branch(now: Situation) -> str:
    """Return the branch that is worked on: of what runs, else of the latest row; empty before the first."""
    if now.states:
        return now.states[-1].branch
    return now.rows[-1].branch if now.rows else ""


def rules(now: Situation) -> list[tuple[str, str]]:
    """Return the stop rules in explicit values."""
    started = now.opened.started()
    deadline = (started[1] or None) if started else None
    return explicit.describe(standing.rules(now.opened), deadline_at=deadline)


def result(row: Row | None) -> str:
    """Return a row in one line, `none yet` without one."""
    if row is None:
        return "none yet"
    value = row.metric_value if row.value is not None else "no valid metric"
    cause = f" ({row.end_cause})" if row.end_cause not in ("", "ok") else ""
    return f"{row.id} {value} {row.status}{cause} on {row.branch} at {row.commit[:12]}"


def failures(now: Situation) -> str:
    """Return how many rows are crashes and why the last one was; empty without any."""
    crashed = places(now.rows, "status", "crash")
    if not crashed:
        return ""
    last = now.rows[crashed[-1]]
    return (
        f"{len(crashed)} of {len(now.rows)} rows are crashes, the last is {last.id} ({last.end_cause}: {last.reason})"
    )


def skipped(now: Situation) -> list[str]:
    """Return the checks that this campaign leaves out."""
    made = now.opened.plan
    found = [text for key, text in _SKIPPED.items() if made.setting(key)]
    forced = [now.rows[at].id for at in holding(now.rows, "reason", "not comparable: ")[-5:]]
    return found + ([f"not comparable by their own change: {', '.join(forced)}"] if forced else [])


def uncommitted(now: Situation) -> str:
    """Return whose uncommitted changes there are in the checkout: they are the user's, autoresearch makes none."""
    if now.changes is None:
        return "git could not be asked"
    if not now.changes:
        return "none"
    shown = ", ".join(change.path for change in now.changes[:5])
    more = f" and {len(now.changes) - 5} more" if len(now.changes) > 5 else ""
    return f"{len(now.changes)} in the checkout, the user's own, left alone: {shown}{more}"
