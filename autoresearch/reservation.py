"""A place in the campaign for one launch: stop rules, attempt number, branch and state in one transaction."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from typing import NamedTuple

from autoresearch import attempts, clock, command, names, parents
from autoresearch.attempts import State
from autoresearch.campaign import Campaign
from autoresearch.errors import Refused
from autoresearch.rows import Row, column, places
from autoresearch.rules import standing, stop
from autoresearch.running import processes

Publish = Callable[[], None]  # creates or advances the branch of a draft; raises when it cannot


class Draft(NamedTuple):
    """What is to be run, before it has a place."""

    experiment: str
    commit: str
    parent_commit: str
    parent: str
    description: str
    overrides: list[str]
    lines_delta: int | None = None
    smoke: bool = False
    role: str = "idea"
    more: int = 0
    confirms: str = ""
    notes: list[str] = []
    lock: str = ""  # of a chain of runs that is under way; empty for its first
    pairs: int | None = None  # fresh pairs that decide a gain; None for what plan and call say

    @property
    def idea(self) -> str:
        """The experiment whose verdict this run is for, as of its state."""
        return attempts.idea_of(self.experiment, self.role, self.confirms)

    @property
    def is_open(self) -> bool:
        """Whether the verdict of an earlier run waits for this one, as of its state."""
        return self.role == "confirm" or bool(self.lock)


def reserve(campaign: Campaign, draft: Draft, publish: Publish) -> State:
    """Give a draft its place and return its state; nothing is changed when it is refused.

    Args:
        campaign: an open campaign.
        draft: what is to be run.
        publish: creates or advances the branch; called inside the transaction, raises when it cannot.

    Raises:
        Refused: a stop rule is met, or the experiment runs already.
    """
    with campaign.locked():
        rows, states = campaign.rows(), attempts.every(campaign.where)
        known = standing.facts(campaign, rows, states)
        _check_free(draft, states)
        cap = standing.run_cap(campaign, known)
        if not draft.smoke:
            new = draft.experiment not in column(rows, "experiment")
            rules = standing.rules(campaign)
            allowed = stop.may_launch(rules, known, cap_s=cap, is_new_idea=new, is_open=draft.is_open)
            if not allowed.ok:
                raise Refused("stop rule", allowed.why, allowed.fix)
        publish()
        state = _state(campaign, draft, next_attempt(campaign, rows, states, draft), cap)
        attempts.create(campaign.where, state)
        return state


def _check_free(draft: Draft, states: list[State]) -> None:
    """Refuse a second run for an idea that is under way; the runs of one chain follow each other.

    A run that confirms another idea is none of its parent's own: several ideas may have theirs confirmed at once.
    """
    busy = [s for s in states if s.idea == draft.idea and s.lock != draft.lock]
    if busy:
        why = f"{draft.idea!r} is under way ({busy[0].id})"
        raise Refused("experiment", why, f"make wait NAME={draft.idea}, or make stop NAME={draft.idea}")


def next_attempt(campaign: Campaign, rows: Sequence[Row], states: list[State], draft: Draft) -> int:
    """Return the attempt number of a draft: one more than the highest that its ledger or a launch has."""
    book = campaign.rows(smoke=True) if draft.smoke else rows
    numbers = column(book, "attempt")
    used = [int(numbers[at]) for at in places(book, "experiment", draft.experiment) if numbers[at].isdigit()]
    used += [s.attempt for s in states if s.experiment == draft.experiment and s.smoke == draft.smoke]
    number = max(used, default=0) + 1
    # A directory that a run has used is never used again: trainers resume silently from what they find there.
    while os.path.lexists(campaign.where.attempt(draft.experiment, number, draft.smoke).log):
        number += 1
    return number


def _state(campaign: Campaign, draft: Draft, attempt: int, cap: float | None) -> State:
    plan = campaign.plan
    at = campaign.where.attempt(draft.experiment, attempt, draft.smoke)
    values = command.values(plan.recipe, at, attempt, f"{campaign.name}-{names.attempt_id(draft.experiment, attempt)}")
    smoke = shlex.split(plan.smoke_overrides) if draft.smoke else []
    argv = command.build(plan.command, values, own_words(campaign, values, cap), [*draft.overrides, *smoke])
    return State(
        experiment=draft.experiment,
        attempt=attempt,
        smoke=draft.smoke,
        phase="reserved",
        branch=campaign.branch(draft.experiment),
        commit=draft.commit,
        parent_commit=draft.parent_commit,
        parent=draft.parent,
        description=draft.description,
        argv=argv,
        tree="",
        overrides=draft.overrides,
        lines_delta=draft.lines_delta,
        cap_s=cap,
        reserved_at=clock.now(),
        client=_self(),
        lock=draft.lock or attempts.chain_lock(names.attempt_id(draft.experiment, attempt, draft.smoke)),
        notes=draft.notes,
        role=draft.role,
        more=draft.more,
        pairs=plan.confirm if draft.pairs is None else draft.pairs,
        confirms=draft.confirms,
        mark=processes.new_mark().text(),
        command=command.show(argv),
        seed=attempt,
    )


def own_words(campaign: Campaign, values: dict[str, str], cap_s: float | None) -> list[str]:
    """Return the words that the recipe's every run carries; none for a command that the user gave."""
    if not campaign.plan.recipe_overrides:
        return []
    from autoresearch import recipes

    first = campaign.where.attempt(parents.BASELINE, 1)
    return recipes.run_words(campaign.plan, values, cap_s, recipes.setup_seconds(first.log))


def _self() -> str:
    me = processes.identify(os.getpid())
    return me.text() if me else ""
