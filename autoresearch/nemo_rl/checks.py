"""What is wrong or risky about a recipe, found before a night is spent on it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from autoresearch.nemo_rl.entrypoint import algorithm, settings
from autoresearch.nemo_rl.inputs import Input
from autoresearch.nemo_rl.outputs import validates
from autoresearch.nemo_rl.parsing import Mark
from autoresearch.nemo_rl.resolve import Resolved, relative

SAVE_BY = "checkpointing.checkpoint_must_save_by"
_TIME = re.compile(r"(\d+):(\d+):(\d+):(\d+)")


class OwnLimit(NamedTuple):
    """The recipe's own time limit: seconds from the start of its training loop, None for none or an unusable one."""

    seconds: float | None
    problem: str  # why it is unusable


def own_limit(resolved: Resolved) -> OwnLimit:
    """Return what `checkpointing.checkpoint_must_save_by` says, a text `DD:HH:MM:SS`.

    YAML reads an unquoted `10:00:00:00` as a number to the base of 60, on which NeMo-RL fails at its start; with a
    leading zero it stays text.
    """
    value = resolved.get(SAVE_BY)
    if value is None:
        return OwnLimit(None, "")
    where = resolved.where(SAVE_BY)
    if isinstance(value, str):
        found = _TIME.fullmatch(value)
        if found:
            days, hours, minutes, seconds = (int(part) for part in found.groups())
            return OwnLimit(days * 86400.0 + hours * 3600 + minutes * 60 + seconds, "")
        return OwnLimit(None, f"{SAVE_BY} is {value!r} ({where}): not DD:HH:MM:SS, training fails at its start")
    written = resolved.raw(SAVE_BY)
    if _TIME.fullmatch(written):
        why = f"YAML reads {written} as the number {value}"
        return OwnLimit(None, f'{SAVE_BY} ({where}): {why}, training fails at its start: write "{written}" in quotes')
    return OwnLimit(None, f"{SAVE_BY} is {value!r} ({where}): not a text DD:HH:MM:SS, training fails at its start")


def warnings(resolved: Resolved, inputs: Sequence[Input], twin: str = "") -> list[str]:
    """Return one line for each thing to know or to put right, with the file and line it comes from.

    Args:
        resolved: the recipe.
        inputs: what it reads.
        twin: its test script, whose idea of the cluster is compared; `` for none.
    """
    found = [*_resolution(resolved), *_metric(resolved), *_validation(resolved), *_rest(resolved)]
    found.extend(_cluster(resolved, twin))
    policy = next((item.name for item in inputs if item.role == "model"), "")
    for item in inputs:
        if item.role == "tokenizer" and item.name == policy:
            continue
        if item.kind == "placeholder":
            found.append(f"{item.role} is a placeholder, {item.name!r} ({item.where}): give it as an override")
        elif item.kind == "path" and item.present is False:
            found.append(f"{item.role} is missing: {item.name} ({item.where})")
    return list(dict.fromkeys(found))


def _resolution(resolved: Resolved) -> Iterator[str]:
    for name in resolved.missing_env:
        keys = [key for key in resolved.unresolved if re.search(rf"oc\.env:\s*{name}\b", resolved.raw(key))]
        places = ", ".join(f"{key} at {resolved.where(key)}" for key in keys[:3])
        yield f"environment variable {name} is not set, which the recipe reads" + (f" ({places})" if places else "")
    for key, why in resolved.unresolved.items():
        if not any(name in why for name in resolved.missing_env):
            yield f"{key} has no value ({resolved.where(key)}): {why}"
    for key in resolved.mandatory:
        yield f"{key} must be given: it is ??? ({resolved.where(key)})"
    for file in resolved.files[1:]:
        if file.startswith("/"):
            yield f"parent {file} lies outside the repository: commits do not carry its changes"
    for mark in _nested_markers(resolved.marks, 0):
        yield f"`_override_` below the top level has no effect ({relative(resolved.repo, mark.file)}:{mark.line})"


