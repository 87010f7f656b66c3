"""Reading a metric from any file by hand, and the last lines of a log for messages."""

from __future__ import annotations

import os
import re

from autoresearch.errors import Usage
from autoresearch.metrics import Reading, Spec, Where, read, split

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
TAIL = 1 << 18


def _kind(path: str) -> str:
    """The source that a file's name asks for; empty for a console log."""
    name = os.path.basename(path).lower()
    if "tfevents" in name:
        return "tensorboard"
    extensions = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".tsv": "csv"}
    extensions |= {".wandb": "wandb", ".db": "mlflow", ".sqlite": "mlflow"}
    return extensions.get(os.path.splitext(name)[1], "")


def _log_in(folder: str) -> str:
    """The log of a run's directory, be it that of its logs or of the whole experiment."""
    below = os.path.join(folder, "logs", "run.log")
    return below if os.path.exists(below) else os.path.join(folder, "run.log")


def explain(path: str, spec: Spec) -> Reading:
    """See `metrics.explain`."""
    path = os.path.abspath(path)
    if not os.path.exists(path):
        raise Usage("LOG", f"{path} does not exist", "give the path of a log or of a run's directory")
    source, _ = split(spec.metric)
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    log = _log_in(path) if os.path.isdir(path) else path
    where = Where(log, path, path if os.path.isdir(path) else folder, path, folder)
    kind = _kind(path) if not source and os.path.isfile(path) else ""
    if kind in ("jsonl", "json", "csv"):
        spec = spec._replace(metric=f"{kind}:{path}:{spec.metric}")
    elif kind:
        spec = spec._replace(metric=f"{kind}:{spec.metric}")
    elif not source and os.path.isfile(path):
        # A console log alone: what lies beside it belongs to who knows which run.
        where = where._replace(logs="", checkpoints="")
    elif source == "tensorboard" and os.path.isfile(path):
        where = where._replace(logs=path, artifacts="", tree="")
    return read(spec, where, whole=True)


def tail(path: str, n: int, width: int) -> str:
    """See `metrics.tail_hint`."""
    from autoresearch.metrics import backwards, console

    try:
        with backwards.Log(path) as log:
            data = log.read(log.size - TAIL, log.size)
    except OSError:
        return ""
    lines: list[str] = []
    for line in re.split(rb"\r?\n", data.rstrip())[-n:]:
        # Of a progress bar only its last state says anything.
        text = _CONTROL.sub("", console.ANSI_TEXT.sub("", line.rpartition(b"\r")[2].decode("utf-8", "replace")))
        text = text.replace("\t", " ").rstrip()
        lines.append(text if len(text) <= width else text[: width - 3] + "...")
    return "\n".join(lines)
