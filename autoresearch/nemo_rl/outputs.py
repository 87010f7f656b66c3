"""What a run of a recipe writes, where, and the words that move it out of the checkout.

Facts (NeMo-RL at 7ea279a): every logger writes below `<logger.log_dir>/exp_NNN`; `WANDB_DIR` has no effect since a
directory is passed to wandb; a checkpoint directory that holds an older run is resumed from silently.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from autoresearch.nemo_rl.entrypoint import algorithm, uses_gym
from autoresearch.nemo_rl.grammar import split
from autoresearch.nemo_rl.resolve import Resolved

_OUTPUT_KEYS = ("download_dir", "nemo_gym_log_dir", "output_dir", "save_path", "uv_venv_dir")


class Write(NamedTuple):
    """One place that a run writes to. `moved_by` is the override word or variable that moves it; `` when none does."""

    what: str
    path: str  # as the recipe or the default has it
    where: str  # file:line, or `default`
    moved_by: str


def base_overrides(resolved: Resolved, *, nemo_rl: bool) -> tuple[str, ...]:
    """Return the override words, with placeholders, that every attempt's command carries, the baseline's too.

    They put logs and checkpoints into the attempt's own directories, turn TensorBoard on, name the W&B run
    uniquely, validate at the end where that is possible, and move what else would be written below the checkout.

    Args:
        resolved: the recipe.
        nemo_rl: add keys that the recipe lacks, with `++`, which NeMo-RL understands; others get only keys they have.
    """
    words: list[str] = []

    def put(key: str, value: str, add: bool = False) -> None:
        if resolved.has(key):
            words.append(f"{key}={value}")
        elif add and nemo_rl:
            words.append(f"++{key}={value}")

    logger = isinstance(resolved.get("logger"), Mapping)
    put("logger.log_dir", "{log_dir}", logger)
    put("checkpointing.checkpoint_dir", "{checkpoint_dir}", isinstance(resolved.get("checkpointing"), Mapping))
    put("logger.tensorboard_enabled", "true", logger)
    put("logger.wandb.name", "{run_name}", bool(resolved.get("logger.wandb_enabled")))
    if resolved.get("logger.swanlab_enabled"):
        put("logger.swanlab.name", "{run_name}", True)
    if resolved.get("logger.mlflow_enabled"):
        put("logger.mlflow.run_name", "{run_name}", True)
        if not str(resolved.get("logger.mlflow.tracking_uri") or "").startswith(("http:", "https:", "databricks")):
            # The file store breaks on metric names with slashes and would lie in the working directory.
            put("logger.mlflow.tracking_uri", "sqlite:///{log_dir}/mlflow.db", True)
    section = algorithm(resolved.values)
    if section and validates(resolved) and str(resolved.get("checkpointing.metric_name") or "").startswith("val:"):
        put(f"{section}.val_at_end", "true")
    words.extend(word for word, _, _ in _moved(resolved))
    return tuple(words)


def keys_of(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the keys that override words set."""
    return tuple(split(word).key for word in words)


def validates(resolved: Resolved) -> bool:
    """Tell whether the recipe validates as it trains; asked for at the end only, it may fail for want of data."""
    period = resolved.get(f"{algorithm(resolved.values)}.val_period")
    return isinstance(period, (int, float)) and period > 0


def _moved(resolved: Resolved) -> Iterator[tuple[str, str, str]]:
    """Override words for output paths below the checkout other than logs and checkpoints, with path and key."""
    for key, value in _strings(resolved.values, ""):
        leaf = key.rsplit(".", 1)[-1]
        if leaf not in _OUTPUT_KEYS or not value or os.path.isabs(value) or "${" in value or "://" in value:
            continue
        if leaf == "uv_venv_dir":  # environments are shared; the launching side decides where they are
            continue
        place = "{log_dir}" if leaf == "nemo_gym_log_dir" else "{artifacts_dir}"
        yield f"{key}={place}/{os.path.basename(value.rstrip('/'))}", value, key


def _strings(value: Any, prefix: str) -> Iterator[tuple[str, str]]:
    pairs = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for name, below in pairs:
        key = f"{prefix}{name}"
        if isinstance(below, str):
            yield key, below
        else:
            yield from _strings(below, f"{key}.")


def writes(resolved: Resolved, *, nemo_rl: bool) -> list[Write]:
    """Return every place that a run is known to write to, with what moves it."""
    found: list[Write] = []

    def add(what: str, key: str, moved_by: str) -> None:
        path = resolved.get(key)
        if isinstance(path, str):
            found.append(Write(what, path, resolved.where(key), moved_by))

    add("logs, TensorBoard, W&B, samples" if nemo_rl else "logs", "logger.log_dir", "logger.log_dir={log_dir}")
    saves = resolved.get("checkpointing.enabled", True)
    what = "checkpoints" if saves else "checkpoints (off in this recipe)"
    add(what, "checkpointing.checkpoint_dir", "checkpointing.checkpoint_dir={checkpoint_dir}")
    for word, path, key in _moved(resolved):
        found.append(Write(key.rsplit(".", 1)[-1], path, resolved.where(key), word))
    add("NeMo-Gym environments", "env.nemo_gym.uv_venv_dir", "NEMO_GYM_VENV_DIR")
    if nemo_rl:
        found.extend(_by_default(resolved))
    return found


def _by_default(resolved: Resolved) -> Iterator[Write]:
    yield Write("environments of the workers, several GB each", "venvs", "default", "NEMO_RL_VENV_DIR")
    if resolved.get("policy.megatron_cfg.enabled"):
        path = "$HF_HOME/nemo_rl"
        yield Write("the model converted for Megatron, its full size", path, "default", "NRL_MEGATRON_CHECKPOINT_DIR")
    if resolved.get("policy.generation.backend") == "vllm":
        yield Write("vLLM's caches, one an engine", "~/.cache/vllm_*", "default", "VLLM_CACHE_ROOT")
    if uses_gym(resolved.values) and not resolved.get("env.nemo_gym.uv_venv_dir"):
        yield Write("NeMo-Gym environments", "3rdparty/Gym-workspace/Gym", "default", "NEMO_GYM_VENV_DIR")
    yield Write("Ray's session, logs and spilled objects", "/tmp/ray", "default", "RAY_TMPDIR")
