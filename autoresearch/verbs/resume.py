"""`resume`: read the notes, check them against reality, say where to go on."""

from __future__ import annotations

import json
from typing import Any

from autoresearch import campaign, durations, knobs, recovery, talk
from autoresearch.sessions import resuming, session, session_files, session_text, situation

MOST = 8  # lines of any one list
LONGEST = 400  # characters of a line


def run() -> int:
    """Print objective, stop rules, branch, latest result, what runs, next action, skills, and every mismatch."""
    where = campaign.find()
    notes = session_files.current(where)
    now = situation.look(where)
    # Nearly every question that follows goes through all rows.
    now = now._replace(book=now.book._replace(rows=list(now.rows)))
    found = resuming.mismatches(now, notes)
    if notes is None:
        found.append("there were no notes of this campaign; a session is started")
        try:
            notes = session.begin(where)
        except OSError as error:
            found.append(f"no notes can be written: {error}")
    recovery.start_detached(now.opened, now.states)
    facts = session_text.public(resuming.data(now, notes, found), session_text.secrets_of(where))
    session.checkpoint(where, "resumed", f"{len(found)} mismatches" if found else "notes and reality agree")
    if knobs.flag("JSON"):
        talk.out(json.dumps(facts, indent=2, allow_nan=False))
        return 0
    for line in lines(facts):
        talk.out(line if len(line) <= LONGEST else line[: LONGEST - 1] + "…")
    return 0


def lines(facts: dict[str, Any]) -> list[str]:
    """Return what `resume` prints, in the order that matters to whoever comes back."""
    out = [f"objective   {facts['objective'] or 'none given'}"]
    if facts["objective"] != facts["planned_objective"]:
        out.append(f"            changed by goal; the plan says: {facts['planned_objective'] or 'none'}")
    out.append(f"stop rule   {facts['stop_rule'] or 'none given'}: {facts['line']}")
    out += [f"  {name}: {value}" for name, value in facts["stop_values"].items()]
    out.append(f"branch      {facts['branch'] or 'none yet'} (your checkout: {facts['checkout'] or 'unknown'})")
    out.append(f"latest      {_result(facts['latest'])}")
    out.append(f"best        {_result(facts['best'])}")
    out += [f"running     {_running(item)}" for item in facts["running"]] or ["running     nothing"]
    out.append(f"next        {facts['next']}")
    out += _list("skill", facts["skills"])
    out += _list("steering", facts["steering"])
    out += _list("blocker", facts["blockers"])
    out += _list("unrun", [f"{item['experiment']} {item['why']} ({item['commit'][:12]})" for item in facts["unrun"]])
    out.append(f"uncommitted {facts['uncommitted']}")
    out += _list("MISMATCH", facts["mismatches"]) or ["mismatches  none: notes, git, ledger, files and attempts agree"]
    return [*out, f"next: {facts['next']}"]


def _list(label: str, items: list[str]) -> list[str]:
    """Return a list's lines, the newest ones when there are many."""
    kept = [f"{label:<11} {item}" for item in items[-MOST:]]
    if len(items) > MOST:
        kept.insert(0, f"{label:<11} ... {len(items) - MOST} older ones in the notes (JSON=1 shows all)")
    return kept


def _result(found: dict[str, Any] | None) -> str:
    if found is None:
        return "none yet"
    value = "no valid metric" if found["metric"] is None else repr(found["metric"])
    cause = "" if found["end_cause"] in ("ok", "") else f" ({found['end_cause']})"
    return f"{found['experiment']} {value} {found['status']}{cause} on {found['branch']}: {found['reason']}"


def _running(item: dict[str, Any]) -> str:
    took = f" for {durations.format(item['elapsed_s'])}" if item["elapsed_s"] is not None else ""
    return f"{item['id']} {item['phase']}{took}, log {item['log']}"
