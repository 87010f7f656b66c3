"""The benchmark: `python -m tests.bench RESULTS [--peers] [PART ...]`; table to stdout, JSON below RESULTS."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable

from tests.bench import experiments, logs, measure, peers, results, supervising, trackers, verbs
from tests.bench.results import Figure

Part = Callable[[str, bool], list[Figure]]
PARTS: dict[str, Part] = {
    "experiments": lambda place, peers: [
        *experiments.figures(place, 50, 10, (1000, 10000), 11),
        *experiments.figures(place, 5000, 5, (10000,), 11),
    ],
    "verbs": lambda place, peers: verbs.figures(place, 9),
    "logs": lambda place, peers: logs.figures(place, 3),
    "trackers": lambda place, peers: trackers.figures(place, 3, peers),
    "supervising": lambda place, peers: supervising.figures(place),
    "concurrent": lambda place, peers: supervising.concurrent(place),
    "cleaning": lambda place, peers: supervising.cleaning(place),
}


def main(argv: list[str]) -> int:
    """Run the parts named, by default all; 1 when something could not be measured (a missed budget is in the table)."""
    directory, beside = argv[0], "--peers" in argv
    parts = dict(PARTS)
    if beside:
        peers.install()
        for files in (50, 5000):
            parts[f"peers-{files}"] = lambda place, _, files=files: peers.figures(place, files, 3)
    chosen = [word for word in argv[1:] if word in parts] or list(parts)
    place = tempfile.mkdtemp(prefix="autoresearch-bench-", dir=os.environ.get("TMPDIR") or "/var/tmp")
    found: list[Figure] = []
    facts = results.machine(place)
    facts["load_before"] = os.getloadavg()
    failed = False
    try:
        for name in chosen:
            os.mkdir(os.path.join(place, name))
            try:
                found += parts[name](os.path.join(place, name), beside)
            except measure.Failed as failure:
                failed = True
                found.append(Figure(name, None, note=f"FAILED: {failure}"[:80]))
                measure.said(f"FAILED: {failure}")
            shutil.rmtree(os.path.join(place, name))
    finally:
        shutil.rmtree(place, ignore_errors=True)
    facts["load_after"] = os.getloadavg()
    print(results.table(found))
    print(", ".join(f"{key} {value}" for key, value in facts.items()))
    measure.said(f"written to {results.write(directory, found, facts)}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
