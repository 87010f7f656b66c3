"""The helper that touches file systems for a supervisor, so that a hung one can hang only the helper.

It is a fork of the supervisor, looks at stop requests, disks, the log and the event files, measures
memory, and writes one line to a pipe when something is to be known. The supervisor sleeps meanwhile
and keeps the time limit whatever happens here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from autoresearch.errors import Usage
from autoresearch.running import disk, memory, processes

STOP_S = 0.25
TOGETHER_S = 0.05  # what is due so soon is done in one go: waking up is what costs
LOG_S = 1.0
SOONEST_S = 0.1
MAX_FILES = 5000
DEFAULTS = {"DISK_RESERVE_GB": 2.0, "DISK_CHECK_S": 1.0, "LOG_MAX_GB": 20.0, "STALL_MIN": 30.0}


class Limits(NamedTuple):
    """What is watched besides the time. Sizes in GiB, times in seconds."""

    disk_paths: tuple[str, ...] = ()
    disk_reserve_gb: float = DEFAULTS["DISK_RESERVE_GB"]
    disk_check_s: float = DEFAULTS["DISK_CHECK_S"]
    log_max_gb: float = DEFAULTS["LOG_MAX_GB"]  # 0: no limit
    stall_s: float = DEFAULTS["STALL_MIN"] * 60  # 0: not looked for
    stall_stop: bool = False
    growing: tuple[str, ...] = ()  # directories where a run that is not stalled writes
    devices: str = ""


def limits(settings: Mapping[str, str], *, disk_paths: tuple[str, ...], growing: tuple[str, ...]) -> Limits:
    """Read the knobs DISK_RESERVE_GB, DISK_CHECK_S, LOG_MAX_GB, STALL_MIN, STALL_STOP, DISK_PATHS and GPUS.

    Args:
        settings: knobs as text; absent or empty ones have the defaults of `DEFAULTS`.
        disk_paths: what is watched when the knob DISK_PATHS (absolute paths, a line each) is absent.
        growing: directories of event files and checkpoints.

    Raises:
        Usage: a value that is not a number of at least 0.
    """
    number = {name: _number(name, settings.get(name, ""), default) for name, default in DEFAULTS.items()}
    given = tuple(path for path in settings.get("DISK_PATHS", "").split("\n") if path)
    return Limits(
        given or disk_paths,
        number["DISK_RESERVE_GB"],
        max(SOONEST_S, number["DISK_CHECK_S"]),
        number["LOG_MAX_GB"],
        number["STALL_MIN"] * 60,
        settings.get("STALL_STOP", "") not in ("", "0"),
        growing,
        settings.get("GPUS", ""),
    )


def _number(name: str, text: str, default: float) -> float:
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise Usage(name, f"{text!r} is not a number of at least 0", f"{name}={default:g} is the default")
    return value


class Watchdog:
    """The supervisor's end: start, read what it says, retire."""

    def __init__(
        self, limits: Limits, log_path: str, stop_requested: Callable[[], bool], say: Callable[[str], None]
    ) -> None:
        self.reader, writer = os.pipe()
        supervisor = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                processes.close_all((writer,))
                _Rounds(limits, log_path, stop_requested, say, supervisor, writer).run()
            finally:
                os._exit(0)
        os.close(writer)
        os.set_blocking(self.reader, False)
        self._rest = b""

    def news(self) -> list[tuple[str, str]]:
        """Return what was said since the last call, as (word, detail): `stop`, `disk`, `stalled`, `memory`."""
        try:
            while block := os.read(self.reader, 1 << 16):
                self._rest += block
        except BlockingIOError:
            pass
        *lines, self._rest = self._rest.split(b"\n")
        return [(word, detail) for word, _, detail in (line.decode().partition(" ") for line in lines)]

    def retire(self, reaped: bool = False) -> list[tuple[str, str]]:
        """End the helper, unless it has been reaped already, and return its last words."""
        if not reaped:
            processes.retire(self.pid)
        last = self.news()
        os.close(self.reader)
        return last


