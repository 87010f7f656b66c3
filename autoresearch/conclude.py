"""The end of an attempt: read the metric, judge, write the one row and its note, give the tree back.

Runs in the supervisor, in its keeper after a kill, or in the next verb; each step can be repeated.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from autoresearch import attempts, clock, command, ledger, metrics, parents, talk
from autoresearch.attempts import State
from autoresearch.campaign import Campaign, secret_values
from autoresearch.errors import AutoresearchError
from autoresearch.launchers import Outcome
from autoresearch.metrics import Reading, Spec, Where
from autoresearch.rows import Row, finite, places
from autoresearch.rules import judging, standing
from autoresearch.sessions import session

LOCK_WAIT_S = 600.0


def spec(campaign: Campaign) -> Spec:
    """Return what the campaign measures."""
    plan = campaign.plan
    return Spec(plan.metric, plan.direction, plan.metric_at, tuple(plan.metric_options))


def where_of(campaign: Campaign, state: State) -> Where:
    """Return where an attempt left its traces."""
    at = campaign.where.attempt(state.experiment, state.attempt, state.smoke)
    return Where(at.log, at.logs, at.checkpoints, at.artifacts, state.tree, state.started_at)


def finish(campaign: Campaign, state: State, outcome: Outcome) -> Row:
    """Write the row of an attempt that has ended, exactly once, and clean up after it; return the row.

    Args:
        campaign: an open campaign.
        state: the attempt's state.
        outcome: how the run ended.

    Raises:
        OSError, AutoresearchError: something could not be done, on a full disk say. The state file is kept, in it the
            row where that could not be written, and the next verb does the rest.
    """
    if not state.measured:
        state = attempts.update(campaign.where, state._replace(measured=measure(campaign, state, outcome)))
    hindered: OSError | AutoresearchError | None = None
    try:
        state = give_tree_back(campaign, state)
    except (OSError, AutoresearchError) as error:
        hindered = error  # the row does not wait for the tree
    again = state.phase == "concluded"  # an earlier try got as far as the row, perhaps as far as its note
    with campaign.locked(LOCK_WAIT_S):
        rows = campaign.rows()
        if state.phase != "concluded":
            row, book = decide(campaign, rows, state, outcome)
            state = attempts.update(campaign.where, state._replace(phase="concluded", row=list(row), book=book))
        written = ledger.append(state.book, Row._make(state.row))
    write_note(campaign, state, written, again=again)
    if hindered:
        raise hindered
    clean_up(campaign, state, written)
    campaign.renew_rules()
    where = standing.line(campaign, campaign.rows(), [])
    if where.met and not goes_on(campaign, state, written):
        session.checkpoint(campaign.where, session.STOP_MET, where.line)
    return written


def goes_on(campaign: Campaign, state: State, row: Row) -> bool:
    """Return whether further runs follow an attempt before its idea has a verdict."""
    from autoresearch import series_of_runs

    return not series_of_runs.is_cut(row) and series_of_runs.next_draft(campaign, state, row) is not None


def guarded_signals(campaign: Campaign, where: Where) -> dict[str, float]:
    """Return what the plan's guards may ask about: the run's side signals, and any other metric they name."""
    from autoresearch.rules import guards

    found = metrics.signals_of(where)
    if "tokens_per_second_per_gpu" in found:
        found.setdefault("tokens_per_sec", found["tokens_per_second_per_gpu"])
    for name in guards.names(guards.parse(campaign.plan.guard)):
        if name not in found and name not in ("memory_gb", "elapsed_min"):
            value = metrics.read(Spec(name, "max"), where).value
            if value is not None:
                found[name] = value
    return found


def decide(campaign: Campaign, rows: Sequence[Row], state: State, outcome: Outcome) -> tuple[Row, str]:
    """Return the row of an attempt and the ledger it belongs to: plumbing runs are recorded apart.

    A run that is plainly too small to judge cannot be a discard: it is filed as plumbing, with the reason.
    """
    row = make_row(campaign, rows, state, outcome)
    if state.smoke:
        return row, campaign.where.smoke_ledger
    asked = row.status == "discard" and state.role == "idea" and outcome.end_cause == "ok"
    why = too_small(campaign, rows, row, state.overrides) if asked else ""
    if not why:
        return row, campaign.ledger_path
    smoked = campaign.rows(smoke=True)
    used = [smoked[at].number for at in places(smoked, "experiment", row.experiment)]
    row = row._replace(attempt=str(max(used, default=0) + 1), status="keep", reason=f"smoke: {why}")
    return row, campaign.where.smoke_ledger


def too_small(campaign: Campaign, rows: Sequence[Row], row: Row, overrides: list[str]) -> str:
    """Return why a run is too small to judge its idea, by its steps and batch against the baseline's; else empty."""
    from autoresearch.rules import plumbing

    base = parents.current(rows, parents.BASELINE)
    if base is None:
        return ""
    return plumbing.too_small(_sizes(campaign, row, overrides), _sizes(campaign, base, []))


