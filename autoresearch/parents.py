"""Which commit an idea starts from, and which measured experiment it is judged against."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from autoresearch.campaign import Campaign
from autoresearch.direction import gain
from autoresearch.errors import Refused
from autoresearch.rows import Row, column, places, unescape, values
from autoresearch.rules.statistics import mean
from autoresearch.rules.verdict import UNCONFIRMED

if TYPE_CHECKING:
    from autoresearch.rules.stop import Attempt

BASELINE = "baseline"
# How a row names the attempt whose luck it looks at: before the verdict (CONFIRM), or after a keep (REPEATS).
CONFIRMS, FRESH = "confirming run for ", "fresh run of "


class Parent(NamedTuple):
    """A starting point: its commit, and the experiment that commit belongs to (empty for a bare commit)."""

    commit: str
    experiment: str


def choose(campaign: Campaign, rows: Sequence[Row], wanted: str) -> Parent:
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
    try:
        commit = campaign.git.commit(wanted)
    except Refused as error:
        if error.what != "git":
            raise
        why = f"{wanted!r} is neither an experiment that has run nor a commit"
        raise Refused("PARENT", why, "make summarize lists the experiments") from None
    owner = owner_of(rows, commit)
    return Parent(commit, owner.experiment if owner else "")


def latest(rows: Sequence[Row], experiment: str) -> Row | None:
    """Return the newest row of an experiment, None when it has none."""
    at = places(rows, "experiment", experiment)
    return rows[at[-1]] if at else None


def current(rows: Sequence[Row], experiment: str) -> Row | None:
    """Return the row that holds the verdict of an experiment's newest commit: its newest run may have failed."""
    newest = latest(rows, experiment)
    return newest and (judged(rows, newest.commit) or newest)


def owner_of(rows: Sequence[Row], commit: str) -> Row | None:
    """Return the newest row that was measured at this commit."""
    at = places(rows, "commit", commit)
    return rows[at[-1]] if at else None


def judged(rows: Sequence[Row], commit: str) -> Row | None:
    """Return the newest row of a commit that is not a crash: the one that holds its verdict."""
    at = _measured(rows, commit)
    return rows[at[-1]] if at else None


def best_kept(rows: Sequence[Row], direction: str) -> Row | None:
    """Return the newest row of the kept commit with the best mean of its runs; a commit's newest verdict counts."""
    best = best_runs(rows, direction)
    return rows[best[-1]] if best else None


def best_runs(rows: Sequence[Attempt], direction: str) -> list[int]:
    """Return where the runs are that count for the kept commit with the best mean of them; the first of equal ones.

    A commit is kept when its newest verdict says so. Rows without a commit stand alone.
    """
    commits, statuses = column(rows, "commit"), column(rows, "status")
    kept = {commits[at] for at in places(rows, "status", "keep")}
    of_kept = [at for at, commit in enumerate(commits) if commit in kept]
    numbers = dict(zip(of_kept, values(rows, of_kept), strict=True))
    measured: dict[str, list[int]] = {}
    for at in of_kept:
        if statuses[at] != "crash" and numbers[at] is not None:
            measured.setdefault(commits[at] or f"row {at}", []).append(at)

    def merit(of: list[int]) -> float:
        return gain(mean([number for at in of if (number := numbers[at]) is not None]), 0.0, direction)

    standing = [counted(rows, at) for at in measured.values() if statuses[at[-1]] == "keep"]
    return max(standing, key=merit, default=[])


def values_of(rows: Sequence[Row], commit: str, picked: str = "") -> list[float]:
    """Return the valid values that count for a commit, in ledger order, without the attempt `picked`."""
    return [value for at in counted(rows, _measured(rows, commit), picked) if (value := rows[at].value) is not None]


def _measured(rows: Sequence[Row], commit: str) -> list[int]:
    """Return where the rows of a commit are that did not crash."""
    statuses = column(rows, "status")
    return [at for at in places(rows, "commit", commit) if statuses[at] != "crash"]


def counted(rows: Sequence[Attempt], measured: list[int], picked: str = "") -> list[int]:
    """Return where those rows of one commit are that count: not the runs that led to fresh ones, nor `picked`.

    Such a run was picked for being high; once there are fresh ones it would only overstate the result.
    """
    if len(measured) < 2 and not picked:
        return measured
    left_out = {picked, *(confirms(rows[at]) or named(rows[at], FRESH) for at in measured)}
    left = [at for at in measured if rows[at].id not in left_out]
    return [at for at in left if confirms(rows[at]) or UNCONFIRMED not in rows[at].reason] or left


def confirms(row: Attempt) -> str:
    """Return the id of the attempt that a row's run was to confirm, empty for any other run."""
    return named(row, CONFIRMS)


def named(row: Attempt, words: str) -> str:
    """Return the id of the attempt that a row's reason names behind these words, empty when it does not."""
    _, found, rest = row.reason.partition(words)
    return re.split(r"[^a-z0-9._-]", rest, maxsplit=1)[0] if found else ""


def require_baseline(campaign: Campaign, rows: Sequence[Row]) -> Row:
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
    """Return the override words that the commit of a hypothesis records in its trailer.

    A commit that a person has put on top of it by hand records nothing, and changes nothing of that.
    """
    import json

    form = "--format=%(trailers:key=Overrides,valueonly,unfold)%x00%(trailers:key=Campaign,valueonly)"
    shown = campaign.git.run("show", "-s", "--no-notes", form, commit, "--").decode("utf-8", "replace")
    written, is_ours = (part.strip() for part in shown.split("\0"))
    if not written:
        below = "" if is_ours else hypothesis_below(campaign, commit)
        return recorded_overrides(campaign, below) if below else []
    try:
        return [str(word) for word in json.loads(unescape(written))]
    except ValueError:
        raise Refused(
            "overrides", f"the trailer of {commit[:12]} cannot be read", "start from another parent: PARENT=baseline"
        ) from None


def hypothesis_below(campaign: Campaign, commit: str, experiment: str = "") -> str:
    """Return the nearest hypothesis of this campaign at or below a commit, by its trailers; empty without one.

    Args:
        campaign: an open campaign.
        commit: full hash.
        experiment: whose hypothesis; empty for any.
    """
    wanted = [f"Campaign: {campaign.name}", *([f"Experiment: {experiment}"] if experiment else [])]
    greps = [f"--grep=^{re.escape(line)}$" for line in wanted]
    words = ("log", "-1", "--no-notes", "--first-parent", "--extended-regexp", "--all-match", "--format=%H")
    return str(campaign.git.run(*words, *greps, commit, "--").decode().strip())