def _nested_markers(marks: Mark, depth: int) -> Iterator[Mark]:
    for name, below in (marks.children or {}).items():
        if name == "_override_" and depth > 1:
            yield below
        else:
            yield from _nested_markers(below, depth + 1)


def _metric(resolved: Resolved) -> Iterator[str]:
    key = "checkpointing.metric_name"
    if not resolved.has(key):
        return
    name, where = resolved.get(key), resolved.where(key)
    if name is None:
        yield f"the recipe names no metric, {key} is null ({where}): give METRIC and DIRECTION"
    elif not str(name).startswith(("val:", "train:")):
        yield f"{key} is {name!r} ({where}): NeMo-RL fails at the first save unless it starts with val: or train:"
    if name is not None and not isinstance(resolved.get("checkpointing.higher_is_better"), bool):
        yield f"checkpointing.higher_is_better is not given ({where}): give DIRECTION=max or DIRECTION=min"


def _validation(resolved: Resolved) -> Iterator[str]:
    section = algorithm(resolved.values)
    if not section:
        return

    def number(key: str) -> float | None:
        value = resolved.get(key)
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    def at(key: str) -> str:
        return f"{key}={resolved.get(key)} ({resolved.where(key)})"

    period, samples, batch = f"{section}.val_period", f"{section}.max_val_samples", f"{section}.val_batch_size"
    save, every, by_val = "checkpointing.save_period", number(period), _is_val(resolved)
    if by_val and not validates(resolved):
        ends = any(resolved.get(f"{section}.{name}") for name in ("val_at_start", "val_at_end"))
        if not ends:
            yield f"the metric comes from validation, which is off: {at(period)}; give another METRIC, or turn it on"
    saves, both = bool(resolved.get("checkpointing.enabled")), number(save)
    if by_val and saves and every and every > 0 and both and both % every:
        yield f"checkpoints will lack the metric, saving and validation do not meet: {at(save)}, {at(period)}"
    many, size = number(samples), number(batch)
    if section in ("grpo", "ppo", "distillation") and many is not None and size and many < size and validates(resolved):
        yield f"validation would run no batch and report 0.0: {at(samples)} is less than {at(batch)}"
    stop, limit = "grpo.stop_at_validation_metric", "grpo.stop_at_validation_threshold"
    if (resolved.get(stop) is None) != (resolved.get(limit) is None):
        yield f"both or neither must be set: {at(stop)}, {at(limit)}"
    elif resolved.get(stop) is not None and resolved.get("checkpointing.higher_is_better") is False:
        yield f"the early stop fires when the metric is high, the recipe wants it low: {at(stop)}"
    shown = "logger.num_val_samples_to_print"
    if (number(shown) or 0) > 0:
        yield f"the log will hold text that the model wrote, which may look like results: {at(shown)}"


def _cluster(resolved: Resolved, twin: str) -> Iterator[str]:
    nodes = settings(resolved.repo, twin).get("NUM_NODES") if twin else None
    key = "cluster.num_nodes"
    if nodes and resolved.has(key) and str(resolved.get(key)) != nodes:
        said = f"the recipe says {resolved.get(key)} ({resolved.where(key)})"
        yield f"its test script runs on {nodes} nodes ({twin}), {said}"


def _is_val(resolved: Resolved) -> bool:
    return str(resolved.get("checkpointing.metric_name") or "").startswith("val:")


def _rest(resolved: Resolved) -> Iterator[str]:
    problem = own_limit(resolved).problem
    if problem:
        yield problem
    if resolved.get("logger.wandb_enabled"):
        where = resolved.where("logger.wandb_enabled")
        yield f"W&B is on ({where}): it uploads every file that git tracks, and your diff"
    uri = "logger.mlflow.tracking_uri"
    if resolved.get("logger.mlflow_enabled") and "localhost" in str(resolved.get(uri)):
        yield f"MLflow is on and its server must run: {resolved.get(uri)} ({resolved.where(uri)})"