def _sizes(campaign: Campaign, row: Row, overrides: list[str]) -> dict[str, float]:
    from autoresearch import recipes
    from autoresearch.rules import plumbing

    settings = recipes.values_at(campaign, row.commit, overrides) | command.settings(row.command)
    sizes, steps = plumbing.batch_sizes(settings), finite(row.metric_step)
    return sizes if steps is None else {"steps": steps, **sizes}


def measure(campaign: Campaign, state: State, outcome: Outcome) -> dict[str, object]:
    """Return what the attempt's traces say: the metric, the peak memory and its source, side signals for guards."""
    where = where_of(campaign, state)
    # Where the clock was set back during the run, its files are older than the time that was noted at its start.
    where = where._replace(started_at=min(where.started_at, clock.now() - outcome.elapsed_s))
    reading = metrics.read(spec(campaign), where, whole=True)
    memory, source = peak_memory(where, outcome)
    signals = guarded_signals(campaign, where) if campaign.plan.guard else {}
    lines = state.lines_delta
    if lines is None and reading.value is not None:
        from autoresearch.git import hypothesis

        added, removed = hypothesis.lines(campaign.git, state.parent_commit, state.commit)
        lines = added - removed
    return {
        "reading": list(reading),
        "memory": memory,
        "memory_source": source,
        "signals": signals,
        "lines": lines or 0,
    }


def make_row(campaign: Campaign, rows: Sequence[Row], state: State, outcome: Outcome) -> Row:
    """Return the row of an attempt, judged; the index is given when it is appended."""
    at = campaign.where.attempt(state.experiment, state.attempt, state.smoke)
    measured: dict[str, Any] = state.measured
    reading = Reading(*measured["reading"])
    memory: float | None = measured["memory"]
    guards = {**measured["signals"], "elapsed_min": outcome.elapsed_s / 60}
    if memory is not None:
        guards["memory_gb"] = memory
    result = judging.Result(
        reading.value, outcome.end_cause, _why(outcome, reading), guards, _not_comparable(state), outcome.device
    )
    judged = judging.judge(campaign, rows, state._replace(lines_delta=measured["lines"]), result)
    crash = judged.verdict.status == "crash"
    reasons = [judged.verdict.reason, *state.notes, outcome.reason]
    return Row(
        branch=state.branch,
        parent_commit=state.parent_commit,
        commit=state.commit,
        recipe=campaign.plan.recipe,
        metric_name=metrics.name_of(campaign.plan.metric),
        metric_value="0.000000" if crash else reading.text,
        memory_gb="0.0" if crash else f"{memory:.4g}" if memory is not None else "",
        elapsed_min=f"{outcome.elapsed_s / 60:.2f}",
        launcher=campaign.plan.launcher,
        job_id=state.job_id or "none",
        command=state.command,
        log_path=at.log,
        status=judged.verdict.status,
        description=_public(state.description),
        experiment=state.experiment,
        attempt=str(state.attempt),
        end_cause=outcome.end_cause,
        exit_code="" if outcome.exit_code is None else str(outcome.exit_code),
        started_at=clock.stamp(outcome.started_at) if outcome.started_at else "",
        finished_at=clock.stamp(outcome.finished_at) if outcome.finished_at else clock.stamp(clock.now()),
        metric_step="" if crash or reading.step is None else str(reading.step),
        metric_best="" if crash or reading.best is None else repr(reading.best),
        metric_source="" if crash else reading.source,
        parent_metric="" if judged.parent_metric is None else repr(float(f"{judged.parent_metric:.12g}")),
        memory_source="" if crash else str(measured["memory_source"]),
        checkpoint_path=at.checkpoints,
        artifacts_path=at.artifacts,
        cache_root=campaign.where.caches,
        host=outcome.host or os.uname().nodename,
        verdict_by=judged.by,
        reason=_public("; ".join(dict.fromkeys(reason for reason in reasons if reason))),
        device=outcome.device,
    )


