"""The benchmark: `python -m tests.bench RESULTS [--peers] [PART ...]`; table to stdout, JSON below RESULTS."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable

from tests.bench import experiments, logs, measure, results, supervising, verbs
from tests.bench.results import Figure

Part = Callable[[str], list[Figure]]
PARTS: dict[str, Part] = {
    "experiments-50": lambda place: experiments.figures(place, 50, 10, 15),
    "experiments-5000": lambda place: experiments.figures(place, 5000, 5, 15),
    "verbs": lambda place: verbs.figures(place, 11),
    "logs": lambda place: logs.figures(place, 3),
    "supervising": supervising.figures,
    "concurrent": supervising.concurrent,
    "cleaning": supervising.cleaning,
}


def main(argv: list[str]) -> int:
    """Run the parts named, by default all; 1 when something could not be measured (a missed budget is in the table)."""
    directory, chosen = argv[0], [word for word in argv[1:] if word in PARTS] or list(PARTS)
    place = tempfile.mkdtemp(prefix="autoresearch-bench-", dir=os.environ.get("TMPDIR") or "/var/tmp")
    found: list[Figure] = []
    facts = results.machine(place)
    facts["load_before"] = os.getloadavg()
    failed = False
    try:
        for name in chosen:
            os.mkdir(os.path.join(place, name))
            try:
                found += PARTS[name](os.path.join(place, name))
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
