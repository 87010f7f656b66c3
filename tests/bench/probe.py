"""Reads one metric in a process of its own and prints what that cost: `probe.py last|all METRIC LOG LOGS`.

Started by the benchmark with the isolated Python that the verbs use. The time counts from before the readers are
imported; Python's own start is in the figures of the verbs.
"""

from __future__ import annotations

import json
import resource
import sys
import time


def peak_mib() -> float:
    """Return the peak memory of this program; ru_maxrss would include what its parent had when it forked."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) / 1024


def main() -> None:
    """Read, then print seconds, processor seconds, peak memory in MiB, the last value and the number of values."""
    kind, metric, log, logs = sys.argv[1:]
    begun, used = time.perf_counter(), time.process_time()
    from autoresearch import metrics

    spec, where = metrics.Spec(metric, "max"), metrics.Where(log, logs, logs, logs, logs)
    if kind == "last":
        reading = metrics.read(spec, where, whole=False)
        value, count = reading.value, reading.n_values
    else:
        points = metrics.locate(spec, where, True)
        value, count = (points.values[-1] if len(points.values) else None), len(points.values)
    wall, cpu = time.perf_counter() - begun, time.process_time() - used
    # A reader may have had a child at work beside it; what both share is counted twice.
    child = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu, peak = cpu + child.ru_utime + child.ru_stime, peak_mib() + child.ru_maxrss / 1024
    print(json.dumps({"wall_s": wall, "cpu_s": cpu, "peak_mib": peak, "value": value, "count": count}))


if __name__ == "__main__":
    main()
