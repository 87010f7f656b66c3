"""Stop rules: what a campaign may still do, in numbers. Pure: the clock is passed in, nothing is read.

`parse` turns the text of `STOP` into `Rules` (the language is in `stop_language`, loaded only then);
`standing` says where a campaign is; `may_launch` and `cap` decide about one more run. Ideas are
counted, never reruns, repeats or smoke runs: distinct experiment names, baseline included, running
ones too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from autoresearch import durations
from autoresearch.direction import meets, reaching
from autoresearch.errors import Usage
from autoresearch.rows import column, distinct, places
from autoresearch.rules.statistics import mean

DEFAULT_EXPERIMENTS = 4  # without any rule: the baseline and at most three, then summarise and ask


class Rules(NamedTuple):
    """A campaign's stop rules; a field that is None is not a rule."""

    experiments: int | None = None  # distinct experiments, baseline included
    total_s: float | None = None  # seconds from the first launch
    each_s: float | None = None  # seconds one run may take: a cap, not a trigger
    until: float | None = None  # epoch seconds
    target: tuple[str, str, float] | None = None  # metric, op, value; metric and op may be "": the campaign's own
    plateau: int | None = None  # ideas in a row without a new best
    crashes_in_a_row: int | None = None
    gpu_hours: float | None = None
    default: bool = False  # nothing was asked for that ends the campaign: `experiments` is ours
    until_text: str = ""  # `until` with its zone made explicit, as the plan shows it

    def to_json(self) -> dict[str, Any]:
        """Return the rules as a plain dict without the empty fields."""
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in self._asdict().items()
            if value not in (None, "", False)
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Rules:
        """Return the rules that `to_json` wrote. Raises Usage when a field is unknown (a newer version wrote it)."""
        unknown = sorted(set(data) - set(cls._fields))
        if unknown:
            raise Usage("stop rules", f"unknown field {unknown[0]!r}", "use the autoresearch that made this plan")
        target = data.get("target")
        return cls(**{**data, "target": (str(target[0]), str(target[1]), float(target[2])) if target else None})


if TYPE_CHECKING:
    from typing import Protocol

    class Attempt(Protocol):
        """What the rules ask of a row of the ledger, of which 10,000 need no copy.

        Smoke rows are left out, repeats and reruns are not.
        """

        @property
        def experiment(self) -> str: ...
        @property
        def value(self) -> float | None: ...  # None unless it is valid: a crash's 0.000000 never gets here
        @property
        def status(self) -> str: ...  # keep, discard or crash, after any `mark`
        @property
        def end_cause(self) -> str: ...
        @property
        def commit(self) -> str: ...  # rows of one commit are repeats of one measurement; "": it stands alone
        @property
        def reason(self) -> str: ...  # a fresh run names the one that led to it, which then counts for nothing
        @property
        def id(self) -> str: ...


class Facts(NamedTuple):
    """What is known of a campaign at one moment. Times are epoch seconds."""

    now: float
    first_launch: float | None = None
    deadline: float | None = None  # as kept on disk since the first launch; None: worked out from the rules
    attempts: Sequence[Attempt] = ()  # in ledger order
    running: list[str] = []  # experiments with a launch that has no row yet, reserved ones included
    gpu_hours_used: float = 0.0  # what running ones have used so far included
    gpu_hours_held: float = 0.0  # what running ones may still use, up to their caps: no launch counts on it
    direction: str = "max"
    gpus: float = 0  # GPUs of one run, 0 when unknown: lets a GPU budget bound the next run


class Trigger(NamedTuple):
    """One trigger and where it stands."""

    name: str
    met: bool
    detail: str


class Standing(NamedTuple):
    """Where a campaign stands; `line` is the sentence for people and agents."""

    met: bool
    triggers: list[Trigger]
    attempted: int
    target: int | None
    remaining_s: float | None
    line: str
    note: str = ""  # what to do now when the rule is ours


class Permission(NamedTuple):
    """The answer to one more launch; `why` and `fix` are for the refusal (exit 3)."""

    ok: bool
    why: str
    fix: str
    standing: Standing


def parse(text: str, *, now: float, tz: str | None = None) -> Rules:
    """Read the text of `STOP`, in English or Japanese; an empty one gives the default rule.

    Args:
        text: e.g. `50 experiments or 10h total, 1h each`.
        now: epoch seconds, to refuse a deadline that has passed and to place `until 07:00`.
        tz: zone of a time given without one (`Asia/Tokyo`, `+09:00`); None is the machine's own.

    Raises:
        Usage: something is not understood, given twice or contradictory; the place is marked.
    """
    from autoresearch.rules.stop_language import read

    return read(text, now=now, tz=tz)


