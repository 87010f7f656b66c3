"""`baseline`: the unmodified recipe on `<prefix>/baseline`, the first row."""

from __future__ import annotations

from autoresearch import experiment


def run() -> int:
    """Run the baseline and record it; exit 4 when the run is a crash."""
    opened = experiment.open_for_launch()
    draft, publish = experiment.baseline_draft(opened)
    return experiment.run_draft(opened, draft, publish)
