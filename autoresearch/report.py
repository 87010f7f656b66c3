"""The campaign in figures: what `summarize` prints, writes as summary.md, and gives as data."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import NamedTuple

from autoresearch import parents, talk
from autoresearch.attempts import State
from autoresearch.campaign import Campaign
from autoresearch.rows import Row, column, finite
from autoresearch.rules import standing, statistics
from autoresearch.sessions import session

SHOWN = 40
LOOK_S = 0.05  # to find what experiments hold on scratch; enough for 600 of them with few files each
HEADERS = ["#", "experiment", "metric", "vs parent", "memory GiB", "minutes", "status", "cause", "description"]


def data(campaign: Campaign, rows: Sequence[Row], states: list[State]) -> dict[str, object]:
    """Return the summary as data; the schema is in docs/json.md."""
    where = standing.line(campaign, rows, states)
    baseline = values(rows, parents.latest(rows, parents.BASELINE))
    best_row = parents.best_kept(rows, campaign.plan.direction)
    best = values(rows, best_row)
    return {
        "campaign": campaign.name,
        "objective": session.objective(campaign.where, campaign.plan.objective),
        "metric": talk.one_line(campaign.plan.metric),
        "direction": campaign.plan.direction,
        "rows": len(rows),
        "attempted": where.attempted,
        "verdicts": verdicts(rows),
        "baseline": mean(baseline),
        "baseline_runs": len(baseline),
        "best": mean(best),
        "best_runs": len(best),
        "best_experiment": best_row.experiment if best_row else None,
        "best_branch": best_row.branch if best_row else None,
        "best_commit": best_row.commit if best_row else None,
        "gain": gain(mean(best), mean(baseline)),
        "minutes": round(sum(filter(None, map(finite, column(rows, "elapsed_min")))), 2),
        "stop_condition_met": where.met,
        "line": where.line,
        "ledger": campaign.ledger_path,
        "summary": campaign.where.summary,
        "plot": campaign.where.plot,
    }


def verdicts(rows: Sequence[Row]) -> dict[str, int]:
    """Return how many rows have each verdict."""
    statuses = column(rows, "status")
    return {status: sum(known == status for known in statuses) for status in ("keep", "discard", "crash")}


def values(rows: Sequence[Row], row: Row | None) -> list[float]:
    """Return all valid values measured at the commit of `row`."""
    return parents.values_of(rows, row.commit) if row else []


def mean(numbers: list[float]) -> float | None:
    """Return the mean, None of nothing."""
    return statistics.mean(numbers) if numbers else None


def gain(best: float | None, baseline: float | None) -> float | None:
    """Return best minus baseline, None where one is missing."""
    return None if best is None or baseline is None else best - baseline


def lines(facts: dict[str, object]) -> list[str]:
    """Return the summary as a few lines for a person."""
    verdicts = facts["verdicts"]
    assert isinstance(verdicts, dict)
    counts = ", ".join(f"{count} {status}" for status, count in verdicts.items())
    out = [f"{facts['rows']} rows, {facts['attempted']} ideas: {counts}; {facts['minutes']} minutes of runs"]
    if facts["best"] is None:
        out.append("best: nothing was kept with a valid metric yet")
    else:
        over = f", baseline {_number(facts['baseline'])}" if facts["baseline"] is not None else ""
        change = f" ({facts['gain']:+.6g})" if facts["gain"] is not None else ""
        name = f"{facts['best_experiment']} on {facts['best_branch']}"
        out.append(f"best: {facts['metric']} {_number(facts['best'])} by {name}{over}{change}")
    out.append(str(facts["line"]))
    return out


def _number(value: object) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def cells(row: Row) -> list[str]:
    """Return a row as the table shows it."""
    value = row.metric_value if row.value is not None else "-"
    change = ""
    parent = finite(row.parent_metric)
    if row.value is not None and parent is not None:
        change = f"{row.value - parent:+.4g}"
    cause = "" if row.end_cause == "ok" else row.end_cause
    memory = "" if row.status == "crash" else row.memory_gb
    return [
        row.index,
        row.id,
        value,
        change,
        memory,
        row.elapsed_min,
        row.status,
        cause,
        talk.one_line(row.description, 48),
    ]


def markdown(campaign: Campaign, rows: Sequence[Row], facts: dict[str, object]) -> str:
    """Return summary.md: small, absolute paths, enough to reproduce each result after scratch is wiped."""
    head = [
        f"# Campaign {campaign.name}",
        "",
        *([str(facts["objective"]), ""] if facts["objective"] else []),
        *(f"- {line}" for line in lines(facts)),
        "",
        "| what | value |",
        "| --- | --- |",
        *(f"| {name} | {_cell(value)} |" for name, value in _facts(campaign)),
        "",
        "## Results",
        "",
        "| # | experiment | commit | parent | metric | status | cause | minutes | memory GiB | description | reason |",
        "|" + " --- |" * 11,
        *(_result(row) for row in rows),
        "",
        "## Reproduce",
        "",
        "Each result is a commit on its branch with its command below; `make reproduce NAME=experiment` runs it again.",
        "",
    ]
    seen: set[str] = set()
    for row in rows:
        if row.experiment not in seen and row.command:
            seen.add(row.experiment)
            head += [
                f"- {row.experiment} at `{row.commit}`, log `{row.log_path}`",
                "",
                f"      {_code(row.command)}",
                "",
            ]
    return "\n".join(head)


def _facts(campaign: Campaign) -> list[tuple[str, str]]:
    plan = campaign.plan
    each = campaign.plan.understood.get("per_experiment_timeout", "")
    return [
        ("repository", plan.repository),
        ("base", plan.base),
        ("branches", f"{plan.prefix}/"),
        ("recipe", plan.recipe or "none"),
        ("metric", f"{plan.metric} ({plan.metric_at}), {plan.direction}"),
        ("stop rule", plan.stop or "none given"),
        ("each", each),
        ("launcher", plan.launcher),
        ("ledger", campaign.ledger_path),
        ("scratch", campaign.where.root),
    ]


def _result(row: Row) -> str:
    value = row.metric_value if row.value is not None else ""
    fields = [
        row.index,
        row.id,
        f"`{row.commit[:12]}`",
        f"`{row.parent_commit[:12]}`",
        value,
        row.status,
        row.end_cause,
    ]
    fields += [row.elapsed_min, row.memory_gb, row.description, row.reason]
    line = " | ".join(fields)
    if len(line) > 200 or "  " in line or "<" in line or line.count("|") >= len(fields) or not line.isprintable():
        line = " | ".join(map(_cell, fields))
    return f"| {line} |"


def _cell(text: str) -> str:
    return talk.one_line(text, 200).replace("|", "\\|").replace("<", "&lt;")


def _code(command: str) -> str:
    return talk.one_line(command)


class Held(NamedTuple):
    """What experiments hold on scratch."""

    sizes: list[tuple[str, str]]  # name and size, the largest first
    looked: int  # experiments that were looked at, the newest first
    of: int


def held_on_disk(campaign: Campaign, rows: Sequence[Row], within_s: float = LOOK_S) -> Held:
    """Return what each experiment holds on scratch; where files are many, of the newest, as far as the time goes."""
    root, until = campaign.where.root, time.monotonic() + within_s
    names = list(dict.fromkeys(reversed(column(rows, "experiment"))))
    sizes: list[tuple[int, str, str]] = []
    looked = 0
    for name in names:
        if time.monotonic() >= until:
            break
        size = directory_size(os.path.join(root, name), until)
        looked += 1
        if size:
            sizes.append((size, name, "" if time.monotonic() < until else " or more"))
    sizes.sort(reverse=True)
    return Held([(name, talk.size(size) + more) for size, name, more in sizes], looked, len(names))


def directory_size(path: str, until: float | None = None) -> int:
    """Return the bytes that a directory holds on disk, hard links counted once, links not followed.

    Args:
        path: the directory.
        until: when to stop (`time.monotonic`) with what was seen so far; None counts to the end.
    """
    total, todo, seen = 0, [path], set()
    while todo and (until is None or time.monotonic() < until):
        try:
            with os.scandir(todo.pop()) as entries:
                for entry in entries:
                    info = entry.stat(follow_symlinks=False)
                    if (info.st_dev, info.st_ino) not in seen:
                        seen.add((info.st_dev, info.st_ino))
                        total += info.st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
        except OSError:
            continue
    return total
