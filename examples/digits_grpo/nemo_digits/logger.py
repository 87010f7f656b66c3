"""Metrics on disk: one JSON line a step in `<log_dir>/exp_NNN/metrics.jsonl`, under TensorBoard's names."""

from __future__ import annotations

import json
import re
from pathlib import Path


def next_experiment_dir(log_dir: str) -> Path:
    """Make and return the first `exp_NNN` after the highest there is."""
    base = Path(log_dir)
    numbers = [int(match[1]) for path in base.glob("exp_*") if (match := re.fullmatch(r"exp_(\d+)", path.name))]
    path = base / f"exp_{max(numbers, default=0) + 1:03d}"
    path.mkdir(parents=True)
    return path


class MetricsLog:
    """Appends metrics; each line is on disk before the next step starts."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "metrics.jsonl"

    def write(self, step: int, prefix: str, metrics: dict[str, float]) -> None:
        """Append one line such as `{"step": 25, "validation/accuracy": 0.5}`."""
        line = {"step": step} | {f"{prefix}/{name}": value for name, value in metrics.items()}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
