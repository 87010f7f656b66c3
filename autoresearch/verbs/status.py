"""`status`: where the campaign stands. Only reads; an orphan it meets is reported and its recovery started."""

from __future__ import annotations

import os
from collections.abc import Sequence

from autoresearch import attempts, campaign, clock, durations, knobs, ledger, parents, plan, recovery, report, talk
from autoresearch.attempts import State
from autoresearch.campaign import Campaign
from autoresearch.rows import Row
from autoresearch.rules import standing
from autoresearch.rules.statistics import mean
from autoresearch.sessions import session

LOOK_S = 0.01  # what a look at scratch may cost; summarize takes longer and says more
SHOWN = 3


def run() -> int:
    """Print the standing as lines, or as data with JSON=1."""
    opened = campaign.open_any()
    states = attempts.every(opened.where)
    orphans = recovery.start_detached(opened, states)
    book = ledger.read(opened.ledger_path)
    facts = data(opened, book, states, orphans)
    if knobs.flag("JSON"):
        import json

        talk.out(json.dumps(facts, indent=2, allow_nan=False))
    else:
        for line in lines(facts):
            talk.out(line)
    return 0


def data(opened: Campaign, book: ledger.Ledger, states: list[State], orphans: list[State]) -> dict[str, object]:
    """Return the standing as data; the schema is in docs/json.md."""
    rows = book.rows
    where = standing.line(opened, rows, states)
    best = parents.best_kept(rows, opened.plan.direction)
    return {
        "campaign": opened.name,
        "objective": session.objective(opened.where, opened.plan.objective),
        "repository": opened.where.repository,
        "metric": talk.one_line(opened.plan.metric),
        "direction": opened.plan.direction,
        "stop_rule": talk.one_line(opened.plan.stop),
        "stop_condition_met": where.met,
        "triggers": [trigger._asdict() for trigger in where.triggers],
        "attempted": where.attempted,
        "target": where.target,
        "remaining_s": where.remaining_s,
        "line": where.line,
        "note": where.note,
        "verdicts": report.verdicts(rows),
        "baseline": measured(rows, parents.current(rows, parents.BASELINE)),
        "best": measured(rows, best),
        "latest": result(rows[-1] if rows else None),
        "running": [running(opened, state) for state in states],
        "orphans": [state.id for state in orphans],
        "withdrawn": [{"id": state.id, "why": state.refusal} for state in attempts.withdrawn(opened.where)],
        "held": held(opened),
        "torn_lines": book.torn,
        "on_scratch": [list(pair) for pair in report.held_on_disk(opened, rows, within_s=LOOK_S).sizes[:SHOWN]],
        "next": next_step(opened, rows, states, where.met),
    }


def next_step(opened: Campaign, rows: Sequence[Row], states: list[State], met: bool) -> str:
    """Return the line to type next."""
    if not states and not plan.binds(opened.where, opened.approval):
        return f"make approve CAMPAIGN={opened.name}, since the plan changed after it was approved"
    return standing.next_step(opened, rows, states, met)[1]


def result(row: Row | None) -> dict[str, object] | None:
    """Return what is worth saying of a row in one line, None without one."""
    if row is None:
        return None
    return {
        "experiment": row.experiment,
        "attempt": row.number,
        "branch": row.branch,
        "commit": row.commit,
        "metric": row.value,
        "status": row.status,
        "end_cause": row.end_cause,
        "description": row.description,
        "reason": row.reason,
    }


def measured(rows: Sequence[Row], row: Row | None) -> dict[str, object] | None:
    """Return a row with the mean of all runs that count for its commit."""
    found = result(row)
    if found is not None and row is not None:
        values = parents.values_of(rows, row.commit)
        found |= {"metric": mean(values) if values else None, "runs": len(values)}
    return found


def running(opened: Campaign, state: State) -> dict[str, object]:
    """Return what an attempt under way is doing."""
    from autoresearch import progress

    return {
        "id": state.id,
        "branch": state.branch,
        "phase": (state.waited or state.phase) + (f" to confirm {state.confirms}" if state.role == "confirm" else ""),
        "elapsed_s": round(max(0.0, clock.now() - state.started_at), 1) if state.started_at else None,
        "cap_s": state.cap_s,
        "job_id": state.job_id,
        "log": progress.log_of(opened.where, state),
        "quiet_s": progress.quiet_s(opened.where, state),
    }


def held(opened: Campaign) -> str:
    """Return the Slurm allocation that is held for the campaign, empty without one."""
    if not os.path.exists(opened.where.hold):
        return ""
    from autoresearch import launch

    return launch.allocation(opened)


def lines(facts: dict[str, object]) -> list[str]:
    """Return the standing as short lines, the next step last."""
    out = [
        f"campaign   {facts['campaign']}: {facts['objective'] or 'no objective given'}",
        f"metric     {facts['metric']} ({facts['direction']})",
    ]
    worked_on = facts["running"][-1] if facts["running"] else facts["latest"]  # type: ignore[index]
    if isinstance(worked_on, dict):
        out.append(f"branch     {worked_on['branch']}")
    for label in ("baseline", "best", "latest"):
        found = facts[label]
        if isinstance(found, dict):
            out.append(f"{label:<10} {_result(found)}")
    for item in facts["running"]:  # type: ignore[attr-defined]
        out.append(f"running    {_running(item)}")
    if facts["orphans"]:
        out.append(f"orphans    {' '.join(facts['orphans'])}: recovery started")  # type: ignore[arg-type]
    for item in facts["withdrawn"]:  # type: ignore[attr-defined]
        out.append(talk.one_line(f"withdrawn  {item['id']} before it ran: {item['why']}", 200))
    if facts["held"]:
        out.append(f"holds      allocation {facts['held']} in Slurm, until: make hold RELEASE=1")
    if facts["on_scratch"]:
        sizes = ", ".join(f"{name} {size}" for name, size in facts["on_scratch"])  # type: ignore[attr-defined]
        out.append(f"on scratch {sizes}")
    if facts["torn_lines"]:
        out.append(f"warning    the ledger has torn lines, skipped: {facts['torn_lines']}")
    out.append(str(facts["line"]))
    if facts["note"]:
        out.append(str(facts["note"]))
    return [*out, f"next: {facts['next']}"]


def _result(found: dict[str, object]) -> str:
    value = "no valid metric" if found["metric"] is None else f"{found['metric']:.12g}"
    if found.get("runs", 1) not in (0, 1):
        value += f" (mean of {found['runs']})"
    text = f"{found['experiment']} {value} {found['status']}"
    if found["end_cause"] not in ("ok", ""):
        text += f" ({found['end_cause']})"
    return talk.one_line(f"{text}  {found['description']}", 110)


def _running(item: dict[str, object]) -> str:
    text = f"{item['id']} {item['phase']}"
    if isinstance(item["elapsed_s"], float):
        text += f" for {durations.format(item['elapsed_s'])}"
        if isinstance(item["cap_s"], (int, float)):
            text += f" of {durations.format(float(item['cap_s']))}"
    if isinstance(item["quiet_s"], float) and item["quiet_s"] > 60:
        text += f", no output for {durations.format(item['quiet_s'])}"
    return f"{text}  log {item['log']}"
