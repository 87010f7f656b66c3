"""The authoritative number of a run: one module a metric source behind one small protocol."""

from __future__ import annotations

from typing import NamedTuple


class Spec(NamedTuple):
    """What to read: `METRIC`, `METRIC_AT` and `DIRECTION` of the plan.

    `metric` is `NAME` (looked for in the order of trust) or `SOURCE:REST` as in the docs.
    """

    metric: str
    direction: str  # max or min
    at: str = "last"  # last, best, min, max, mean:N, median:N, step:N
    options: tuple[str, ...] = ()  # declared readings of text: `percent`, `thousands`


class Where(NamedTuple):
    """Where one attempt left its traces; absolute paths, any of them may not exist."""

    log: str  # run.log
    logs: str  # the attempt's log directory (event files, json and csv files are searched below it)
    checkpoints: str
    artifacts: str
    tree: str  # working directory of the run: relative PATHs of a source are looked for here, then in logs
    started_at: float = 0.0  # epoch seconds; files last written before it are not this run's


class Point(NamedTuple):
    """One value of a metric's curve; `step` is None where the source has no steps."""

    step: int | None
    value: float


class Reading(NamedTuple):
    """A metric read. `value` is None when there is no valid number; `reason` then says why."""

    name: str
    value: float | None
    text: str  # exact and short, as the ledger writes it; empty without a value
    step: int | None = None
    best: float | None = None
    n_values: int = 0  # how many values the source held
    source: str = ""  # how it was found, e.g. `console run.log:412`, `tensorboard validation/accuracy`
    reason: str = ""  # e.g. `diverged: nan at step 12`, `no value of "val_bpb" in run.log`
