"""A metric by its bare name: TensorBoard, then NeMo-RL's training_info.json, then the console.

The sources are asked in the order of trust: TensorBoard and the checkpoints hold full precision, the console four
digits. The one that has got further wins all the same: an event file that was not flushed before the end must not
hide that the run diverged after it.
"""

from __future__ import annotations

import math
import os
import re

from autoresearch.metrics import Where
from autoresearch.metrics.aggregate import Found, step_at


def tags_of(name: str) -> list[str]:
    """The TensorBoard tags that a metric's name may mean, the likeliest first.

    NeMo-RL writes `val:X` as `validation/X`, and `val:validation-SET_X` (dpo, rm) as `validation-SET/X`.
    """
    tags = [name]
    match = re.fullmatch(r"(val|validation|train|test)([:/_])(.+)", name)
    if match is not None:
        kind, _, rest = match.groups()
        part = re.fullmatch(r"validation-(.+)", rest) if kind == "val" else None
        if part is not None:
            head = part.group(1)
            splits = [index for index, letter in enumerate(head) if letter == "_"]
            tags += [f"validation-{head[:index]}/{head[index + 1 :]}" for index in splits]
        long = {"val": "validation", "validation": "val"}.get(kind)
        tags += [f"{long}/{rest}"] if long else []
        tags += [f"{kind}/{rest}", *([f"{long}/{name}"] if long else [])]
    return list(dict.fromkeys(tags))


def find(name: str, where: Where, options: tuple[str, ...] = (), *, whole: bool = True, steps: bool = True) -> Found:
    """The values of a metric by name, from the most trusted source that has its latest value."""
    found = [part for part in (_board(name, where), _checkpoints(name, where)) if part is not None]
    text = console(name, where, options, whole=whole, steps=steps)
    found.append(text)
    # Several runs in TensorBoard say nothing where another source does.
    held = [part for part in found if part.values] or [part for part in found if part.faults]
    if not held:
        return text._replace(trouble=_nothing(name, text, where))
    latest = max((_last_step(part) for part in held if part.values), default=-1)
    for part in held:
        if part.values and _last_step(part) == latest and latest >= 0:
            return _agree(part, text)
    return _agree(held[0], text)


def _agree(chosen: Found, text: Found) -> Found:
    """The chosen source, unless the console ends in nan at or after its last step: a diverged run has no value.

    One may count epochs and the other steps: a console that has as many values is not behind either.
    """
    if chosen is text or not text.values or math.isfinite(text.values[-1]):
        return chosen
    mine, theirs = _last_step(chosen), _last_step(text)
    return text if theirs >= mine or theirs < 0 or len(text.values) >= len(chosen.values) else chosen


def _last_step(found: Found) -> int:
    step = step_at(found, -1) if found.values else None
    return -1 if step is None else step


def _board(name: str, where: Where) -> Found | None:
    from autoresearch.metrics import files

    if not where.logs or not os.path.isdir(where.logs):
        return None
    now, _ = files.search([where.logs], where.started_at, ("*tfevents*",))
    if not now:
        return None
    from autoresearch.metrics import tensorboard

    for tag in tags_of(name):
        found = tensorboard.curve(now, tag)
        if found is not None:
            return found
    return None


def _checkpoints(name: str, where: Where) -> Found | None:
    if not where.checkpoints or not os.path.isdir(where.checkpoints):
        return None
    from autoresearch.metrics import checkpoint

    found = checkpoint.find(name, where)
    return found if found.values or found.faults else None


def console(name: str, where: Where, options: tuple[str, ...] = (), *, whole: bool = True, steps: bool = True) -> Found:
    """The values of a metric in the run's log: in NeMo-RL's blocks when the name is one of theirs, else by name."""
    from autoresearch.metrics import console as anybody
    from autoresearch.metrics import files, nemo_console

    source = f"console {os.path.basename(where.log)}"
    if os.path.isdir(where.log) or not os.path.exists(where.log):
        return Found(source, trouble=f"no log at {where.log}")
    if not files.fresh(where.log, where.started_at):
        return Found(source, trouble=files.stale(where.log))
    blocks = nemo_console.find(name, where.log, whole=whole)
    if blocks is not None and (blocks.values or blocks.faults or blocks.trouble.startswith("several")):
        return blocks
    found = anybody.find(name, where.log, options, whole=whole, steps=steps)
    if blocks is not None and not found.values and not found.faults:
        return blocks
    return found


def _nothing(name: str, text: Found, where: Where) -> str:
    """The reason of an empty extraction, with what there is instead and where the run has logged to."""
    from autoresearch.metrics import files, tensorboard

    if not where.logs or not os.path.isdir(where.logs):
        return text.trouble
    now, _ = files.search([where.logs], where.started_at, tensorboard.PATTERNS)
    known = list(dict.fromkeys(tag for path in now for tag in tensorboard.tags(path)))
    if known:
        some = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
        return f"{text.trouble or f'no value of {name}'}; TensorBoard has {some}"
    for root in (where.tree, where.artifacts) if where.started_at else ():
        stray, _ = files.search([root], where.started_at, tensorboard.PATTERNS)
        if stray:
            folder = os.path.relpath(os.path.dirname(stray[-1]), root)
            return f"{text.trouble}; the run logged to {folder} in its tree, which only tensorboard:TAG reads"
    return text.trouble
