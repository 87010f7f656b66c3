"""`compare`: two experiments side by side."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from autoresearch import attempts, campaign, knobs, names, parents, recovery, report, talk
from autoresearch.campaign import Campaign
from autoresearch.errors import Refused
from autoresearch.rows import Row

SHOWN_FILES = 20


def run() -> int:
    """Print metric, time, memory, the override words and recipe values that differ, and the changed files."""
    opened = campaign.open_any()
    recovery.start_detached(opened, attempts.every(opened.where))
    rows = opened.rows()
    left, right = (_row(rows, knob) for knob in ("NAME", "WITH"))
    facts = data(opened, rows, left, right)
    if knobs.flag("JSON"):
        import json

        talk.out(json.dumps(facts, indent=2, allow_nan=False))
        return 0
    table = [[key, *(_text(value) for value in pair)] for key, pair in facts["values"].items()]
    talk.out(talk.table(table, ["", left.id, right.id]))
    for key, pair in facts["settings"].items():
        talk.out(f"  {key}: {_text(pair[0])} | {_text(pair[1])}")
    for line in facts["files"][:SHOWN_FILES]:
        talk.out(f"  {line}")
    if len(facts["files"]) > SHOWN_FILES:
        talk.out(f"  ... and {len(facts['files']) - SHOWN_FILES} more files")
    place = shlex.quote(opened.where.repository)
    talk.note(f"the whole diff: git -C {place} diff {right.commit[:12]} {left.commit[:12]}")
    return 0


def _row(rows: Sequence[Row], knob: str) -> Row:
    name = names.check(knob, knobs.required(knob, "y"))
    row = parents.current(rows, name)
    if row is None:
        raise Refused(knob, f"{name!r} has no row", "make summarize lists the experiments")
    return row


def data(opened: Campaign, rows: Sequence[Row], left: Row, right: Row) -> dict[str, Any]:
    """Return the comparison as data; the schema is in docs/json.md."""
    means = [report.mean(parents.values_of(rows, row.commit)) for row in (left, right)]
    return {
        "experiments": [left.experiment, right.experiment],
        "values": {
            opened.plan.metric: means,
            "runs": [len(parents.values_of(rows, row.commit)) for row in (left, right)],
            "status": [left.status, right.status],
            "minutes": [left.elapsed_min, right.elapsed_min],
            "memory_gb": [left.memory_gb, right.memory_gb],
            "device": [left.device, right.device],
            "commit": [left.commit[:12], right.commit[:12]],
        },
        "settings": settings(opened, left, right),
        "files": changed_files(opened, left, right),
    }


def _text(value: object) -> str:
    return "-" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def settings(opened: Campaign, left: Row, right: Row) -> dict[str, list[str | None]]:
    """Return the recipe values and override words that differ, by key."""
    sides = [_settings(opened, row) for row in (left, right)]
    keys = sorted(set(sides[0]) | set(sides[1]))
    pairs = {key: [side.get(key) for side in sides] for key in keys}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def _settings(opened: Campaign, row: Row) -> dict[str, str]:
    from autoresearch import recipes

    words = [] if row.experiment == parents.BASELINE else parents.recorded_overrides(opened, row.commit)
    return recipes.values_at(opened, row.commit, words)


def changed_files(opened: Campaign, left: Row, right: Row) -> list[str]:
    """Return one line a file that differs between the two commits: added and removed lines, and its path."""
    out = opened.git.run("diff", "--numstat", "-z", "--no-renames", right.commit, left.commit, "--")
    lines = []
    for entry in out.decode("utf-8", "replace").split("\0"):
        if entry:
            added, removed, path = entry.split("\t", 2)
            lines.append(f"+{added} -{removed} {talk.one_line(path)}")
    return lines
