"""Peak memory of everything a run started, sampled at a cost that stays in bounds.

GPU memory comes from NVML (extra `gpu`), joined to the run's processes. Otherwise host memory counts
as PSS, where pages that several processes share count once. PSS is dear (33 ms for a process of
4 GB), so it is read only when the cheap sum of resident sizes has grown.
"""

from __future__ import annotations

import os
import time
from typing import Any

from autoresearch.running import processes

GIB = 2**30
PAGE = os.sysconf("SC_PAGE_SIZE")
SHARE = 0.0015  # of one core, at most, for looking, in the long run
CREDIT_S = 0.03  # what the first looks may cost above that: many runs are short, and grow at their start
FIRST_S, USUAL_S, LONGEST_S = 0.1, 1.0, 60.0
GROWTH = 1.01
DRIVER = "/proc/driver/nvidia/version"


class Sampler:
    """Follows the descendants of one process; `peak_gb` and `source` are the answer so far.

    `source` is `nvml` (GPU memory of the run's processes), `nvml-device` (growth of the devices, where
    NVML's process numbers are those of another namespace), `pss` or `rss` (host memory), or empty.
    """

    def __init__(self, root: int, skip: int, devices: str = "") -> None:
        """Prepare to follow.

        Args:
            root: process whose descendants are the run.
            skip: a descendant that is not (the one that samples).
            devices: GPUs of the run as in `CUDA_VISIBLE_DEVICES`; empty means all.
        """
        self.root, self.skip = root, skip
        self.host_peak, self.host_source = 0, ""
        self.resident_peak = 0
        self.gpu_peak, self.gpu_source = 0, ""
        self.gpu = gpu(devices)
        self.pause, self.spent, self.since = FIRST_S, 0.0, time.perf_counter()

    @property
    def peak_gb(self) -> float:
        """Peak in GiB: of the GPUs where there is one, else of the host."""
        return (self.gpu_peak or self.host_peak) / GIB

    @property
    def source(self) -> str:
        """How the peak was measured."""
        return self.gpu_source if self.gpu_peak else self.host_source

    def sample(self) -> float:
        """Look once; returns the seconds to wait before the next look."""
        wall, used = time.perf_counter(), time.process_time()
        pids = [process.pid for process in processes.descendants(self.root) if process.pid != self.skip]
        self._host(pids)
        if self.gpu is not None:
            self._gpu(set(pids))
        self.spent += max(time.process_time() - used, (time.perf_counter() - wall) / 4)
        self.pause = min(self.pause * 2, USUAL_S)
        debt = (self.spent - CREDIT_S) / SHARE - (time.perf_counter() - self.since)
        return min(max(self.pause, debt), LONGEST_S)

    def _host(self, pids: list[int]) -> None:
        total = sum(map(resident, pids))
        if total <= self.resident_peak * GROWTH:
            return
        self.resident_peak = total
        exact = [pss(pid) for pid in pids]
        whole = sum(resident(pid) if size is None else size for pid, size in zip(pids, exact, strict=True))
        if whole > self.host_peak:
            self.host_peak = whole
            self.host_source = "rss" if None in exact and not any(exact) else "pss"

    def _gpu(self, pids: set[int]) -> None:
        assert self.gpu is not None
        used, source = self.gpu.used_by(pids)
        if used > self.gpu_peak:
            self.gpu_peak, self.gpu_source = used, source


def resident(pid: int) -> int:
    """Return the resident size of a process in bytes; 0 when it has gone."""
    fields = processes.read(f"/proc/{pid}/statm").split()
    return int(fields[1]) * PAGE if len(fields) > 1 else 0


def pss(pid: int) -> int | None:
    """Return the proportional size of a process in bytes; None when it may not be read (or has gone)."""
    text = processes.read(f"/proc/{pid}/smaps_rollup")
    _, found, rest = text.partition(b"\nPss:")
    return int(rest.split()[0]) * 1024 if found else None


class Gpu:
    """NVML, with the devices of one run."""

    def __init__(self, nvml: Any, devices: str) -> None:
        self.nvml = nvml
        nvml.nvmlInit()
        every = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        names = [name.strip() for name in devices.split(",") if name.strip()]
        chosen = [every[int(name)] for name in names if name.isdigit() and int(name) < len(every)]
        self.handles = chosen or every
        self.before = self._used()

    def _used(self) -> int:
        return sum(int(self.nvml.nvmlDeviceGetMemoryInfo(handle).used) for handle in self.handles)

    def _held(self) -> dict[tuple[int, int], int]:
        """(device, pid) -> bytes; one process may be listed both for computing and for graphics."""
        held: dict[tuple[int, int], int] = {}
        for index, handle in enumerate(self.handles):
            for ask in (
                self.nvml.nvmlDeviceGetComputeRunningProcesses,
                self.nvml.nvmlDeviceGetGraphicsRunningProcesses,
            ):
                for entry in ask(handle):
                    key = (index, int(entry.pid))
                    held[key] = max(held.get(key, 0), int(entry.usedGpuMemory or 0))
        return held

    def used_by(self, pids: set[int]) -> tuple[int, str]:
        """Return the bytes that these processes hold on the devices, and how that was found."""
        try:
            held = self._held()
            known = sum(size for (_, pid), size in held.items() if pid in pids)
            if known:
                return known, "nvml"
            if all(os.path.exists(f"/proc/{pid}") for _, pid in held):
                return 0, ""  # the numbers are of this namespace, and none is the run's
            return max(0, self._used() - self.before), "nvml-device"
        except self.nvml.NVMLError:
            return 0, ""


def gpu(devices: str = "") -> Gpu | None:
    """Return NVML ready to be asked; None without a driver or without the extra `gpu`."""
    if not os.path.exists(DRIVER):
        return None
    try:
        import pynvml
    except ImportError:
        return None
    try:
        return Gpu(pynvml, devices)
    except pynvml.NVMLError:
        return None
