"""Peak memory of a tree."""

from __future__ import annotations

import os
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from autoresearch.running import memory, processes
from tests.runs import PYTHON, until

MIB = 2**20


def holding(code: str) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(
        [*PYTHON, "-c", code + "\nprint(1, flush=True)\nimport time; time.sleep(60)"], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()
    return child


def end(child: subprocess.Popen[bytes]) -> None:
    for process in processes.descendants(child.pid):
        processes.send(process, 9)
    child.kill()
    child.wait()
    assert child.stdout is not None
    child.stdout.close()


def sampler() -> memory.Sampler:
    return memory.Sampler(os.getpid(), 0)


def test_pages_that_are_shared_count_once() -> None:
    child = holding(
        "import os\nb = bytearray(80 << 20)\nfor i in range(3):\n  if os.fork() == 0: import time; time.sleep(60)"
    )
    until(lambda: len(processes.descendants(child.pid)) == 3)
    found = sampler()
    found.sample()
    assert found.source == "pss"
    assert 80 < found.peak_gb * 1024 < 150
    assert found.resident_peak > 250 * MIB or found.resident_peak > 80 * MIB
    end(child)


def test_the_peak_stays_when_memory_is_given_back() -> None:
    found = sampler()
    child = holding("b = bytearray(60 << 20)")
    found.sample()
    end(child)
    child = holding("b = bytearray(10 << 20)")
    found.sample()
    end(child)
    assert 60 < found.peak_gb * 1024 < 90


def test_looks_become_rarer_when_they_are_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "time", SimpleNamespace(perf_counter=lambda: 0.0, process_time=lambda: 0.0))
    found = sampler()
    pauses = [found.sample() for _ in range(5)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (2 * memory.FIRST_S, memory.USUAL_S)
    found.spent = 1.0
    assert found.sample() == memory.LONGEST_S


def test_one_process_may_be_left_out() -> None:
    child = holding("b = bytearray(60 << 20)")
    found = memory.Sampler(os.getpid(), child.pid)
    found.sample()
    assert found.peak_gb * 1024 < 60
    end(child)


def test_what_may_not_be_read_counts_as_resident(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "pss", lambda pid: None)
    child = holding("b = bytearray(60 << 20)")
    found = sampler()
    found.sample()
    assert (found.source, found.peak_gb * 1024 > 60) == ("rss", True)
    end(child)


def test_a_process_that_has_gone() -> None:
    assert memory.resident(2**22 + 1) == 0
    assert memory.pss(2**22 + 1) is None


class Nvml:
    """As much of pynvml as is used: two devices, and what runs on them."""

    class NVMLError(Exception):
        pass

    def __init__(self, running: list[tuple[int, int, int | None]]) -> None:
        self.running = running
        self.used = [10 * MIB, 20 * MIB]
        self.broken = False

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(used=self.used[handle])

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:
        if self.broken:
            raise self.NVMLError
        return [SimpleNamespace(pid=pid, usedGpuMemory=size) for device, pid, size in self.running if device == handle]

    nvmlDeviceGetGraphicsRunningProcesses = nvmlDeviceGetComputeRunningProcesses


def test_gpu_memory_is_that_of_the_runs_processes_on_all_devices() -> None:
    nvml = Nvml([(0, os.getpid(), 5 * MIB), (1, os.getpid(), 7 * MIB), (1, 1, 900 * MIB)])
    assert memory.Gpu(nvml, "").used_by({os.getpid()}) == (12 * MIB, "nvml")
    assert memory.Gpu(nvml, "1").used_by({os.getpid()}) == (7 * MIB, "nvml")
    assert memory.Gpu(nvml, "").used_by({2}) == (0, "")


def test_gpu_memory_where_numbers_are_of_another_namespace() -> None:
    nvml = Nvml([(0, 2**22 + 7, None)])
    gpu = memory.Gpu(nvml, "")
    nvml.used[0] += 30 * MIB
    assert gpu.used_by({os.getpid()}) == (30 * MIB, "nvml-device")


def test_a_driver_that_fails_measures_nothing() -> None:
    nvml = Nvml([])
    gpu = memory.Gpu(nvml, "")
    nvml.broken = True
    assert gpu.used_by({1}) == (0, "")


def test_gpu_memory_goes_before_host_memory() -> None:
    child = holding("pass")
    found = sampler()
    found.gpu = memory.Gpu(Nvml([(0, child.pid, 3 * MIB)]), "")
    found.sample()
    assert (found.source, found.peak_gb) == ("nvml", 3 / 1024)
    end(child)


def test_there_is_no_gpu_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "DRIVER", "/no/such/driver")
    assert memory.gpu() is None
