"""Coming back to a campaign: what the notes say is checked against git, the ledger, files and live attempts."""

from __future__ import annotations

import os
import re

from autoresearch import attempts, campaign, clock, ledger, parents
from autoresearch.errors import AutoresearchError
from autoresearch.rows import Row
from autoresearch.sessions import session, session_files, situation
from autoresearch.sessions.session_files import Notes
from autoresearch.sessions.situation import Situation

FILES_LOOKED_AT = 200  # of the newest rows: a stat each
_EVENT = re.compile(r"- (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d\d:\d\d) \| ([^|]*?)(?: \| (.*))?$")
_MARK = re.compile(r"([a-z0-9._-]+) marked (keep|discard|crash)")
_LAUNCH = re.compile(r"(?:launching|launched) ([a-z0-9._-]+)")
_WITHDRAWN = re.compile(r"withdrawn ([a-z0-9._-]+)")


def mismatches(now: Situation, notes: Notes | None) -> list[str]:
    """Return every point where the records and the notes disagree with each other or with git; one line each."""
    found = [*_plan(now), *_branches(now), *_ledger(now), *_files(now), *_live(now)]
    if notes is not None:
        found += [*_state(now, notes), *_timeline(now, notes)]
    return found


def _plan(now: Situation) -> list[str]:
    if now.approval == "changed":
        return ["plan.toml differs from the text that was approved: nothing launches before a new approval"]
    return []


def _branches(now: Situation) -> list[str]:
    """Compare the ledger's branches and commits with git, in three calls whatever the number of rows."""
    if not now.rows:
        return []
    try:
        tips = branch_tips(now)
        gone = missing_commits(now, [row.commit for row in now.rows])
    except AutoresearchError as error:
        return [f"git could not be asked: {error}"]
    out = []
    for name in dict.fromkeys(row.branch for row in now.rows):
        if name not in tips:
            out.append(f"branch {name} of the ledger is not in git")
    out += [
        f"row {row.index} ({row.id}): its commit {row.commit[:12]} is not in git"
        for row in now.rows
        if row.commit in gone
    ]
    try:
        loose = unreachable(now, [row.commit for row in now.rows if row.commit not in gone], list(tips.values()))
    except AutoresearchError as error:
        return [*out, f"git could not be asked: {error}"]
    out += [
        f"row {row.index} ({row.id}): its commit {row.commit[:12]} is on no branch of the campaign"
        for row in now.rows
        if row.commit in loose
    ]
    return out


def branch_tips(now: Situation) -> dict[str, str]:
    """Return the campaign's branches and the commits they point to."""
    form = "--format=%(objectname) %(refname)"
    out = now.opened.git.run("for-each-ref", form, f"refs/heads/{now.opened.plan.prefix}/")
    pairs = (line.split(" ", 1) for line in out.decode("utf-8", "replace").splitlines())
    return {ref.removeprefix("refs/heads/"): commit for commit, ref in pairs}


def missing_commits(now: Situation, commits: list[str]) -> set[str]:
    """Return those of `commits` that git does not have."""
    wanted = list(dict.fromkeys(commit for commit in commits if commit))
    out = now.opened.git.run("cat-file", "--batch-check", input="".join(f"{commit}\n" for commit in wanted).encode())
    return {line.split(b" ")[0].decode() for line in out.splitlines() if line.endswith(b" missing")}


def unreachable(now: Situation, commits: list[str], tips: list[str]) -> set[str]:
    """Return those of `commits` that no tip reaches."""
    wanted = list(dict.fromkeys(commits))
    if not wanted:
        return set()
    lines = [*wanted, *(f"^{tip}" for tip in dict.fromkeys(tips))]
    out = now.opened.git.run("rev-list", "--stdin", input="".join(f"{line}\n" for line in lines).encode())
    return set(out.decode().split()) & set(wanted)


