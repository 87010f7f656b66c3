"""`metric`: read a metric from any file and say how it was found; the way to try a pattern."""

from __future__ import annotations

import json
import os

from autoresearch import knobs, metrics, talk
from autoresearch.direction import guess_direction
from autoresearch.errors import Usage


def run() -> int:
    """Print value, step, and where they came from; exit 3 without a valid number."""
    log = knobs.required("LOG", "run.log")
    if not os.path.exists(log):
        raise Usage("LOG", f"{log!r} is not there", "give the path of a log or of a run's directory")
    metric, at = knobs.required("METRIC", "val_accuracy"), knobs.text("METRIC_AT", "last")
    direction = knobs.text("DIRECTION") or guess_direction(metric) or "max"
    options = tuple(knobs.text("METRIC_OPTIONS").replace(",", " ").split())
    reading = metrics.explain(log, metric, at, options, direction=direction)
    if knobs.flag("JSON"):
        talk.out(json.dumps(reading._asdict(), allow_nan=False))
        return 0 if reading.value is not None else 3
    if reading.value is None:
        talk.out(f"no valid {metric}: {talk.one_line(reading.reason)}")
        for line in metrics.tail_hint(log, 8).splitlines():
            talk.out(f"  | {line}")
        return 3
    step = "" if reading.step is None else f" at step {reading.step}"
    talk.out(f"{reading.name} {reading.text}{step}")
    talk.out(f"  {at} of {reading.n_values} values; best {reading.best!r} ({direction}); {reading.source}")
    return 0
