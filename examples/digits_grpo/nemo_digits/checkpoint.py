"""Checkpoints: `<dir>/step_N` with weights, optimiser and `training_info.json`; written aside, then renamed."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from nemo_digits.config import ConfigError
from nemo_digits.optimizer import Adam
from nemo_digits.policy import Policy
from nemo_digits.schema import Checkpointing, MasterConfig


@dataclass
class Progress:
    """How far a run is; `current_step` counts within the epoch, `total_steps` over all of them."""

    current_epoch: int = 0
    current_step: int = 0
    total_steps: int = 0
    consumed_samples: int = 0


class Checkpoints:
    """The checkpoints below one directory."""

    def __init__(self, config: Checkpointing) -> None:
        self._config = config
        self._dir = Path(config.checkpoint_dir)

    def newest(self) -> Path | None:
        """The checkpoint with the highest step, None when there is none; unfinished ones do not count."""
        return max(self._all(), key=_step, default=None)

    def save(
        self, progress: Progress, metrics: dict[str, float], policy: Policy, optimizer: Adam, config: MasterConfig
    ) -> Path:
        """Write `step_N` for the progress so far, then remove what `keep_top_k` does not keep.

        `metrics` are this step's, by full name (`val:accuracy`); the one that ranks checkpoints is recorded.
        """
        final = self._dir / f"step_{progress.total_steps}"
        unfinished = self._dir / f"tmp_{final.name}"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        name = self._config.metric_name
        info: dict[str, Any] = asdict(progress)
        if name in metrics:
            info[name] = metrics[name]
        (unfinished / "training_info.json").write_text(json.dumps(info) + "\n", encoding="utf-8")
        (unfinished / "config.yaml").write_text(yaml.safe_dump(as_plain(config), sort_keys=False), encoding="utf-8")
        _save_arrays(unfinished / "policy.npz", policy.weights)
        _save_arrays(unfinished / "optimizer.npz", {"updates": np.asarray(optimizer.updates), **_flat(optimizer)})
        os.rename(unfinished, final)
        self._prune()
        return final

    def _all(self) -> list[Path]:
        return [path for path in self._dir.glob("step_*") if re.fullmatch(r"step_\d+", path.name)]

    def _prune(self) -> None:
        """Keep the best `keep_top_k` (of equals the later ones) and always the newest, from which runs resume."""
        ranked = sorted(self._all(), key=lambda path: (self._rank(path), _step(path)), reverse=True)
        newest = self.newest()
        for path in ranked[self._config.keep_top_k :]:
            if path != newest:
                shutil.rmtree(path)

    def _rank(self, path: Path) -> float:
        if self._config.metric_name is None:
            return 0.0
        value = read_info(path).get(self._config.metric_name)
        if value is None:
            return float("-inf")
        return float(value) if self._config.higher_is_better else -float(value)


def read_info(checkpoint: Path) -> dict[str, Any]:
    """The content of a checkpoint's `training_info.json`."""
    info: dict[str, Any] = json.loads((checkpoint / "training_info.json").read_text(encoding="utf-8"))
    return info


def restore(checkpoint: Path, policy: Policy, optimizer: Adam) -> Progress:
    """Load a checkpoint into the policy and the optimiser, and return how far it was.

    Raises:
        ConfigError: the checkpoint belongs to a network of another shape.
    """
    with np.load(checkpoint / "policy.npz") as saved:
        weights = dict(saved)
    for name, value in policy.weights.items():
        if weights[name].shape != value.shape:
            raise ConfigError(
                f"{checkpoint}: {name} has the shape {weights[name].shape}, the recipe asks for {value.shape}; "
                "choose another checkpointing.checkpoint_dir"
            )
    policy.weights = weights
    with np.load(checkpoint / "optimizer.npz") as saved:
        optimizer.updates = int(saved["updates"])
        optimizer.mean = {name: saved[f"mean_{name}"] for name in weights}
        optimizer.square = {name: saved[f"square_{name}"] for name in weights}
    info = read_info(checkpoint)
    return Progress(**{name: info[name] for name in Progress.__dataclass_fields__})


def as_plain(config: MasterConfig) -> dict[str, Any]:
    """The recipe as the mappings and lists that YAML writes."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(config)))
    return plain


def _step(path: Path) -> int:
    return int(path.name.rpartition("_")[2])


def _save_arrays(path: Path, arrays: dict[str, Any]) -> None:
    np.savez(path, **arrays)


def _flat(optimizer: Adam) -> dict[str, Any]:
    moments = {"mean": optimizer.mean, "square": optimizer.square}
    return {f"{moment}_{name}": value for moment, by_name in moments.items() for name, value in by_name.items()}