def unrun(now: Situation) -> list[dict[str, str]]:
    """Return the branches with something that has not run: started and never run, or a fix after the last row."""
    newest = {row.branch: row for row in now.rows}
    busy = {state.branch for state in now.states}
    prefix = f"{now.opened.plan.prefix}/"
    out = []
    for name, tip in branch_tips(now).items():
        row = newest.get(name)
        if name in busy or (row is not None and row.commit == tip):
            continue
        why = "never ran" if row is None else "has a newer commit than its last row"
        out.append({"experiment": name.removeprefix(prefix), "branch": name, "commit": tip, "why": why})
    return out


def _ledger(now: Situation) -> list[str]:
    out = []
    if now.book.torn:
        out.append(f"the ledger has torn lines, skipped: {', '.join(map(str, now.book.torn[:10]))}")
    indices = [row.index for row in now.rows]
    if indices != [str(number) for number in range(1, len(indices) + 1)]:
        out.append("the ledger's index does not count from 1 without gaps: rows were removed or edited by hand")
    seen: set[tuple[str, str]] = set()
    for row in now.rows:
        key = (row.experiment, row.attempt)
        if key in seen:
            out.append(f"the ledger has two rows of {row.id}")
        seen.add(key)
    return out


def _files(now: Situation) -> list[str]:
    where = now.opened.where
    try:
        campaign.check_marker(where)
    except AutoresearchError as error:  # the repository was moved, or another one uses the name
        return [f"{error.why}: {error.fix}"]
    if now.rows and not os.path.isdir(where.root):
        return [f"scratch {where.root} is gone: logs and checkpoints with it; the ledger and the commits stay"]
    gone = [row.id for row in now.rows[-FILES_LOOKED_AT:] if row.log_path and not os.path.exists(row.log_path)]
    if not gone:
        return []
    shown = ", ".join(gone[:5]) + (f" and {len(gone) - 5} more" if len(gone) > 5 else "")
    return [f"the logs of {len(gone)} rows are gone (cleaned up?): {shown}"]


def _live(now: Situation) -> list[str]:
    out = [f"{state.id} has lost its supervisor: its recovery was started" for state in now.orphans]
    for state in now.states:
        if os.path.exists(attempts.stop_file(now.opened.where, state.id)):
            out.append(f"{state.id} was asked to stop and has not ended yet")
    return out


def _state(now: Situation, notes: Notes) -> list[str]:
    """Compare session_state.md with the records."""
    from autoresearch.sessions import session_text

    page = session_files.parse(session_files.read(notes.state))
    out = [f"{notes.state} has no section {name!r}" for name in session_files.STATE if name not in page.sections]
    secrets = session_text.secrets_of(now.opened.where)
    goal = session_text.quoted(now.objective, secrets, 2000) or "none given"
    lines = page.sections.get("Goal", [])
    if lines and lines != [f"- {goal}"]:
        out.append("the Goal in the notes is not the campaign's objective; it changes only by: make goal TEXT='...'")
    noted = {line[2:].partition(": ")[0]: line.partition(": ")[2] for line in page.sections.get("Plan", [])}
    if "stop rule" in noted and noted["stop rule"] != (
        session_text.clean(now.opened.plan.stop, secrets) or "none given"
    ):
        out.append("the stop rule in the notes is not the approved one; the approved one counts")
    return out


class _Noted:
    """What a timeline says of the attempts it names."""

    def __init__(self, text: str) -> None:
        self.verdicts: dict[str, str] = {}
        self.launched: set[str] = set()
        self.first = ""
        self.shortened = False
        for line in text.split("\n"):
            found = _EVENT.match(line)
            if not found:
                self.shortened = self.shortened or " events summarised | " in line
                continue
            self.first = self.first or found[1]
            self._event(found[2])

    def _event(self, event: str) -> None:
        verdict, mark, launch = session.VERDICT.match(event), _MARK.match(event), _LAUNCH.match(event)
        if verdict:
            self.verdicts[verdict[1]] = verdict[2]
            self.launched.discard(verdict[1])
        elif mark:
            self.verdicts[mark[1]] = mark[2]
        elif launch:
            self.launched.add(launch[1])
        elif withdrawn := _WITHDRAWN.match(event):
            self.launched.discard(withdrawn[1])


