"""The figures of a run of the benchmark: a table for people, JSON for programs."""

from __future__ import annotations

import json
import os
import time
from typing import Any, NamedTuple


class Figure(NamedTuple):
    """One line of the table. `ours` and `theirs` are in `unit`; `limit` is what `ours` may be at most."""

    case: str
    ours: float | None
    unit: str = "ms"
    yardstick: str = ""
    theirs: float | None = None
    limit: float | None = None
    budget: str = ""  # the limit in words
    cpu_ms: float | None = None
    best: float | None = None  # the shortest of our times
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times the yardstick ours costs."""
        return self.ours / self.theirs if self.ours is not None and self.theirs else None

    @property
    def met(self) -> bool | None:
        """Whether the budget is kept; None when there is none, or nothing was measured."""
        return None if self.limit is None or self.ours is None else self.ours <= self.limit


HEADERS = ["case", "ours", "best", "cpu", "yardstick", "theirs", "ratio", "at most", "", "note"]


def number(value: float | None) -> str:
    """Return a figure with three digits that count."""
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(figures: list[Figure]) -> str:
    """Return the figures as a table."""
    from tabulate import tabulate

    lines = []
    for figure in figures:
        verdict = {True: "ok", False: "MISSED", None: ""}[figure.met]
        lines.append(
            [
                figure.case,
                f"{number(figure.ours)} {figure.unit}" if figure.ours is not None else "-",
                number(figure.best) if figure.best is not None else "",
                number(figure.cpu_ms) if figure.cpu_ms is not None else "",
                figure.yardstick,
                number(figure.theirs) if figure.theirs is not None else "",
                f"{figure.ratio:.2f}" if figure.ratio is not None else "",
                figure.budget,
                verdict,
                figure.note,
            ]
        )
    return str(tabulate(lines, headers=HEADERS, disable_numparse=True))


def machine(directory: str) -> dict[str, Any]:
    """Return what the figures depend on: processor, memory, versions, file system, load."""
    import platform
    import subprocess

    info = os.statvfs(directory)
    with open("/proc/meminfo", encoding="ascii") as file:
        memory_kib = int(file.readline().split()[1])
    versions = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True).stdout.split()
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "memory_gib": round(memory_kib / 2**20, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "git": versions[2],
        "file_system": _file_system(directory),
        "free_gib": round(info.f_bavail * info.f_frsize / 2**30),
    }


def _processor() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return names[0] if names else os.uname().machine


def _file_system(directory: str) -> str:
    """Return the type of the file system that holds a directory."""
    found = ("", "")
    with open("/proc/mounts", encoding="utf-8") as file:
        for line in file:
            _, point, kind = line.split(" ")[:3]
            if (directory + "/").startswith(point.rstrip("/") + "/") and len(point) >= len(found[0]):
                found = (point, kind)
    return found[1]


def write(directory: str, figures: list[Figure], facts: dict[str, Any]) -> str:
    """Write the figures as JSON, named by the time; return the path."""
    os.makedirs(directory, exist_ok=True)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    path = os.path.join(directory, f"{stamp}.json")
    rows = [{**figure._asdict(), "ratio": figure.ratio, "met": figure.met} for figure in figures]
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"machine": facts, "figures": rows}, file, indent=2, allow_nan=False)
        file.write("\n")
    return path