def _public(text: str) -> str:
    return talk.one_line(talk.masked(text, secret_values()), 500)


def _why(outcome: Outcome, reading: Reading) -> str:
    """Return why a run gives no verdict; a number that a failed run printed stays visible."""
    if outcome.end_cause not in ("ok", "recipe-timeout"):
        if reading.value is not None:
            at = f" at step {reading.step}" if reading.step is not None else ""
            return f"it had reached {reading.text}{at}"
        return ""
    return reading.reason


def _not_comparable(state: State) -> str:
    found = [note for note in state.notes if note.startswith("not comparable: ")]
    return found[0].removeprefix("not comparable: ") if found else ""


def peak_memory(where: Where, outcome: Outcome) -> tuple[float | None, str]:
    """Return the peak memory in GiB and how it was measured: NVML, the trainer's own GPU series, the tree's PSS."""
    if outcome.memory_source != "nvml":
        logged = metrics.peak_gpu_memory(where)
        if logged is not None:
            return logged, "tensorboard ray/node.*.gpu.*.mem_gb"
    return outcome.memory_gb, outcome.memory_source


def write_note(campaign: Campaign, state: State, row: Row, *, again: bool) -> None:
    """Write the git note of a row, once; a plumbing run has none."""
    from autoresearch.git import notes

    if state.book != campaign.where.smoke_ledger:
        write = notes.append_once if again else notes.append
        write(campaign.git, row.commit, note_line(campaign, row))


def clean_up(campaign: Campaign, state: State, row: Row) -> None:
    """Do what follows the row and its note: the session's notes, the socket links; then forget the attempt."""
    from autoresearch.git import eviction
    from autoresearch.running import sockets

    at = campaign.where.attempt(state.experiment, state.attempt, state.smoke)
    if state.links:
        sockets.remove(sockets.Links(state.links["RAY_TMPDIR"], state.links["TMPDIR"]), at.ray, at.tmp)
    session.checkpoint(campaign.where, f"{row.id}: {row.status}, {row.end_cause}", row.reason)
    if state.role == "confirm":
        from autoresearch import confirming

        confirming.settle(campaign, row, state.pairs)
    attempts.remove(campaign.where, state)
    eviction.tidy(campaign.pool())


def give_tree_back(campaign: Campaign, state: State) -> State:
    """Return an attempt's trees to the pool; what the run left goes to its artifacts, and the row names it.

    The pool is asked also when the state names no tree: a kill may have come between taking one and saying so.
    """
    at = campaign.where.attempt(state.experiment, state.attempt, state.smoke)
    returned = campaign.pool().give_back(state.id, at.artifacts)
    notes = [*state.notes, *returned.remarks]
    if returned.moved:
        more = f" and {len(returned.moved) - 5} more" if len(returned.moved) > 5 else ""
        notes.append(f"left in its tree, now in its artifacts: {', '.join(returned.moved[:5])}{more}")
    if returned.stuck:
        notes.append(f"could not be moved out of its tree: {', '.join(returned.stuck[:5])}")
    if not state.tree and notes == state.notes:
        return state
    return attempts.update(campaign.where, state._replace(tree="", notes=notes))


def note_line(campaign: Campaign, row: Row) -> str:
    """Return the git note of a row: one JSON line with the campaign's name, and the same text as in the ledger."""
    line = json.dumps({"campaign": campaign.name, **row._asdict()}, ensure_ascii=False)
    return line.encode("utf-8", "replace").decode("utf-8")


def outcome_of(state: State) -> Outcome | None:
    """Return the outcome a state carries, None before the run has ended."""
    return Outcome(**state.outcome) if state.outcome else None  # type: ignore[arg-type]
