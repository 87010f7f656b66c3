"""Session memory: checkpoints that the tool writes by itself, and the notes of whoever drives it.

`checkpoint` is called where a campaign changes; it never raises, and costs one appended line and one small rewrite.
The objective is the plan's until `set_goal` changes it; steering is added and never replaces it.
"""

from __future__ import annotations

import json
import os
import re

from autoresearch import clock, paths, talk
from autoresearch.errors import AutoresearchError, Usage
from autoresearch.sessions import session_files, session_text
from autoresearch.sessions.session_files import Notes, Page

# The words that the events of a campaign start with. `ID: STATUS, CAUSE` is a verdict.
PLANNED = "plan made"
APPROVED = "approved"
EXTENDED = "extended"
SUMMARIZED = "summarized"
CLEANED = "cleaned"
STOP_MET = "stop condition met"
LAUNCHING = "launching"
LAUNCHED = "launched"
WITHDRAWN = "withdrawn"  # it never ran and has no row
STARTED = "started"
RUNNING = "running"
# After these the whole picture is written anew; none of them is on the way of a run.
_WHOLE = (PLANNED, APPROVED, EXTENDED, SUMMARIZED, CLEANED)
VERDICT = re.compile(r"([a-z0-9._-]+): (keep|discard|crash), ")
_EVENT_LINE = re.compile(r"- \d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d\d:\d\d \| ")
WHOLE_EVERY_S = 60.0
RECENT = 8  # events that session_state.md repeats
KINDS = ("note", "decision", "blocker", "unblocked", "assumption", "skill")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SKILL = os.path.join(ROOT, "skills", "autoresearch", "SKILL.md")


def checkpoint(where: paths.Campaign, event: str, detail: str = "") -> None:
    """Record one event in the campaign's session; without one, a session is started.

    Args:
        where: the campaign's places.
        event: what happened, in a few words; see the constants above.
        detail: why or how. It may hold anything: it is written as one quoted line, secrets masked.

    Never raises for what the disk, the notes or another process do: what cannot be written is left out.
    """
    try:
        secrets = session_text.secrets_of(where)
        _record(where, session_text.event(event, secrets), session_text.quoted(detail, secrets))
    except (OSError, ValueError, AutoresearchError):
        pass


def heartbeat(where: paths.Campaign, text: str) -> None:
    """Record that a run goes on, for its supervisor, at least every 30 minutes; as harmless as `checkpoint`."""
    checkpoint(where, RUNNING, text)


def _record(where: paths.Campaign, event: str, quoted: str) -> None:
    now = clock.now()
    with session_files.locked(where):
        notes = session_files.current(where) or _begin(where, now)
        line = entry(now, event, quoted)
        try:
            session_files.append(notes, line)
            if os.path.getsize(notes.timeline) > session_files.LARGEST:
                from autoresearch.sessions import session_summary

                session_summary.shorten(notes)
        finally:  # a timeline that cannot grow is no reason to leave the state stale
            if event.startswith(_WHOLE) or _is_due(notes, now, event):
                from autoresearch.sessions import session_summary

                session_summary.refresh(where, notes, subtask=_subtask(event), event_line=line)
            else:
                _update_state(notes, now, event, line)


def _is_due(notes: Notes, now: float, event: str) -> bool:
    """Return whether the whole picture is to be written after a verdict or a heartbeat: not more than once a minute."""
    if not (VERDICT.match(event) or event.startswith(RUNNING)):
        return False
    try:
        return now - os.stat(notes.handoff).st_mtime > WHOLE_EVERY_S
    except OSError:
        return True


def entry(now: float, event: str, quoted: str) -> str:
    """Return the timeline's line of an event; both texts are clean already."""
    return f"- {session_text.local_time(now)} | {event}" + (f" | {quoted}" if quoted else "")


