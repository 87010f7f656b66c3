"""`series`: the whole curve of the metric with its steps."""

from __future__ import annotations

import os
from collections.abc import Iterable

from autoresearch import campaign, conclude, knobs, ledger, metrics, names, parents, talk
from autoresearch.campaign import Campaign
from autoresearch.errors import Refused
from autoresearch.rows import Row


def run() -> int:
    """Print the curve as TSV, or as data with JSON=1."""
    opened = campaign.open_any()
    if metrics.split(opened.plan.metric)[0] == "command":
        raise Refused("series", "the metric's program prints one number, not a curve", "make summarize shows it")
    row = _row(opened)
    if not os.path.exists(row.log_path):
        talk.note(f"{row.log_path} is not there: cleaned up")
    where = opened.where.attempt(row.experiment, row.number)
    points = metrics.series(
        conclude.spec(opened), metrics.Where(row.log_path, where.logs, row.checkpoint_path, row.artifacts_path, "")
    )
    if knobs.flag("JSON"):
        _as_json(row.id, opened.plan.metric, points)
        return 0
    talk.out("step\tvalue")
    for point in points:
        talk.out(f"{'' if point.step is None else point.step}\t{point.value!r}")
    return 0


def _as_json(name: str, metric: str, points: Iterable[metrics.Point]) -> None:
    """Write the curve as one JSON object, point by point: a long one does not fit the memory twice."""
    import json
    import math
    import sys

    sys.stdout.write(f'{{"experiment": {json.dumps(name)}, "metric": {json.dumps(metric)}, "points": [')
    for place, point in enumerate(points):
        value = point.value if math.isfinite(point.value) else None  # JSON knows no nan
        sys.stdout.write(f"{', ' if place else ''}{json.dumps({'step': point.step, 'value': value})}")
    sys.stdout.write("]}\n")


def _row(opened: Campaign) -> Row:
    name = names.check("NAME", knobs.required("NAME", "y"))
    rows, attempt = opened.rows(), knobs.count("ATTEMPT", 0, least=0)
    row = ledger.find(rows, name, attempt) if attempt else parents.latest(rows, name)
    if row is None:
        raise Refused("NAME", f"{name!r} has no such row", "make summarize lists the experiments")
    return row