def deadline(rules: Rules, first_launch: float | None) -> float | None:
    """Return the absolute end (epoch seconds) that a total time and `until` give, or None.

    To be kept on disk at the first launch; after an approved extension it is worked out again from
    the same first launch, so paused time comes back only when the new rule gives it.
    """
    ends = [] if rules.until is None else [rules.until]
    if rules.total_s is not None and first_launch is not None:
        ends.append(first_launch + rules.total_s)
    return min(ends, default=None)


def remaining(rules: Rules, facts: Facts) -> float | None:
    """Return the seconds left to the deadline (never negative), or None when no time rule exists.

    Before the first launch a total time is whole. A clock that was set back never gives more than
    the total.
    """
    end = facts.deadline if facts.deadline is not None else deadline(rules, facts.first_launch)
    left = [] if end is None else [end - facts.now]
    if rules.total_s is not None:
        left.append(rules.total_s)
    return max(0.0, min(left)) if left else None


def attempted(facts: Facts) -> int:
    """Return the number of distinct experiments that were launched, running ones included."""
    running = set(facts.running)
    return distinct(facts.attempts, "experiment") + sum(
        not places(facts.attempts, "experiment", name) for name in running
    )


def standing(rules: Rules, facts: Facts, *, cap_s: float | None = None) -> Standing:
    """Say where a campaign stands, for every trigger.

    Args:
        rules, facts: see there.
        cap_s: the cap of the next run where it is tighter than the rules' own (a recipe's limit).
    """
    count = attempted(facts)
    left = remaining(rules, facts)
    need = cap_s if cap_s is not None else rules.each_s or 0.0
    triggers: list[Trigger] = []
    if rules.experiments is not None:
        detail = f"{count}/{rules.experiments} attempted"
        triggers.append(Trigger("target_experiment_count", count >= rules.experiments, detail))
    if left is not None:
        triggers.append(_time_trigger(left, need))
    triggers.extend(_result_triggers(rules, facts, need))
    met = [trigger for trigger in triggers if trigger.met]
    tally = f"{count} attempted" if rules.experiments is None else f"{count}/{rules.experiments} attempted"
    told = [trigger.detail for trigger in met or triggers]
    if tally not in told:
        told.insert(len(told) if met else 0, tally)
    line = f"stop condition {'met' if met else 'not yet met'}: {', '.join(told)}"
    note = "no stop rule was given: summarize, then ask before going on" if met and rules.default else ""
    return Standing(bool(met), triggers, count, rules.experiments, left, line, note)


def _time_trigger(left: float, need: float) -> Trigger:
    if left <= 0:
        return Trigger("campaign_deadline", True, "deadline reached")
    shown = f"{durations.format(left, 2)} remaining"
    if left < need:
        return Trigger("campaign_deadline", True, f"{shown} cannot hold one more run of {durations.format(need)}")
    return Trigger("campaign_deadline", False, shown)


def _result_triggers(rules: Rules, facts: Facts, need: float) -> list[Trigger]:
    """Return the triggers that look at results or usage, in the order of `describe`."""
    found = []
    if rules.target is not None:
        found.append(_target_trigger(rules.target, facts))
    if rules.plateau is not None:
        flat = ideas_since_best(facts)
        detail = f"{flat}/{rules.plateau} ideas without a new best"
        found.append(Trigger("plateau", flat >= rules.plateau, detail))
    if rules.crashes_in_a_row is not None:
        row = crashes_in_a_row(facts)
        detail = f"{row}/{rules.crashes_in_a_row} crashes in a row"
        found.append(Trigger("crashes_in_a_row", row >= rules.crashes_in_a_row, detail))
    if rules.gpu_hours is not None:
        left_s = _gpu_time_left(rules, facts)
        detail = f"{facts.gpu_hours_used:.4g}/{rules.gpu_hours:g} GPU-hours"
        short = left_s is not None and 0 < left_s < need
        if short:
            detail += f" cannot hold one more run of {durations.format(need)} on {facts.gpus:g}"
        found.append(Trigger("gpu_hours", short or facts.gpu_hours_used >= rules.gpu_hours, detail))
    return found


