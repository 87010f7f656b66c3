"""`show`: one attempt in full, in at most 60 lines."""

from __future__ import annotations

import json

from autoresearch import attempts, campaign, knobs, names, recovery, showing, talk


def run() -> int:
    """Print hypothesis, changes, command, end cause, metric, memory, time, files, notes and the log's last lines."""
    name = names.check("NAME", knobs.required("NAME", "y"))
    attempt = knobs.count("ATTEMPT", 0, least=0)
    opened = campaign.open_any()
    recovery.start_detached(opened, attempts.every(opened.where))
    row, state = showing.find(opened, name, attempt)
    found = showing.data(opened, row, state)
    if knobs.flag("JSON"):
        talk.out(json.dumps(found, indent=2, allow_nan=False))
        return 0
    for line in showing.lines(found):
        talk.out(line if len(line) <= showing.LONGEST else line[: showing.LONGEST - 1] + "…")
    return 0
