"""The authoritative number of a run: one module a metric source behind one small protocol.

`read` gives the number that a verdict rests on, `series` its curve, `explain` reads any file outside a campaign.
A source is a module with a `find` that returns what it holds (`aggregate.Found`); it is imported when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autoresearch.metrics.aggregate import Found

SOURCES = ("log", "tensorboard", "jsonl", "json", "csv", "wandb", "mlflow", "checkpoint", "command")
WHOLE = 8 << 20  # bytes of a log up to which `read` looks at every value by default


class Spec(NamedTuple):
    """What to read: `METRIC`, `METRIC_AT` and `DIRECTION` of the plan.

    `metric` is `NAME` (looked for in the order of trust) or `SOURCE:REST` as in the docs.
    """

    metric: str
    direction: str  # max or min
    at: str = "last"  # last, best, min, max, mean:N, median:N, step:N
    options: tuple[str, ...] = ()  # declared readings of text: percent, fraction, thousands, unit:NAME


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
    n_values: int = 0  # how many values the source held; 0 when only the last one was looked for
    source: str = ""  # how it was found, e.g. `console run.log:412`, `tensorboard validation/accuracy`
    reason: str = ""  # e.g. `diverged: nan at step 12`, `no value of "val_bpb" in run.log`


def split(metric: str) -> tuple[str, str]:
    """(source, rest) of a METRIC; the source is empty for a bare name (also for NeMo-RL's `val:accuracy`)."""
    source, colon, rest = metric.partition(":")
    return (source, rest) if colon and source in SOURCES else ("", metric)


def parse_spec(metric: str, direction: str, at: str = "last", options: tuple[str, ...] = ()) -> Spec:
    """Check METRIC, DIRECTION, METRIC_AT and the declared readings, before anything is spent on a run.

    Raises:
        Usage: naming what is not understood: an unknown form, a bad expression, a missing key.
    """
    from autoresearch import direction as directions
    from autoresearch.errors import Usage
    from autoresearch.metrics import aggregate, numbers

    directions.check(direction)
    aggregate.parse_at(at)
    numbers.check_options(options)
    source, rest = split(metric)
    if not rest.strip() or "\n" in metric or "\0" in metric:
        raise Usage("METRIC", f"{metric!r} names nothing", "write a name, or SOURCE:REST as in log:val_bpb")
    if source in ("jsonl", "json", "csv"):
        from autoresearch.metrics import rows

        rows.split(source, rest)
    elif source == "command":
        from autoresearch.metrics import command

        command.words(rest)
    elif source == "log" and rest.startswith("/"):
        from autoresearch.metrics import pattern

        pattern.parse(rest)
    return Spec(metric, direction, at, tuple(options))


def name_of(metric: str) -> str:
    """The short name that the ledger's `metric_name` carries: `val_bpb` of `log:val_bpb`, the key of a file source."""
    source, rest = split(metric)
    if source in ("jsonl", "json", "csv"):
        from autoresearch.metrics import rows

        return rows.split(source, rest)[1]
    return rest if source and source != "command" and not rest.startswith("/") else metric


def read(spec: Spec, where: Where, *, whole: bool | None = None) -> Reading:
    """Read the authoritative metric of one attempt.

    Args:
        spec: what to read.
        where: where the attempt left its traces.
        whole: look at every value (needed for `best` and `n_values`); False: only as far as METRIC_AT needs; None:
            True for logs up to 8 MiB, and always where METRIC_AT needs it.

    Returns:
        The reading; without a valid number `value` is None and `reason` says why. It does not raise for anything
        that a file holds; a `spec` that `parse_spec` would refuse raises Usage.
    """
    from autoresearch.metrics import aggregate

    found = locate(spec, where, _whole(spec, where, whole), steps=spec.at.startswith("step"))
    return aggregate.reading(name_of(spec.metric), found, spec.at, spec.direction)


def _whole(spec: Spec, where: Where, whole: bool | None) -> bool:
    import os

    if spec.at != "last" or whole:
        return True
    if whole is False:
        return False
    try:
        return os.stat(where.log).st_size <= WHOLE
    except OSError:
        return True


def series(spec: Spec, where: Where) -> Sequence[Point]:
    """The whole curve of the metric, in the order written; nan and infinite values are in it.

    Its points are made while it is gone through: that of a big log does not fit into memory.
    """
    from autoresearch.metrics.aggregate import Curve

    return Curve(locate(spec, where, True))


def locate(spec: Spec, where: Where, whole: bool, *, steps: bool = True) -> Found:
    """What the source of a spec holds; the modules are imported here, each only when it is asked for."""
    source, rest = split(spec.metric)
    if not source:
        from autoresearch.metrics import lookup

        return lookup.find(spec.metric, where, spec.options, whole=whole, steps=steps)
    if source == "log":
        return _log(rest, spec, where, whole, steps)
    if source in ("jsonl", "json", "csv"):
        from autoresearch.metrics import rows

        return rows.find(source, rest, where)
    if source == "tensorboard":
        from autoresearch.metrics import tensorboard

        return tensorboard.find(rest, where)
    if source == "wandb":
        from autoresearch.metrics import wandb

        return wandb.find(rest, where)
    if source == "mlflow":
        from autoresearch.metrics import mlflow

        return mlflow.find(rest, where)
    if source == "checkpoint":
        from autoresearch.metrics import checkpoint

        return checkpoint.find(rest, where)
    from autoresearch.metrics import command

    return command.find(rest, where)


def _log(rest: str, spec: Spec, where: Where, whole: bool, steps: bool) -> Found:
    from autoresearch.metrics import lookup

    if not rest.startswith("/"):
        return lookup.console(rest, where, spec.options, whole=whole, steps=steps)
    from autoresearch.metrics import aggregate, files, pattern

    if not files.fresh(where.log, where.started_at):
        import os

        trouble = files.stale(where.log) if os.path.exists(where.log) else f"no log at {where.log}"
        return aggregate.Found("console", trouble=trouble)
    return pattern.find(rest, where.log, spec.options, whole=whole)


def explain(
    log: str, metric: str, at: str = "last", options: tuple[str, ...] = (), *, direction: str = "max"
) -> Reading:
    """Read a metric from any file outside a campaign: the way to try a METRIC. `source` says file, line and kind.

    Args:
        log: a console log, an event file, a `.jsonl`, `.json`, `.csv` or `.wandb` file, or a directory of a run.
        metric: a METRIC; with a bare name the kind of file is seen from its name.
        at: METRIC_AT.
        options: declared readings of text.
        direction: for `at=best` and `Reading.best`.

    Raises:
        Usage: for a metric that is not understood or a file that is not there.
    """
    from autoresearch.metrics import try_out

    return try_out.explain(log, parse_spec(metric, direction, at, options))


def tail_hint(log: str, n: int = 12, *, width: int = 200) -> str:
    """The last `n` lines of a run's log, safe to print: control characters and colours removed, lines cut.

    Empty when there is no log. Meant for the message of an empty extraction.
    """
    from autoresearch.metrics import try_out

    return try_out.tail(log, n, width)


def peak_gpu_memory(where: Where) -> float | None:
    """See `signals.peak_gpu_memory`: the most memory of any one GPU in GiB, or None."""
    from autoresearch.metrics import signals

    return signals.peak_gpu_memory(where)


def signals_of(where: Where) -> dict[str, float]:
    """See `signals.signals`: side signals by name, the last value of each."""
    from autoresearch.metrics import signals

    return signals.signals(where)
