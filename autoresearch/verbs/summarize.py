"""`summarize`: the table, the best result, the plot, and the written summary in the repository."""

from __future__ import annotations

from collections.abc import Sequence

from autoresearch import attempts, campaign, files, knobs, plot, recovery, report, talk
from autoresearch.campaign import Campaign
from autoresearch.rows import Row
from autoresearch.sessions import session


def run() -> int:
    """Print the summary and write summary.md and progress.svg."""
    opened = campaign.open_any()
    recovery.finish(opened)
    rows = opened.rows()
    facts = report.data(opened, rows, attempts.every(opened.where))
    write(opened, list(rows), facts)
    session.checkpoint(opened.where, session.SUMMARIZED, str(facts["line"]))
    if knobs.flag("JSON"):
        import json

        talk.out(json.dumps({**facts, "results": [row._asdict() for row in rows]}, indent=2, allow_nan=False))
        return 0
    shown = rows if knobs.flag("ALL") else rows[-report.SHOWN :]
    if len(shown) < len(rows):
        talk.out(f"the latest {len(shown)} of {len(rows)} rows; ALL=1 shows all")
    if shown:
        talk.out(talk.table([report.cells(row) for row in shown], report.HEADERS))
    for line in report.lines(facts):
        talk.out(line)
    held = report.held_on_disk(opened, rows)
    if held.sizes:
        some = f" (looked at the newest {held.looked} of {held.of})" if held.looked < held.of else ""
        talk.out("on scratch: " + ", ".join(f"{name} {size}" for name, size in held.sizes[:5]) + some)
    talk.out(f"written: {opened.where.summary} and {opened.where.plot}")
    return 0


def write(opened: Campaign, rows: Sequence[Row], facts: dict[str, object]) -> None:
    """Write the summary and the plot into the repository's records."""
    files.replace(opened.where.summary, report.markdown(opened, rows, facts).encode("utf-8", "replace"))
    drawn = plot.svg(opened.name, opened.plan.metric, rows, opened.plan.direction)
    files.replace(opened.where.plot, drawn.encode("utf-8", "replace"))