def _update_state(notes: Notes, now: float, event: str, line: str) -> None:
    page = session_files.parse(session_files.read(notes.state))
    page = with_event(stamped(page, now), line)
    subtask = _subtask(event)
    if subtask:
        page.sections["Current Subtask"] = [f"- {subtask}"]
    session_files.swap(notes.state, session_files.render(page, session_files.STATE))


def stamped(page: Page, now: float) -> Page:
    """Return a state with the time of its last change."""
    head = [line for line in page.head if not line.startswith("Updated: ")]
    return Page([*head, f"Updated: {session_text.local_time(now)}"], page.sections)


def with_event(page: Page, line: str) -> Page:
    """Return a state whose Current Status ends with this event, the oldest events left out."""
    lines = page.sections.get("Current Status", [])
    events = [old for old in lines if _EVENT_LINE.match(old)]
    facts = [old for old in lines if old not in events and old != session_files.NOTHING]
    page.sections["Current Status"] = [*facts, *[*events, line][-RECENT:]]
    return page


def _subtask(event: str) -> str:
    """Return what is to be done after an event, empty when it changes nothing about that."""
    word, _, rest = event.partition(" ")
    name = rest.split(" ")[0]
    if VERDICT.match(event):
        return "read the verdict, then choose the next idea, unless the stop rule is met"
    if event.startswith(STOP_MET):
        return "the stop rule is met: make summarize, report to the user"
    fixed = {
        PLANNED: "show the plan to the user, then: make approve YES=1 after their yes",
        APPROVED: "make baseline when there is none, else the next idea",
        SUMMARIZED: "report the summary to the user",
    }
    for start, text in fixed.items():
        if event.startswith(start):
            return text
    if word == STARTED:
        return f"edit {name} in its tree, then: make experiment NAME={name}"
    experiment = re.sub(r"\.([0-9]+|smoke-[0-9]+)$", "", name)
    return f"wait for {name}: make wait NAME={experiment}" if word in (LAUNCHING, LAUNCHED) else ""


def _begin(where: paths.Campaign, now: float) -> Notes:
    """Start a session: all four files, with what is known without asking git."""
    notes = session_files.create(where, now)
    head = [
        f"# Session {notes.name}",
        f"Campaign: {where.name}",
        f"Repository: {session_text.clean(where.repository, [], 1000)}",
        f"Started: {session_text.local_time(now)}",
    ]
    goal = session_text.quoted(objective(where), session_text.secrets_of(where), 2000)
    sections = {"Goal": [f"- {goal or 'none given'}"], "Loaded Skills": [f"- autoresearch: {SKILL}"]}
    pages = (
        (notes.state, Page(head, sections), session_files.STATE),
        (notes.files, Page([f"# Files of session {notes.name}"], {}), session_files.FILES),
        (notes.handoff, _first_handoff(notes, where), session_files.HANDOFF),
    )
    for path, page, wanted in pages:
        session_files.swap(path, session_files.render(page, wanted))
    session_files.append(notes, entry(now, f"session started for campaign {where.name}", ""))
    return notes


def _first_handoff(notes: Notes, where: paths.Campaign) -> Page:
    line = f"- make resume CAMPAIGN={where.name}: it checks these notes against git, the ledger and what runs"
    return Page([f"# Hand-over of session {notes.name}"], {"Resume From Here": [line]})


def begin(where: paths.Campaign, *, new: bool = False) -> Notes:
    """Return the campaign's session, made when there is none, or anew with `new`.

    Raises:
        OSError: the disk is full or read-only.
    """
    with session_files.locked(where):
        found = None if new else session_files.current(where)
        return found or _begin(where, clock.now())


def _goal_file(where: paths.Campaign) -> str:
    return os.path.join(where.state, "goal")


def planned_objective(where: paths.Campaign) -> str:
    """Return the objective of the plan: the approved one, else the plan as it is written; empty when unknown."""
    from autoresearch import plan

    try:
        approval = plan.read_approval(where)
        return approval.plan.objective if approval else plan.load(where.plan)[0].objective
    except AutoresearchError:
        return ""


