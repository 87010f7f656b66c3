"""`mark`: change a verdict; both verdicts and the reason stay in the record."""

from __future__ import annotations

from collections.abc import Sequence

from autoresearch import campaign, knobs, ledger, names, recovery, talk
from autoresearch.conclude import note_line
from autoresearch.errors import Refused, Usage
from autoresearch.git import notes
from autoresearch.rows import Row, places
from autoresearch.sessions import session
from autoresearch.verbs.approve import user

STATUSES = ("keep", "discard", "crash")


def run() -> int:
    """Write the new status with who decided and why; the old one stays in the reason and in the git notes."""
    opened = campaign.open_approved()
    name = names.check("NAME", knobs.required("NAME", "y"))
    status = knobs.required("STATUS", "keep")
    reason = talk.one_line(talk.masked(knobs.required("REASON", "'...'"), campaign.secret_values()), 300)
    if status not in STATUSES:
        raise Usage("STATUS", f"{status!r} is not a verdict", f"one of: {' '.join(STATUSES)}")
    recovery.finish(opened)
    with opened.locked():
        rows = opened.rows()
        place = _place(rows, name, knobs.count("ATTEMPT", 0, least=0))
        old = rows[place]
        if status == "keep" and old.value is None:
            raise Refused("mark", f"{old.id} has no valid metric, so it cannot be kept", "fix it and run it again")
        new = old._replace(
            status=status,
            verdict_by=user(),
            reason=f"{reason} (before: {old.status} by {old.verdict_by}: {old.reason})",
        )
        # The note first: what a kill leaves out of the file, `make ledger` brings from git.
        notes.append(opened.git, new.commit, note_line(opened, new))
        ledger.rewrite(opened.ledger_path, [*rows[:place], new, *rows[place + 1 :]])
    session.checkpoint(opened.where, f"{new.id} marked {status} instead of {old.status}", reason)
    talk.note(f"{new.id}: {old.status} -> {status}: {reason}")
    return 0


def _place(rows: Sequence[Row], name: str, attempt: int) -> int:
    found = [at for at in places(rows, "experiment", name) if attempt in (0, rows[at].number)]
    for place in [*(at for at in reversed(found) if rows[at].status != "crash"), *reversed(found)]:
        return place  # where the newest run failed, the verdict is that of an earlier one
    raise Refused("NAME", f"{name!r} has no such row", "make summarize")
