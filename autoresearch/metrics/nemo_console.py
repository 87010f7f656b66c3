"""NeMo-RL's own blocks on the driver's console.

Shapes read (NeMo-RL at 7ea279a, August 2026): validation blocks of grpo, ppo, distillation, sft, dpo, rm and the
TransferQueue trainer, training blocks, and the single controller's `step_metrics={...}`. A block counts only when
its header begins a line, since model samples are printed in panels and may hold anything; lines that other processes
printed through Ray are no part of it, except the single controller's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from autoresearch.metrics import backwards, console, numbers
from autoresearch.metrics.aggregate import Found

STARTING = "▶ Starting validation at step ".encode()
HEADER = "📊 Validation Results".encode()
TRAINING = "📊 Training Results:".encode()
CONTROLLER = b"step_metrics={"
_HEADER = numbers.later(r"📊 Validation Results(?: for `([^`]+)` set)?:\s*")
_STARTING = numbers.later(r"▶ Starting validation at step (\d{1,15})(?: for `([^`]+)` set)?\.{2,3}\s*", re.ASCII)
_PREFIXED = numbers.later(r"\(\w[^()]* pid=\d+[^)]*\)")
_BULLET = numbers.later(rf"\s{{2,6}}• ([^:]{{1,80}}):\s+({numbers.EITHER})(.*)", re.ASCII)
_STEP_HEADER = numbers.later(rb"={20,30} Step (\d{1,15})/\d{1,15} ={20,30}")
_NUMBERED = numbers.later(rb"train step (\d{1,15})/")
_LABEL = numbers.later(r"[A-Z ]")  # what a console label has and a metric's name has not
_LABELS = {  # console label -> metric, where the rule (lower case, blanks to underscores) does not give it
    "average_response_length": "avg_length",
    "avg_reward": "reward",
    "generation_kl_error": "gen_kl_error",
    "mean_generation_length": "mean_gen_tokens_per_sample",
    "avg_filtered_reward": "filtered_reward",
    "avg_total_reward": "total_reward",
    "policy_loss": "loss",
    "critic_loss": "critic/loss",
}
RECOGNISE = 1 << 18  # bytes at either end that tell whether a log is NeMo-RL's
SEGMENT = 8 << 20  # bytes after a validation's start in which its block must come
BLOCK = 1 << 16  # bytes of a block that are looked at


class Block(NamedTuple):
    """One printed block: its set (dpo, rm), step, offset, and metric -> (value, text, fault)."""

    group: str
    step: int | None
    at: int
    fields: dict[str, tuple[float | None, str, str]]


def wanted(name: str) -> tuple[str, str] | None:
    """(`val` or `train`, metric) that `val:accuracy`, `val_accuracy` or `train/loss` means in NeMo-RL."""
    if name.startswith("validation-"):
        return "val", name
    match = re.fullmatch(r"(val|validation|train)([:/_])(.+)", name)
    if match is None:
        return None
    kind, mark, rest = match.groups()
    if kind == "validation" and mark == "_":
        return None
    return ("train" if kind == "train" else "val"), rest


def is_nemo(log: backwards.Log) -> bool:
    """Whether the first or last part of a log has what only NeMo-RL prints."""
    head = log.read(0, RECOGNISE)
    tail = log.read(log.size - RECOGNISE, log.size) if log.size > RECOGNISE else b""
    marks = ("📊 Using log directory: ".encode(), STARTING, HEADER, TRAINING, CONTROLLER, b"SingleControllerActor")
    # `rfind` skips over what cannot be a mark: a third of the time of `in`.
    return any(part.rfind(mark) >= 0 for part in (head, tail) for mark in marks)


def find(name: str, path: str, *, whole: bool = True) -> Found | None:
    """The values of `val:X` or `train:X` on NeMo-RL's console; None when the log or the name is not NeMo-RL's."""
    target = wanted(name)
    source = f"console {os.path.basename(path)}"
    if target is None:
        return _find_label(name, path, whole) if _LABEL.search(name) else None
    try:
        with backwards.Log(path) as log:
            if not is_nemo(log):
                return None
            kind, metric = target
            if kind == "train":
                return _found(_training(log, metric), metric, log, source, complete=True)
            blocks = _validations(log)
            picked = list(blocks) if whole else _newest(blocks, metric)
            picked.reverse()
            return _found(iter(picked), metric, log, source, complete=whole)
    except OSError as error:
        return Found(source, trouble=f"cannot read {path}: {error.strerror}")


def _find_label(label: str, path: str, whole: bool) -> Found | None:
    """A field by the words that the console prints (`Accuracy`, `Avg Reward`), in whichever kind of block has it."""
    for kind in ("val", "train"):
        found = find(f"{kind}:{label}", path, whole=whole)
        if found is None or found.values or found.faults:
            return found
    return None


def _newest(blocks: Iterator[Block], metric: str) -> list[Block]:
    """The blocks of the newest validation step that holds the metric (dpo prints one a set)."""
    taken: list[Block] = []
    for block in blocks:
        if taken and block.step != taken[-1].step:
            break
        if taken or _fits(block, metric):
            taken.append(block)
    return taken


def _found(blocks: Iterator[Block], metric: str, log: backwards.Log, source: str, *, complete: bool) -> Found:
    values: list[float] = []
    steps: list[int | None] = []
    places: list[tuple[int, str, int | None]] = []
    faults: list[tuple[int, str]] = []
    groups: dict[str, None] = {}
    for block in blocks:
        label = _fits(block, metric)
        if label is None:
            continue
        groups[block.group] = None
        value, text, fault = block.fields[label]
        if value is None:
            faults.append((len(values), fault))
            continue
        values.append(value)
        steps.append(block.step)
        places.append((block.at, text, block.step))
    if len(groups) > 1:
        names = ", ".join(f"val:validation-{group}_{metric}" for group in groups)
        return Found(source, trouble=f"several validation sets print {metric}: choose one of {names}")
    trouble = (
        "" if values or faults else f"no {metric} in the validation or training blocks of {os.path.basename(log.path)}"
    )
    return Found(
        source, values, steps, places.__getitem__, log.path, faults=tuple(faults), trouble=trouble, complete=complete
    )


def _fits(block: Block, metric: str) -> str | None:
    """The field of a block that `metric` names, or None."""
    named = re.fullmatch(r"validation-(.+?)[_/](.+)", metric)
    if named is not None:
        # A set's name may hold an underscore itself: the block's own name decides where it ends.
        rest = metric[len("validation-") :]
        if not block.group or not rest.startswith((block.group + "_", block.group + "/")):
            return None
        metric = rest[len(block.group) + 1 :]
    for candidate in (metric, metric.removeprefix("val_"), metric.removeprefix("validation_")):
        if candidate in block.fields:
            return candidate
    return None


def _validations(log: backwards.Log) -> Iterator[Block]:
    """Validation blocks from the last to the first."""
    end, started = log.size, False
    while end > 0:
        start = _last_start(log, end)
        if start < 0 and started:
            return
        started = start >= 0
        low = max(start, 0)
        header = _last_header(log, low, min(end, low + SEGMENT) if start >= 0 else end)
        if header >= 0:
            block = _block(log, header, end, log.read(low, low + 200) if start >= 0 else b"")
            if block is not None:
                yield block
        if start >= 0:
            end = start
        elif header < 0:
            return
        else:
            end = header  # a log without starting lines: every header is a validation


def _last_start(log: backwards.Log, end: int) -> int:
    while (start := backwards.rfind(log, STARTING, 0, end)) >= 0:
        if not _begins_line(log, start):
            end = start
            continue
        return start
    return -1


def _last_header(log: backwards.Log, low: int, high: int) -> int:
    while (header := backwards.rfind(log, HEADER, low, high)) >= 0:
        if _begins_line(log, header):
            return header
        high = header
    return -1


def _begins_line(log: backwards.Log, at: int) -> bool:
    before = log.read(at - backwards.BEFORE, at)
    return not console.visible(before[backwards.line_start(before, len(before)) :])


def _block(log: backwards.Log, header: int, end: int, start: bytes) -> Block | None:
    lines = _lines(log.read(header, min(header + BLOCK, end)))
    first = _HEADER.fullmatch(next(lines)[1])
    if first is None:
        return None
    begun = _STARTING.match(console.visible(start))
    fields, at = _bullets(lines)
    if not fields:
        return None
    return Block(first.group(1) or "", int(begun.group(1)) if begun else None, header + at, fields)


def _lines(data: bytes) -> Iterator[tuple[int, str]]:
    index = 0
    while index <= len(data):
        end = backwards.line_end(data, index)
        yield index, console.visible(data[index:end])
        if data[end : end + 2] == b"\r\n":
            end += 1
        index = end + 1


def _bullets(lines: Iterator[tuple[int, str]]) -> tuple[dict[str, tuple[float | None, str, str]], int]:
    fields: dict[str, tuple[float | None, str, str]] = {}
    at = 0
    for offset, line in lines:
        bare = line.strip()
        if _PREFIXED.match(bare):
            continue
        bullet = _BULLET.fullmatch(line.rstrip())
        if bullet is None:
            if fields and (not bare or bare.startswith("⏱")):
                break
            if bare.startswith(("▶", "📊", "=====", "Traceback")):
                break
            continue
        label, text, after = bullet.groups()
        at = at or offset
        parsed = numbers.follow(text, after, free=True)
        for name in (_metric_of(label), label):
            fields.setdefault(name, (parsed.value, parsed.text, parsed.fault))
    return fields, at


def _metric_of(label: str) -> str:
    name = re.sub(r"\s+", "_", label.strip().lower()).removeprefix("validation_")
    return _LABELS.get(name, name)


def _training(log: backwards.Log, metric: str) -> Iterator[Block]:
    """Training blocks from the first to the last; steps go on over epochs though the headers begin anew."""
    if backwards.find(log, TRAINING) < 0:
        yield from _controller(log, metric)
        return
    offset, seen, base, last = 0, 0, 0, 0
    while (at := backwards.find(log, TRAINING, offset)) >= 0:
        offset = at + len(TRAINING)
        if not _begins_line(log, at):
            continue
        for header in _STEP_HEADER.finditer(log.read(max(seen, at - SEGMENT), at)):
            number = int(header.group(1))
            base, last = (base + last, number) if number < last else (base, number)
        seen = at
        lines = _lines(log.read(at, at + BLOCK))
        next(lines)
        fields, place = _bullets(lines)
        yield Block("", base + last if last else None, at + place, fields)


def _controller(log: backwards.Log, metric: str) -> Iterator[Block]:
    pattern = re.compile(rf"['\"]{re.escape(metric)}['\"]: (?:(?:np|numpy)\.\w+\()?({numbers.EITHER})".encode())
    offset = 0
    while (at := backwards.find(log, CONTROLLER, offset)) >= 0:
        data = log.read(at, at + BLOCK)
        line = data[: backwards.line_end(data, 0)]
        match, step = pattern.search(line), _NUMBERED.search(data, len(line), len(line) + 2000)
        if match is not None:
            text = match.group(1).decode("ascii")
            fields: dict[str, tuple[float | None, str, str]] = {metric: (numbers.strict(text), text, "")}
            yield Block("", int(step.group(1)) if step else None, at, fields)
        offset = at + len(line)