def _timeline(now: Situation, notes: Notes) -> list[str]:
    """Compare the timeline's launches and verdicts with the rows and the attempts under way."""
    noted = _Noted(session_files.read(notes.timeline))
    rows = {row.id: row for row in now.rows}
    smoke = {row.id for row in ledger.read(now.opened.where.smoke_ledger).rows}
    live = {state.id for state in now.states}
    out = []
    for attempt, status in noted.verdicts.items():
        row = rows.get(attempt)
        if row is None:
            if attempt not in smoke:
                out.append(f"the notes record {attempt} as {status}, the ledger has no row of it")
        elif row.status != status and row.verdict_by == "rule":
            out.append(f"the notes record {attempt} as {status}, the ledger says {row.status}")
    for attempt in sorted(noted.launched - live - set(rows) - smoke):
        if not re.search(r"\.smoke-[0-9]+$", attempt):
            out.append(f"the notes say {attempt} was launched: it neither runs nor has a row")
    begun = _epoch(noted.first)
    if begun is not None and not noted.shortened:
        missed = [row.id for row in now.rows if _after(row, begun) and row.id not in noted.verdicts]
        if missed:
            out.append(f"the notes miss {len(missed)} rows of the ledger: {', '.join(missed[:5])}")
    return out


def _epoch(text: str) -> float | None:
    """Return the epoch seconds of a local time with its offset, None when it is none."""
    import calendar
    import time

    try:
        moment = time.strptime(text, "%Y-%m-%d %H:%M:%S %z")
    except ValueError:
        return None
    return float(calendar.timegm(moment) - (moment.tm_gmtoff or 0))


def _after(row: Row, begun: float) -> bool:
    """Return whether a row was written in this session; a minute of doubt goes to the notes."""
    finished = clock.epoch(row.finished_at)
    return finished is not None and finished > begun + 60


def data(now: Situation, notes: Notes | None, found: list[str]) -> dict[str, object]:
    """Return what `resume` says as data; the schema is in docs/json.md."""
    from autoresearch.verbs import status

    opened = now.opened
    page = session_files.parse(session_files.read(notes.state)) if notes else session_files.Page([], {})
    plan = page.sections.get("Plan", [])
    action, line = situation.next_action(now)
    return {
        "campaign": opened.name,
        "repository": opened.where.repository,
        "objective": now.objective,
        "planned_objective": opened.plan.objective,
        "approval": now.approval,
        "metric": opened.plan.metric,
        "direction": opened.plan.direction,
        "stop_rule": opened.plan.stop,
        "stop_values": dict(situation.rules(now)),
        "stop_condition_met": now.standing.met,
        "attempted": now.standing.attempted,
        "target": now.standing.target,
        "remaining_s": now.standing.remaining_s,
        "line": now.standing.line,
        "branch": situation.branch(now),
        "checkout": now.head,
        "latest": status.result(now.rows[-1] if now.rows else None),
        "best": status.measured(now.rows, now.best),
        "baseline": status.measured(now.rows, parents.latest(now.rows, parents.BASELINE)),
        "running": [status.running(opened, state) for state in now.states],
        "tried": list(dict.fromkeys([*(row.experiment for row in now.rows), *(s.experiment for s in now.states)])),
        "unrun": _unrun_or_none(now),
        "action": action,
        "next": line,
        "skills": [line[2:] for line in page.sections.get("Loaded Skills", []) if line.startswith("- ")]
        or [f"autoresearch: {session.SKILL}"],
        "steering": [line[2:] for line in plan if line.startswith(("- steering (", "- decision ("))],
        "assumptions": _items(page, "Assumptions"),
        "blockers": _items(page, "Blockers"),
        "uncommitted": situation.uncommitted(now),
        "session": notes.directory if notes else None,
        "mismatches": found,
    }


def _items(page: session_files.Page, section: str) -> list[str]:
    return [line[2:] for line in page.sections.get(section, []) if line != session_files.NOTHING]


def _unrun_or_none(now: Situation) -> list[dict[str, str]]:
    try:
        return unrun(now)
    except AutoresearchError:
        return []
