"""Metrics from MLflow's SQLite and file stores, without MLflow and without a server."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator

from autoresearch.metrics import Where, files
from autoresearch.metrics.aggregate import Found

Row = tuple[float, int]  # value, step
HUGE = 1.7e308  # MLflow stores infinities as the largest double


def _uri(where: Where) -> list[str]:
    """The store that MLFLOW_TRACKING_URI names, when it is a local one."""
    from urllib.parse import unquote

    uri = os.environ.get("MLFLOW_TRACKING_URI", "")
    for prefix in ("sqlite:///", "file://", "file:"):
        if uri.startswith(prefix):
            path = unquote(uri[len(prefix) :].partition("?")[0])
            return [os.path.join(where.tree, path)]
    return [uri] if uri.startswith("/") else []


def find(key: str, where: Where) -> Found:
    """The history of `key` in the newest MLflow run that began with or after this attempt."""
    source = f"mlflow {key}"
    roots = [*_uri(where), where.logs, where.artifacts, where.tree]
    begun = int((where.started_at - 1) * 1000)
    tried = 0
    for root in roots:
        for store, read in _stores(root) if root else ():
            tried += 1
            try:
                rows = read(store, key, begun)
            except OSError:
                continue
            if rows:
                name = os.path.basename(store)
                return Found(f"{source} in {name}", [value for value, _ in rows], [step for _, step in rows])
    why = "no MLflow store of this attempt"
    if tried:
        why = f'no "{key}" in a run of this attempt ({tried} stores looked at)'
    return Found(source, trouble=why)


def _stores(root: str) -> Iterator[tuple[str, Callable[[str, str, int], list[Row]]]]:
    for path in files.walk(root, depth=6):
        name = os.path.basename(path)
        if name.endswith((".db", ".sqlite", ".sqlite3")):
            yield path, _sqlite
    seen = set()
    for path in files.walk(root, depth=6):
        if os.path.basename(path) == "meta.yaml":
            folder = os.path.dirname(path)
            if os.path.isdir(os.path.join(folder, "metrics")):
                seen.add(os.path.dirname(folder))
    for experiment in sorted(seen):
        yield experiment, _folder


def _sqlite(path: str, key: str, begun: int) -> list[Row]:
    import sqlite3
    from urllib.parse import quote

    try:
        connection = sqlite3.connect(f"file:{quote(os.path.abspath(path))}?mode=ro", uri=True, timeout=5)
    except sqlite3.Error:
        return []
    try:
        newest = connection.execute(
            "select r.run_uuid from runs r where r.start_time >= ? and exists "
            "(select 1 from metrics m where m.run_uuid = r.run_uuid and m.key = ?) "
            "order by r.start_time desc, r.rowid desc limit 1",
            (begun, key),
        ).fetchone()
        if newest is None:
            return []
        rows = connection.execute(
            "select value, is_nan, step from metrics where run_uuid = ? and key = ? order by step, timestamp, rowid",
            (newest[0], key),
        ).fetchall()
    except sqlite3.Error:
        return []
    finally:
        connection.close()
    return [(math.nan if is_nan else _wide(float(value)), int(step)) for value, is_nan, step in rows]


def _wide(value: float) -> float:
    return math.copysign(math.inf, value) if abs(value) > HUGE else value


def _folder(experiment: str, key: str, begun: int) -> list[Row]:
    runs = []
    for entry in os.scandir(experiment):
        metric = os.path.join(entry.path, "metrics", *key.split("/"))
        started = _started(os.path.join(entry.path, "meta.yaml"))
        if ".." not in key.split("/") and started is not None and started >= begun and os.path.isfile(metric):
            runs.append((started, metric))
    if not runs:
        return []
    with open(max(runs)[1], encoding="utf-8", errors="replace") as file:
        text = file.read()
    rows = []
    for line in text.splitlines(keepends=True):
        match = re.fullmatch(r"(\d+) (\S+)(?: (-?\d+))?(?: .*)?\n", line, re.ASCII)
        if match is None:
            continue  # torn
        try:
            rows.append((int(match.group(3) or 0), int(match.group(1)), float(match.group(2))))
        except ValueError:
            continue
    rows.sort(key=lambda row: row[:2])
    return [(_wide(value), step) for step, _, value in rows]


def _started(meta: str) -> int | None:
    try:
        with open(meta, encoding="utf-8", errors="replace") as file:
            match = re.search(r"^start_time: (\d+)$", file.read(1 << 16), re.MULTILINE | re.ASCII)
    except OSError:
        return None
    return int(match.group(1)) if match else None