class _Rounds:
    """The helper's end: a few jobs, each with its own next time."""

    def __init__(
        self,
        limits: Limits,
        log_path: str,
        stop_requested: Callable[[], bool],
        say: Callable[[str], None],
        supervisor: int,
        writer: int,
    ) -> None:
        self.limits, self.log_path = limits, log_path
        self.stop_requested, self.say = stop_requested, say
        self.supervisor, self.writer = supervisor, writer
        self.sampler = memory.Sampler(supervisor, os.getpid(), limits.devices)
        self.reported = ""
        self.free: dict[str, tuple[float, float]] = {}
        self.log_size, self.signature = -1, (0, 0, 0)
        self.moved = time.monotonic()
        self.walked = self.moved
        self.stalled = False

    def run(self) -> None:
        jobs: list[tuple[Callable[[], float], float]] = [
            (job, 0.0) for job in (self._stop, self._disk, self._log, self._memory)
        ]
        while os.getppid() == self.supervisor:
            now = time.monotonic()
            jobs = [(job, now + job() if due <= now + TOGETHER_S else due) for job, due in jobs]
            processes.sleep(max(0.01, min(due for _, due in jobs) - time.monotonic()))

    def _tell(self, word: str, detail: str = "") -> None:
        os.write(self.writer, f"{word} {' '.join(detail.split())}\n".encode())

    def _stop(self) -> float:
        if self.stop_requested():
            self._tell("stop")
            return LOG_S
        return STOP_S

    def _disk(self) -> float:
        """Look at each disk, the sooner the faster it fills."""
        pause = self.limits.disk_check_s
        for path in self.limits.disk_paths:
            space, now = disk.look(path), time.monotonic()
            why = "" if space.trouble else disk.shortage(space, self.limits.disk_reserve_gb)
            if why:
                self._tell("disk", f"{path}: {why}")
            before = self.free.get(path)
            self.free[path] = (space.free_gb, now)
            if before and before[0] > space.free_gb and now > before[1]:
                speed = (before[0] - space.free_gb) / (now - before[1])
                pause = min(pause, max(SOONEST_S, (space.free_gb - self.limits.disk_reserve_gb) / speed / 4))
        return pause

    def _log(self) -> float:
        """Look at the log's size, and when it is silent at the event files."""
        try:
            size = os.stat(self.log_path).st_size
        except OSError:
            size = 0
        most = self.limits.log_max_gb
        if most and size > most * disk.GIB:
            self._tell("disk", f"run.log has grown to {size / disk.GIB:.3g} GB, more than LOG_MAX_GB={most:g}")
        now = time.monotonic()
        if size != self.log_size:
            self.log_size, self.moved = size, now
        elif self.limits.stall_s and now - max(self.moved, self.walked) >= self.limits.stall_s / 10:
            self.walked = now
            signature = _signature(self.limits.growing)
            if signature != self.signature:
                self.signature, self.moved = signature, now
        self._stall(now - self.moved)
        return LOG_S

    def _stall(self, silent_s: float) -> None:
        stalled = bool(self.limits.stall_s) and silent_s >= self.limits.stall_s
        if stalled and self.limits.stall_stop:
            self._tell("stalled", f"no output for {silent_s / 60:.3g} min")
        if stalled != self.stalled:
            self.stalled = stalled
            try:
                self.say(f"stalled: no output for {silent_s / 60:.3g} min" if stalled else "")
            except OSError:
                pass  # a full disk is no reason to stop watching

    def _memory(self) -> float:
        pause = self.sampler.sample()
        found = f"{self.sampler.peak_gb!r} {self.sampler.source}"
        if self.sampler.source and found != self.reported:
            self.reported = found
            self._tell("memory", found)
        return pause


def _signature(directories: tuple[str, ...]) -> tuple[int, int, int]:
    """Return (files, bytes, newest time) below some directories; it changes when something is written there."""
    count = size = newest = 0
    todo = list(directories)
    while todo and count < MAX_FILES:
        try:
            with os.scandir(todo.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
                    seen = entry.stat(follow_symlinks=False)
                    count, size, newest = count + 1, size + seen.st_size, max(newest, seen.st_mtime_ns)
        except OSError:
            continue
    return count, size, newest
