"""`experiment`: one idea, from its hypothesis to its row."""

from __future__ import annotations

from autoresearch import experiment, idea
from autoresearch.git.repository import BranchExists, BranchMoved


def run() -> int:
    """Commit the hypothesis, run it, record it; exit 4 when the run is a crash."""
    opened = experiment.open_for_launch()
    draft, publish = idea.draft(opened)
    try:
        return experiment.run_draft(opened, draft, publish)
    except BranchExists:
        # A launch that was killed between its branch and its run has left it: the idea goes on from there.
        return experiment.run_draft(opened, *idea.draft(opened, adopt=True))
    except BranchMoved:
        # The git of a call that was killed has done so a moment ago: what is new is looked at once more.
        return experiment.run_draft(opened, *idea.draft(opened))
