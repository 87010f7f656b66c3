"""`check-disk`: the space of repository and scratch, and a refusal when it is not enough. Creates nothing."""

from __future__ import annotations

from autoresearch import campaign, knobs, paths, talk
from autoresearch.errors import AutoresearchError


def run() -> int:
    """Print one line a disk, refuse below MIN_FREE_GB or MIN_FREE_PCT."""
    from autoresearch.running import disk

    least_gb, least_pct = knobs.number("MIN_FREE_GB", 10.0), knobs.number("MIN_FREE_PCT", 5.0)
    top = campaign.repository()
    scratch, source = _scratch(top)
    rows = [
        [label, space.path, f"{space.free_gb:.1f}", f"{space.free_pct:.1f}", f"{space.inodes_pct:.1f}", space.trouble]
        for label, space in zip(("repository", "scratch"), disk.spaces([top, scratch]), strict=True)
    ]
    talk.out(talk.table(rows, ["disk", "path", "free GB", "free %", "free inodes %", ""]))
    talk.out(f"scratch is {scratch}: {source}")
    disk.check([top, scratch], least_gb, least_pct)
    return 0


def _scratch(top: str) -> tuple[str, str]:
    """Return the scratch root that the campaign, the SCRATCH knob or the machine gives."""
    wanted = knobs.text("SCRATCH")
    if not wanted:
        try:
            where = campaign.find()
        except AutoresearchError:
            if knobs.get("CAMPAIGN"):
                raise
        else:
            return paths.scratch_root(top, where.scratch)[0], f"recorded in the plan of {where.name}"
    return paths.scratch_root(top, wanted)
