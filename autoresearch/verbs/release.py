"""`release`: give the tree of an experiment back."""

from __future__ import annotations

from autoresearch import campaign, knobs, names, recovery, talk


def run() -> int:
    """Remove the experiment's tree; ignored files in it go to its artifacts first."""
    opened = campaign.open_any()
    recovery.finish(opened)
    name = names.check("NAME", knobs.required("NAME", "y"))
    at = opened.where.attempt(name, 1)
    returned = opened.pool().release(name, at.artifacts)
    if returned.moved:
        talk.note(f"moved to {returned.where}: {', '.join(returned.moved[:10])}")
    talk.note(f"the tree of {name} is released; its branch {opened.branch(name)} stays")
    return 0
