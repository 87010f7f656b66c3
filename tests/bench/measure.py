"""Measuring commands in turn (A B A B), so that a noisy machine disturbs both sides alike."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple


class Cost(NamedTuple):
    """What one call cost: wall clock and processor seconds; peak memory in MiB where it was asked for."""

    wall_s: float
    cpu_s: float
    peak_mib: float = 0.0


class Costs(NamedTuple):
    """The costs of many calls of one side."""

    every: list[Cost]

    @property
    def wall_ms(self) -> float:
        """Median wall clock time."""
        return statistics.median(cost.wall_s for cost in self.every) * 1000

    @property
    def best_ms(self) -> float:
        """Shortest wall clock time: what the work costs on a machine that does nothing else."""
        return min(cost.wall_s for cost in self.every) * 1000

    @property
    def cpu_ms(self) -> float:
        """Median processor time, of all processes that the call started and waited for."""
        return statistics.median(cost.cpu_s for cost in self.every) * 1000

    @property
    def peak_mib(self) -> float:
        """Largest memory of any process."""
        return max(cost.peak_mib for cost in self.every)


class Failed(Exception):
    """A measured command did not do its work, so its time means nothing."""


def command(
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    cwd: str | None = None,
    codes: Sequence[int] = (0,),
    output: str = os.devnull,
) -> Cost:
    """Run a command to its end and return what it cost.

    Args:
        argv: the program, looked for in PATH, and its arguments.
        env: its whole environment.
        cwd: its directory.
        codes: the exit codes that mean it did its work.
        output: the file that takes what it prints.

    Raises:
        Failed: it ended with another code.
    """
    begun = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        _become(argv, env, cwd, output)
    _, status, usage = os.wait4(pid, 0)
    wall = time.perf_counter() - begun
    code = os.waitstatus_to_exitcode(status)
    if code not in codes:
        raise Failed(f"{' '.join(argv)[:200]} ended with {code}")
    return Cost(wall, usage.ru_utime + usage.ru_stime)


def _become(argv: Sequence[str], env: Mapping[str, str], cwd: str | None, output: str) -> None:
    try:
        if cwd:
            os.chdir(cwd)
        null = os.open(os.devnull, os.O_RDONLY)
        out = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for fd, target in ((0, null), (1, out), (2, out)):
            os.dup2(target, fd)
        os.execvpe(argv[0], list(argv), dict(env))
    finally:
        os._exit(127)


def turns(sides: Mapping[str, Callable[[], Cost]], count: int, *, warm: int = 1) -> dict[str, Costs]:
    """Call every side `count` times, one after the other in each turn, after `warm` turns that do not count."""
    found: dict[str, list[Cost]] = {name: [] for name in sides}
    for turn in range(count + warm):
        for name, side in sides.items():
            cost = side()
            if turn >= warm:
                found[name].append(cost)
    return {name: Costs(every) for name, every in found.items()}


def said(text: str) -> None:
    """Tell what is measured now; the table alone goes to stdout."""
    print(f"bench: {text}", file=sys.stderr, flush=True)
