"""`experiment`: one idea, from its hypothesis to its row."""

from __future__ import annotations

from autoresearch import experiment, idea


def run() -> int:
    """Commit the hypothesis, run it, record it; exit 4 when the run is a crash."""
    opened = experiment.open_for_launch()
    draft, publish = idea.draft(opened)
    return experiment.run_draft(opened, draft, publish)
