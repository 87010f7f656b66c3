"""Which commit an idea starts from, and which measured experiment it is judged against."""

from __future__ import annotations

import re
from typing import NamedTuple

from autoresearch import ledger, names
from autoresearch.campaign import Campaign
from autoresearch.errors import Refused
from autoresearch.ledger import Row

BASELINE = "baseline"
CONFIRMS = "confirming run for "  # how a row names the attempt that it is to confirm


class Parent(NamedTuple):
    """A starting point: its commit, and the experiment that commit belongs to (empty for a bare commit)."""

    commit: str
    experiment: str


def choose(campaign: Campaign, rows: list[Row], wanted: str) -> Parent:
    """Return the parent of a new idea.

    Args:
        campaign: an open campaign with a baseline.
        rows: its ledger.
        wanted: `best`, `baseline`, an experiment, or a commit; empty means the best kept one, else the baseline.

    Raises:
        Refused: there is no such experiment or commit.
    """
    if wanted in ("", "best"):
        best = best_kept(rows, campaign.plan.direction)
        if best is None and wanted == "best":
            raise Refused("PARENT", "no experiment was kept with a valid metric yet", "PARENT=baseline")
        return Parent(best.commit, best.experiment) if best else choose(campaign, rows, BASELINE)
    row = latest(rows, wanted)
    if row:
        return Parent(row.commit, row.experiment)
    if wanted == BASELINE:
        raise Refused("baseline", "there is none yet", "make baseline")
    commit = campaign.git.commit(wanted)
    owner = owner_of(rows, commit)
    return Parent(commit, owner.experiment if owner else "")


def latest(rows: list[Row], experiment: str) -> Row | None:
    """Return the newest row of an experiment, None when it has none."""
    return next((row for row in reversed(rows) if row.experiment == experiment), None)


def owner_of(rows: list[Row], commit: str) -> Row | None:
    """Return the newest row that was measured at this commit."""
    return next((row for row in reversed(rows) if row.commit == commit), None)


def best_kept(rows: list[Row], direction: str) -> Row | None:
    """Return the newest row of the kept commit with the best mean of its runs; a commit's newest verdict counts."""
    by_commit: dict[str, list[Row]] = {}
    for row in rows:
        if row.status != "crash" and row.value is not None:
            by_commit.setdefault(row.commit, []).append(row)
    kept = [measured for measured in by_commit.values() if measured[-1].status == "keep"]
    if not kept:
        return None
    sign = 1.0 if direction == "max" else -1.0
    return max(kept, key=lambda measured: sign * _mean(counted(measured)))[-1]


def values_of(rows: list[Row], commit: str) -> list[float]:
    """Return the valid values that count for a commit, in ledger order."""
    return counted([row for row in rows if row.commit == commit and row.status != "crash"])


def counted(measured: list[Row]) -> list[float]:
    """Return the values of one commit's rows without the run that fresh runs were to confirm.

    That run was picked for being high; once there are fresh ones it would only overstate the result.
    """
    if len(measured) > 1:
        picked = {confirms(row) for row in measured}
        measured = [row for row in measured if row.id not in picked]
    return [value for row in measured if (value := row.value) is not None]


def confirms(row: Row) -> str:
    """Return the id of the attempt that a row's run was to confirm, empty for any other run."""
    _, named, rest = row.reason.partition(CONFIRMS)
    return re.split(r"[^a-z0-9._-]", rest, maxsplit=1)[0] if named else ""


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def require_baseline(campaign: Campaign, rows: list[Row]) -> Row:
    """Return the baseline's row.

    Raises:
        Refused: it has not been run.
    """
    row = latest(rows, BASELINE)
    if row is None:
        raise Refused("baseline", "an experiment needs one to compare with", f"make baseline CAMPAIGN={campaign.name}")
    return row


def overrides_of(campaign: Campaign, parent: Parent) -> list[str]:
    """Return the override words that an idea inherits from the experiment it starts from."""
    if not parent.experiment or parent.experiment == BASELINE:
        return []
    return recorded_overrides(campaign, parent.commit)


def recorded_overrides(campaign: Campaign, commit: str) -> list[str]:
    """Return the override words that the commit of a hypothesis records in its trailer."""
    import json

    form = "--format=%(trailers:key=Overrides,valueonly,unfold)"
    written = campaign.git.run("show", "-s", "--no-notes", form, commit, "--").decode().strip()
    if not written:
        return []
    try:
        return [str(word) for word in json.loads(ledger.unescape(written))]
    except ValueError:
        raise Refused(
            "overrides", f"the trailer of {commit[:12]} cannot be read", "start from another parent: PARENT=baseline"
        ) from None


def check_name(name: str) -> str:
    """Return the name of an experiment that is asked about, `baseline` included."""
    return names.check("NAME", name)
