"""One attempt in full, for `show`: from its row or its state, git, its directories, and the notes."""

from __future__ import annotations

import os
from typing import Any

from autoresearch import attempts, campaign, clock, durations, ledger, metrics, names, parents, paths, talk
from autoresearch.attempts import State
from autoresearch.campaign import Campaign
from autoresearch.errors import AutoresearchError, Refused
from autoresearch.rows import Row, finite
from autoresearch.sessions import session_files, session_text

TAIL = 12  # lines of the log
WIDTH = 160
PATHS = 10  # changed files that are listed
ENTRIES = 4  # files named of each directory
NOTES = 5
LONGEST = 400  # characters of a printed line


def find(opened: Campaign, name: str, attempt: int) -> tuple[Row | None, State | None]:
    """Return the row, or the state of a run without one yet, of an attempt.

    Args:
        opened: an open campaign.
        name: the experiment, or an attempt's id such as `warmup.2` or `warmup.smoke-1`.
        attempt: its number; 0 means the latest.

    Raises:
        Refused: there is no such attempt.
    """
    for state in reversed(attempts.every(opened.where)):
        if name == state.id or (name == state.experiment and attempt in (0, state.attempt) and not state.smoke):
            return None, state
    rows = opened.rows()
    experiment, _, number = name.rpartition(".")
    row = ledger.find(rows, name, attempt) if attempt else parents.latest(rows, name)
    if row is None and number.isdigit():
        row = ledger.find(rows, experiment, int(number))
    if row is not None:
        return row, None
    for row in reversed(opened.rows(smoke=True)):
        if name in (row.experiment, f"{row.experiment}.smoke-{row.attempt}") and attempt in (0, row.number):
            return row, None
    known = ", ".join(dict.fromkeys(row.experiment for row in rows[-20:])) or "none yet"
    which = f"attempt {attempt} of {name!r}" if attempt else f"{name!r}"
    raise Refused("NAME", f"there is no {which}", f"the experiments: {known}")


def data(opened: Campaign, row: Row | None, state: State | None) -> dict[str, Any]:
    """Return everything about one attempt as data; the schema is in docs/json.md."""
    smoke = state.smoke if state else row is not None and f"{os.sep}smoke-" in row.log_path
    experiment = state.experiment if state else row.experiment if row else ""
    number = state.attempt if state else row.number if row else 1
    at = opened.where.attempt(experiment, number, smoke)
    commit = state.commit if state else row.commit if row else ""
    parent = state.parent_commit if state else row.parent_commit if row else ""
    files, added, removed = changes(opened, parent, commit)
    found: dict[str, Any] = {
        "experiment": experiment,
        "attempt": number,
        "smoke": smoke,
        "branch": state.branch if state else row.branch if row else "",
        "commit": commit,
        "parent_commit": parent,
        "hypothesis": state.description if state else row.description if row else "",
        "files_changed": len(files),
        "lines_added": added,
        "lines_removed": removed,
        "changes": [{"path": talk.one_line(path), "added": a, "removed": r} for path, a, r in files[:PATHS]],
        "overrides": state.overrides if state else _overrides(opened, commit),
        "command": state.command if state else row.command if row else "",
    }
    found |= _of_row(row) if row else _of_state(opened, state) if state else {}
    found |= {
        "log": at.log,
        "log_tail": _tail(at.log),
        "directories": [_directory(kind, path) for kind, path in _kinds(at)],
        "notes": notes(opened, [names.attempt_id(experiment, number, smoke), *([experiment] if number == 1 else [])]),
        "next": _next(opened, row, experiment),
    }
    secrets = campaign.secret_values()
    tail = [talk.masked(line, secrets) for line in found["log_tail"]]  # its blanks say something: not joined
    public: dict[str, Any] = session_text.public(found, secrets)
    return {**public, "log_tail": tail}


def _of_row(row: Row) -> dict[str, Any]:
    parent, minutes = finite(row.parent_metric), finite(row.elapsed_min)
    value = row.value
    return {
        "status": row.status,
        "reason": row.reason,
        "verdict_by": row.verdict_by,
        "end_cause": row.end_cause,
        "exit_code": _whole(row.exit_code),
        "metric_name": row.metric_name,
        "metric": value,
        "metric_step": _whole(row.metric_step),
        "metric_source": row.metric_source,
        "parent_metric": parent,
        "gain": value - parent if value is not None and parent is not None else None,
        "memory_gb": finite(row.memory_gb) if row.memory_source else None,
        "memory_source": row.memory_source,
        "elapsed_s": round(minutes * 60, 1) if minutes is not None else None,
        "started_at": row.started_at,
        "finished_at": row.finished_at,
        "launcher": row.launcher,
        "job_id": row.job_id,
        "host": row.host,
        "device": row.device,
    }


def _of_state(opened: Campaign, state: State) -> dict[str, Any]:
    elapsed = round(clock.now() - state.started_at, 1) if state.started_at else None
    return {
        "status": "running",
        "reason": state.waited or state.phase,
        "verdict_by": "",
        "end_cause": "",
        "exit_code": None,
        "metric_name": opened.plan.metric,
        "metric": None,
        "metric_step": None,
        "metric_source": "",
        "parent_metric": None,
        "gain": None,
        "memory_gb": None,
        "memory_source": "",
        "elapsed_s": elapsed,
        "started_at": clock.stamp(state.started_at) if state.started_at else "",
        "finished_at": "",
        "launcher": opened.plan.launcher,
        "job_id": state.job_id or "none",
        "host": os.uname().nodename,
        "device": "",
    }


