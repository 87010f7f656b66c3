"""Metrics from MLflow's SQLite and file stores, without MLflow and without a server."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from autoresearch.metrics import Where, files
from autoresearch.metrics.aggregate import Found

HUGE = 1.7e308  # MLflow stores infinities as the largest double


class _Held(NamedTuple):
    """What a store has of a key: how many runs hold it, and of the newest its start (ms) and values with steps."""

    runs: int
    started: int
    rows: list[tuple[float, int]]


_NOTHING = _Held(0, 0, [])


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
    begun = int((where.started_at - 1) * 1000)
    given = os.path.isfile(where.logs)  # a file by hand: no other store is meant
    shared = [] if given else _uri(where)
    tried, trouble = 0, ""
    for root in [where.logs] if given else [*shared, where.logs, where.artifacts, where.tree]:
        held: list[tuple[_Held, str]] = []
        for store, read in _stores(root) if root else ():
            tried += 1
            try:
                held.append((read(store, key, begun), os.path.basename(store)))
            except (OSError, ValueError, TypeError) as error:
                trouble = f", {os.path.basename(store)} cannot be read: {error}"
        runs = sum(one.runs for one, _ in held)
        if runs > 1 and where.started_at and root in shared:
            why = f'several runs: {runs} with "{key}" in {root} since this attempt began; give each a store of its own'
            return Found(source, faults=((0, why),))
        if runs:
            newest, name = max(held, key=lambda one: (one[0].started, one[0].runs))
            return Found(f"{source} in {name}", [row[0] for row in newest.rows], [row[1] for row in newest.rows])
    why = "no MLflow store of this attempt"
    if tried:
        why = f'no "{key}" in a run of this attempt ({tried} stores looked at{trouble})'
    return Found(source, trouble=why)


def _stores(root: str) -> Iterator[tuple[str, Callable[[str, str, int], _Held]]]:
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


def _sqlite(path: str, key: str, begun: int) -> _Held:
    import sqlite3
    from urllib.parse import quote

    try:
        connection = sqlite3.connect(f"file:{quote(os.path.abspath(path))}?mode=ro", uri=True, timeout=5)
    except sqlite3.Error as error:
        raise OSError(str(error)) from error
    try:
        runs = connection.execute(
            "select r.run_uuid, r.start_time from runs r where r.start_time >= ? and exists "
            "(select 1 from metrics m where m.run_uuid = r.run_uuid and m.key = ?) "
            "order by r.start_time desc, r.rowid desc",
            (begun, key),
        ).fetchall()
        if not runs:
            return _NOTHING
        rows = connection.execute(
            "select value, is_nan, step from metrics where run_uuid = ? and key = ? order by step, timestamp, rowid",
            (runs[0][0], key),
        ).fetchall()
    except sqlite3.Error as error:
        if "no such table" in str(error):
            return _NOTHING  # some other database
        raise OSError(str(error)) from error
    finally:
        connection.close()
    values = [(math.nan if is_nan else _wide(float(value)), int(step)) for value, is_nan, step in rows]
    return _Held(len(runs), int(runs[0][1]), values)


def _wide(value: float) -> float:
    return math.copysign(math.inf, value) if abs(value) > HUGE else value


def _folder(experiment: str, key: str, begun: int) -> _Held:
    runs = []
    for entry in os.scandir(experiment):
        metric = os.path.join(entry.path, "metrics", *key.split("/"))
        started = _started(os.path.join(entry.path, "meta.yaml"))
        if ".." not in key.split("/") and started is not None and started >= begun and os.path.isfile(metric):
            runs.append((started, metric))
    if not runs:
        return _NOTHING
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
    return _Held(len(runs), max(runs)[0], [(_wide(value), step) for step, _, value in rows])


def _started(meta: str) -> int | None:
    try:
        with open(meta, encoding="utf-8", errors="replace") as file:
            match = re.search(r"^start_time: (\d+)$", file.read(1 << 16), re.MULTILINE | re.ASCII)
    except OSError:
        return None
    return int(match.group(1)) if match else None