def objective(where: paths.Campaign, planned: str | None = None) -> str:
    """Return the campaign's objective as it is now, as one line without control characters.

    Args:
        where: the campaign's places.
        planned: the plan's objective where the caller has it. A goal that was set over another plan text no longer
            counts: the user approved a new objective since.
    """
    planned = planned_objective(where) if planned is None else planned
    try:
        with open(_goal_file(where), encoding="utf-8") as file:
            kept = json.loads(file.read())
        now = str(kept["goal"]) if kept["planned"] == planned else planned
    except (OSError, ValueError, KeyError, TypeError):
        now = planned
    return talk.one_line(now)


def set_goal(where: paths.Campaign, text: str) -> tuple[str, str]:
    """Change the objective; the old one stays in the timeline. Return the old and the new one.

    Raises:
        OSError: the disk is full or read-only; the old objective stays.
    """
    from autoresearch import files

    secrets = session_text.secrets_of(where)
    new, old = session_text.clean(text, secrets, 2000), objective(where)
    os.makedirs(where.state, mode=0o700, exist_ok=True)
    kept = {"goal": new, "planned": planned_objective(where), "since": clock.stamp(clock.now())}
    files.replace(_goal_file(where), json.dumps(kept).encode())
    quoted = session_text.quoted(new, secrets, 2000)
    _note_line(where, "Goal", "goal", f"{quoted} instead of {session_text.quoted(old, secrets, 2000) or 'none'}")
    return old, new


def note(where: paths.Campaign, kind: str, text: str) -> str:
    """Add a line of steering, a decision, a blocker, an assumption or a skill; return it as it was written.

    Raises:
        Usage: no such kind, an empty text, or a blocker that is not there.
        OSError: the disk is full or read-only.
    """
    if kind not in KINDS:
        raise Usage("KIND", f"{kind!r} is not a kind of note", f"one of: {' '.join(KINDS)}")
    secrets = session_text.secrets_of(where)
    quoted = session_text.quoted(text, secrets, 1000)
    if not quoted:
        raise Usage("TEXT", "it is empty", "write TEXT='...'")
    section = {"blocker": "Blockers", "unblocked": "Blockers", "assumption": "Assumptions", "skill": "Loaded Skills"}
    label = "steering" if kind == "note" else kind
    _note_line(where, section.get(kind, "Plan"), label, quoted)
    return quoted


def _note_line(where: paths.Campaign, section: str, label: str, quoted: str) -> None:
    """Write one line into a section of the state and into the timeline, then the picture around it."""
    from autoresearch.sessions import session_summary

    now = clock.now()
    with session_files.locked(where):
        notes = session_files.current(where) or _begin(where, now)
        page = session_files.parse(session_files.read(notes.state))
        lines = page.sections.get(section, [])
        if label == "unblocked":
            page.sections[section] = _without(lines, quoted.strip('"'))
        elif label == "skill":
            page.sections[section] = [*lines, f"- {quoted.strip(chr(34))}"]
        elif label != "goal":
            page.sections[section] = [*lines, f"- {label} ({session_text.local_time(now)}): {quoted}"]
        session_files.swap(notes.state, session_files.render(stamped(page, now), session_files.STATE))
        line = entry(now, label, quoted)
        session_files.append(notes, line)
        session_summary.refresh(where, notes, event_line=line)


def _without(lines: list[str], words: str) -> list[str]:
    """Return the blockers without those that hold these words."""
    kept = [line for line in lines if words not in line or line == session_files.NOTHING]
    if len(kept) == len(lines):
        known = "; ".join(line[2:] for line in lines if line != session_files.NOTHING) or "there is none"
        raise Usage("TEXT", f"no blocker holds {words!r}", f"the blockers: {known}")
    return kept