def _whole(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def changes(opened: Campaign, parent: str, commit: str) -> tuple[list[tuple[str, int, int]], int, int]:
    """Return the files that a commit changes against its parent with added and removed lines, and the two sums.

    A binary file counts no lines. Nothing is returned where git cannot tell.
    """
    if not parent or not commit or parent == commit:
        return [], 0, 0
    try:
        out = opened.git.run("diff-tree", "-r", "-z", "--numstat", "--no-renames", parent, commit, "--")
    except AutoresearchError:
        return [], 0, 0
    files = []
    for record in out.split(b"\0"):
        fields = record.split(b"\t", 2)
        if len(fields) == 3:
            added, removed = (int(field) if field.isdigit() else 0 for field in fields[:2])
            files.append((os.fsdecode(fields[2]), added, removed))
    return files, sum(file[1] for file in files), sum(file[2] for file in files)


def _overrides(opened: Campaign, commit: str) -> list[str]:
    try:
        return parents.recorded_overrides(opened, commit) if commit else []
    except AutoresearchError:
        return []


def _tail(log: str) -> list[str]:
    return metrics.tail_hint(log, TAIL, width=WIDTH).splitlines()[-TAIL:]


def _kinds(at: paths.Attempt) -> list[tuple[str, str]]:
    return [("logs", at.logs), ("checkpoints", at.checkpoints), ("artifacts", at.artifacts)]


def _directory(kind: str, path: str) -> dict[str, Any]:
    """Return what lies in one directory of an attempt: how many entries, the first few names."""
    try:
        found = sorted(os.listdir(path))
    except OSError:
        found = []
    return {"kind": kind, "path": path, "entries": len(found), "names": found[:ENTRIES]}


def notes(opened: Campaign, ids: list[str]) -> list[str]:
    """Return the timeline's latest lines about an attempt."""
    found = session_files.current(opened.where)
    if found is None:
        return []
    words = [f" {name}{end}" for name in ids for end in (":", " ", "\n")]
    lines = session_files.read(found.timeline).split("\n")
    return [line[2:] for line in lines if line.startswith("- ") and any(word in f"{line}\n" for word in words)][-NOTES:]


def _next(opened: Campaign, row: Row | None, experiment: str) -> str:
    if row is None:
        return f"make wait CAMPAIGN={opened.name} NAME={experiment}"
    if row.status != "crash":
        return f"make compare CAMPAIGN={opened.name} NAME={experiment} WITH=baseline, or the next idea: make ideas"
    if experiment == parents.BASELINE:
        return f"put it right (see the log tail), then: make baseline CAMPAIGN={opened.name}"
    return (
        f"a trivial mistake: correct it on the same branch (make start NAME={experiment}), then: make experiment "
        f"NAME={experiment}; else the next idea: make ideas"
    )


def lines(found: dict[str, Any]) -> list[str]:
    """Return the attempt as lines for a person; the log's lines are marked as such."""
    id_ = names.attempt_id(found["experiment"], found["attempt"], found["smoke"])
    out = [f"experiment   {id_}: {found['hypothesis']}", f"branch       {found['branch']} at {found['commit'][:12]}"]
    out.append(
        f"changes      {found['files_changed']} files, +{found['lines_added']} -{found['lines_removed']} "
        f"against {found['parent_commit'][:12] or 'nothing'}"
    )
    out += [f"  {item['path']} +{item['added']} -{item['removed']}" for item in found["changes"]]
    if found["files_changed"] > PATHS:
        out.append(f"  ... and {found['files_changed'] - PATHS} more")
    if found["overrides"]:
        out.append(f"overrides    {' '.join(found['overrides'])}")
    out.append(f"command      {found['command']}")
    out.append(f"status       {found['status']}: {found['reason']}")
    exit_code = f", exit code {found['exit_code']}" if found["exit_code"] is not None else ""
    out.append(f"end cause    {found['end_cause'] or 'still running'}{exit_code}")
    out.append(f"metric       {_metric(found)}")
    memory = "unknown" if found["memory_gb"] is None else f"{found['memory_gb']} GiB ({found['memory_source']})"
    took = "unknown" if found["elapsed_s"] is None else durations.format(found["elapsed_s"])
    out.append(f"memory       {memory}; time {took} from {found['started_at'] or '?'}")
    device = f", GPU {found['device']}" if found["device"] not in ("", "none") else ""
    out.append(f"ran          {found['launcher']}, job {found['job_id']}, on {found['host'] or '?'}{device}")
    for item in found["directories"]:
        shown = ", ".join(item["names"]) + (" ..." if item["entries"] > len(item["names"]) else "")
        out.append(f"{item['kind']:<12} {item['path']} ({item['entries']}{': ' if shown else ''}{shown})")
    out += [f"note         {line}" for line in found["notes"]]
    out.append(f"log tail     {found['log']}" if found["log_tail"] else f"log tail     none: {found['log']}")
    out += [f"  | {line}" for line in found["log_tail"]]
    return [*out, f"next: {found['next']}"]


def _metric(found: dict[str, Any]) -> str:
    name = found["metric_name"]
    if found["metric"] is None:
        return f"{name}: no valid value"
    step = f" at step {found['metric_step']}" if found["metric_step"] is not None else ""
    against = f", parent {found['parent_metric']!r} ({found['gain']:+.6g})" if found["gain"] is not None else ""
    return f"{name} {found['metric']!r}{step}{against} from {found['metric_source']}"
