"""`hold`: take one Slurm allocation that experiments run inside, until it is released."""

from __future__ import annotations

import os

from autoresearch import clock, environment, experiment, files, knobs, launch, talk
from autoresearch.campaign import Campaign
from autoresearch.errors import Refused
from autoresearch.rules import standing
from autoresearch.sessions import session


def run() -> int:
    """Take the allocation, or give it back with RELEASE=1; experiments use it as long as it is there."""
    from autoresearch.launchers import slurm

    opened = experiment.open_for_launch()
    if opened.plan.launcher != "slurm":
        raise Refused("hold", f"the launcher is {opened.plan.launcher}", "only LAUNCHER=slurm has allocations to hold")
    held = launch.held_allocation(opened)
    if knobs.flag("RELEASE"):
        if not held:
            raise Refused("hold", "no allocation is held", "make hold takes one")
        slurm.release(held)
        os.unlink(launch.hold_file(opened))
        session.checkpoint(opened.where, f"released the allocation {held}")
        talk.note(f"allocation {held} is released")
        return 0
    if held:
        raise Refused("hold", f"allocation {held} is held already", "make hold RELEASE=1 gives it back")
    return _take(opened)


def _take(opened: Campaign) -> int:
    from autoresearch.launchers import slurm

    logs = os.path.join(opened.where.root, ".hold")
    os.makedirs(logs, mode=0o700, exist_ok=True)
    left = standing.facts(opened, opened.rows(), []).deadline
    job_id = slurm.hold(
        opened.plan.settings,
        name=opened.name,
        tree=opened.where.repository,
        logs=logs,
        env=environment.inherited(),
        limit_s=max(60.0, left - clock.now()) if left else None,
    )
    files.replace(launch.hold_file(opened), f"{job_id}\n".encode())
    session.checkpoint(opened.where, f"holds the allocation {job_id}")
    talk.out(job_id)
    talk.note("experiments run inside it; give it back with: make hold RELEASE=1")
    return 0
