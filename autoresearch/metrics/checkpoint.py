"""Metrics that NeMo-RL saves with its checkpoints: `step_N/training_info.json`.

`tmp_step_N` is a checkpoint that was never finished, `old_step_N` a left-over of a swap: both are left out.
"""

from __future__ import annotations

import json
import os
import re

from autoresearch.metrics import Where, files, rows
from autoresearch.metrics.aggregate import Found

_STEP = re.compile(r"step_([0-9]{1,15})", re.ASCII)


def saved(where: Where) -> list[tuple[int, str]]:
    """(step, path of training_info.json) of every finished checkpoint of the run, by step."""
    found = []
    for path in files.walk(where.checkpoints, own=True, depth=4) if where.checkpoints else ():
        step = _STEP.fullmatch(os.path.basename(os.path.dirname(path)))
        if step is not None and os.path.basename(path) == "training_info.json" and files.fresh(path, where.started_at):
            parents = path[len(where.checkpoints) :].split(os.sep)
            if not any(part.startswith(("tmp_step_", "old_step_")) for part in parents):
                found.append((int(step.group(1)), path))
    return sorted(found)


def find(key: str, where: Where) -> Found:
    """The values of a key over the checkpoints that are still there, by step.

    Args:
        key: as saved, e.g. `val:accuracy`; `val_accuracy` means the same.
        where: the attempt.
    """
    source = f"checkpoint {key}"
    values: list[float] = []
    steps: list[int | None] = []
    faults: list[tuple[int, str]] = []
    places = saved(where)
    for step, path in places:
        try:
            with open(path, "rb") as file:
                info = json.load(file)
        except (OSError, ValueError, RecursionError):
            continue
        value = rows.look_up(info, key)
        if value is None and isinstance(info, dict):
            value = next((info[name] for name in info if same(name, key)), None)
        if value is None:
            continue
        parsed, fault = rows.number(value)
        if parsed is None:
            faults.append((len(values), fault))
            continue
        values.append(parsed)
        steps.append(step)
    trouble = f"no finished checkpoint below {where.checkpoints}"
    if places:
        trouble = f'no "{key}" in {len(places)} checkpoints'
    return Found(source, values, steps, faults=tuple(faults), trouble=trouble)


def same(one: str, other: str) -> bool:
    """Whether two names differ only in how `val` or `train` is joined: `val:x`, `val_x` and `validation/x` are one."""
    return _plain(one) == _plain(other)


def _plain(name: str) -> str:
    return re.sub(r"^(?:validation|val)[:/_]", "val:", re.sub(r"^train[:/_]", "train:", name))