def target_of(rules: Rules, direction: str) -> tuple[str, str, float] | None:
    """Return the target with its comparison filled in from the direction (`max` or `min`), or None."""
    if rules.target is None:
        return None
    metric, op, value = rules.target
    return metric or "best", op or reaching(direction)[0], value


def _target_trigger(target: tuple[str, str, float], facts: Facts) -> Trigger:
    """Only what is kept reaches a target, by the mean of the runs that count: no lucky value, no marked one."""
    name, op, bound = target_of(Rules(target=target), facts.direction) or target
    from autoresearch import parents

    runs = parents.best_runs(facts.attempts, facts.direction)
    if not runs:
        return Trigger("target_metric", False, f"no result of {name} {op} {bound:.12g} yet")
    best = mean([value for at in runs if (value := facts.attempts[at].value) is not None])
    met = meets(best, op, bound)
    return Trigger("target_metric", met, f"{name} {best:.12g} {'reaches' if met else 'of'} {op} {bound:.12g}")


def ideas_since_best(facts: Facts) -> int:
    """Return how many ideas were first tried after the one that holds the best result was kept, crashes included.

    Repeats of one commit are one measurement, the mean of those that count, and its newest verdict stands: measuring
    the best again is no new best and no new idea, and what was lucky or marked holds nothing.
    """
    from autoresearch import parents

    runs = parents.best_runs(facts.attempts, facts.direction)
    names, statuses = column(facts.attempts, "experiment"), column(facts.attempts, "status")
    since = next((at for at in runs if statuses[at] == "keep"), -1)
    return len(set(names) - set(names[: since + 1]))


def crashes_in_a_row(facts: Facts) -> int:
    """Return how many distinct ideas crashed at the end of the ledger with no result between them.

    A run that somebody stopped says nothing about the campaign's health: it is passed over.
    """
    names: set[str] = set()
    for idea in reversed(facts.attempts):
        if idea.end_cause == "stopped":
            continue
        if idea.status != "crash":
            break
        names.add(idea.experiment)
    return len(names)


def _gpu_time_left(rules: Rules, facts: Facts) -> float | None:
    """Return the seconds that one run may use of the GPU budget, or None when that cannot be said."""
    if rules.gpu_hours is None or facts.gpus <= 0:
        return None
    return max(0.0, (rules.gpu_hours - facts.gpu_hours_used) * 3600.0 / facts.gpus)


def may_launch(
    rules: Rules, facts: Facts, *, cap_s: float | None, is_new_idea: bool, is_open: bool = False
) -> Permission:
    """Decide about one more launch.

    Args:
        rules, facts: at this moment; for the second check of an attempt that has waited, without it.
        cap_s: seconds the run may take, None when nothing but the deadline bounds it.
        is_new_idea: False for a rerun, a repeat and a smoke run: the count does not end those, every other trigger
            does.
        is_open: True for a run that an earlier one's verdict waits for (a repeat that was asked for, a fresh run, a
            confirming one): neither do target and plateau end it, for they ask for that verdict.
    """
    where = standing(rules, facts, cap_s=cap_s)
    passed_over = set() if is_new_idea else {"target_experiment_count"}
    if is_open:
        passed_over |= {"target_metric", "plateau"}
    against = [t for t in where.triggers if t.met and t.name not in passed_over]
    if not against and _is_held(rules, facts, cap_s):
        why = f"{where.line}; the runs under way may need the rest of the GPU-hours"
        return Permission(False, why, "wait for one: make status; then call it again", where)
    if not against:
        return Permission(True, "", "", where)
    fix = where.note or "make summarize; make extend STOP='...' changes the rule after a new approval"
    return Permission(False, where.line, fix, where)


def _is_held(rules: Rules, facts: Facts, cap_s: float | None) -> bool:
    """Return whether the runs under way, each up to its cap, leave too few GPU-hours for one more run."""
    left = _gpu_time_left(rules, _with_held(facts)) if facts.gpu_hours_held else None
    return left is not None and (left <= 0 or left < (cap_s or rules.each_s or 0.0))


def _with_held(facts: Facts) -> Facts:
    return facts._replace(gpu_hours_used=facts.gpu_hours_used + facts.gpu_hours_held)


def cap(rules: Rules, facts: Facts) -> float | None:
    """Return the seconds the next run may take: its own limit, else the time (and GPU budget) left, else None."""
    if rules.each_s is not None:
        return rules.each_s
    return min(
        (left for left in (remaining(rules, facts), _gpu_time_left(rules, _with_held(facts))) if left is not None),
        default=None,
    )
