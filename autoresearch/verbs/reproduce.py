"""`reproduce`: run the commit of an experiment again with its recorded command, and compare the two numbers."""

from __future__ import annotations

from autoresearch import confirming, experiment, idea, knobs, names, parents, talk
from autoresearch.errors import Refused
from autoresearch.reservation import Draft
from autoresearch.rows import Row
from autoresearch.rules import judging
from autoresearch.rules.statistics import mean


def run() -> int:
    """Run it as a repeat, print both numbers and their difference; exit 4 when the run is a crash."""
    opened = experiment.open_for_launch()
    name = names.check("NAME", knobs.required("NAME", "y"))
    rows = opened.rows()
    row = parents.latest(rows, name)
    if row is None:
        raise Refused("NAME", f"{name!r} has no row to reproduce", "make summarize lists the experiments")
    if confirming.unconfirmed(rows, row.commit):
        # As a plain repeat it could become a keep that no fresh pair has seen.
        raise Refused("NAME", f"the gain of {name!r} is not confirmed yet", f"make experiment NAME={name} REPEAT=1")
    overrides = [] if name == parents.BASELINE else parents.recorded_overrides(opened, row.commit)
    owner = parents.owner_of(rows, row.parent_commit)
    draft = Draft(
        experiment=name,
        commit=row.commit,
        parent_commit=row.parent_commit,
        parent=owner.experiment if owner else "",
        description=row.description,
        overrides=overrides,
        role="repeat",
        notes=[f"reproduces {row.id}", *idea.protected_changes(opened, row.commit)],
    )
    before = parents.values_of(rows, row.commit)
    code = experiment.run_draft(opened, draft, experiment.nothing)
    if not knobs.flag("DETACH"):
        _compare(before, row, parents.latest(opened.rows(), name))
    return code


def _compare(before: list[float], row: Row, after: Row | None) -> None:
    value = after.value if after else None
    if after is None or value is None or not before:
        talk.out("nothing to compare: one of the two has no valid metric")
        return
    middle = mean(before)
    talk.out(f"before {middle:.12g} ({len(before)} runs), now {value:.12g}, difference {value - middle:+.6g}")
    other = judging.one_place([row._replace(experiment="that"), after._replace(experiment="this")])
    if other:
        talk.out(f"not comparable: {other}")
