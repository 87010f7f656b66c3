"""`hold`: take one Slurm allocation that experiments run inside, until it is released."""

from __future__ import annotations

import os

from autoresearch import campaign, clock, environment, experiment, files, knobs, launch, talk
from autoresearch.campaign import Campaign
from autoresearch.errors import Refused
from autoresearch.rules import standing
from autoresearch.sessions import session


def run() -> int:
    """Take the allocation, or give it back with RELEASE=1; experiments use it as long as it is there."""
    if knobs.flag("RELEASE"):
        opened = campaign.open_any()  # whatever has become of plan, disk and secrets since
        work = _release
    else:
        opened = experiment.open_for_launch()
        work = _take
    with files.locked(f"{opened.where.hold}-lock"):  # one call at a time
        return work(opened)


def _release(opened: Campaign) -> int:
    from autoresearch.launchers import slurm

    held = launch.allocation(opened) or slurm.forgotten(opened.name, _logs(opened))
    if not held:
        raise Refused("hold", "no allocation is held", "make hold takes one")
    slurm.release(held)
    slurm.let_go(_logs(opened))
    if os.path.exists(opened.where.hold):
        os.unlink(opened.where.hold)
    session.checkpoint(opened.where, f"released the allocation {held}")
    talk.note(f"allocation {held} is released")
    return 0


def _take(opened: Campaign) -> int:
    from autoresearch.launchers import slurm

    if opened.plan.launcher != "slurm":
        raise Refused("hold", f"the launcher is {opened.plan.launcher}", "only LAUNCHER=slurm has allocations to hold")
    held = launch.allocation(opened)
    if held and not slurm.is_over(held):
        raise Refused("hold", f"allocation {held} is held already", "make hold RELEASE=1 gives it back")
    logs = _logs(opened)
    if held:
        talk.note(f"allocation {held} has ended")
        slurm.let_go(logs)
    os.makedirs(logs, mode=0o700, exist_ok=True)
    job_id = slurm.forgotten(opened.name, logs)
    if job_id:
        talk.note(f"allocation {job_id} was asked for by a call that was cut off")
    else:
        left = standing.facts(opened, opened.rows(), []).deadline
        job_id = slurm.hold(
            opened.plan.settings,
            name=opened.name,
            tree=opened.where.repository,
            logs=logs,
            env=environment.inherited(),
            limit_s=max(60.0, left - clock.now()) if left else None,
        )
    files.replace(opened.where.hold, f"{job_id}\n".encode())
    session.checkpoint(opened.where, f"holds the allocation {job_id}")
    talk.out(job_id)
    talk.note("experiments run inside it; give it back with: make hold RELEASE=1")
    return 0


def _logs(opened: Campaign) -> str:
    return os.path.join(opened.where.root, ".hold")
