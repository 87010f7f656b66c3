"""The larger rewrites of a session's notes: the whole picture after a turn of the campaign, long files cut short."""

from __future__ import annotations

import os
import re
import shlex

from autoresearch import clock, paths
from autoresearch.errors import AutoresearchError
from autoresearch.rows import column
from autoresearch.sessions import session, session_files, session_text, situation
from autoresearch.sessions.session_files import Notes, Page
from autoresearch.sessions.situation import Situation

# Kinds of events whose words are kept when the timeline is cut short: what people said, and what they decided.
_KEPT = re.compile(r" \| (goal|steering|decision|blocker|unblocked|assumption|skill|plan made|approved|extended)\b")
_TIME = re.compile(r"- (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d\d:\d\d) \| ([^|]*)")
_SUMMARY = re.compile(r"- (\d{4}-.{21}) to (\d{4}-.{21}) \| (\d+) events summarised")
_KEPT_BYTES = session_files.LARGEST // 4
CHANGED = 200  # hypotheses that files.md lists


RULES = (
    *("target_experiment_count", "campaign_deadline", "per_experiment_timeout", "target_metric"),
    *("plateau", "crashes_in_a_row", "gpu_hours"),
)


def shorten(notes: Notes) -> None:
    """Replace the older half of a long timeline by one line that counts it; what people said is kept word by word."""
    lines = session_files.read(notes.timeline).split("\n")
    head, events = lines[:2], [line for line in lines[2:] if line]
    size, cut = 0, len(events)
    while cut and size + len(events[cut - 1].encode()) < session_files.LARGEST // 2:
        cut -= 1
        size += len(events[cut].encode()) + 1
    old, rest = events[:cut], events[cut:]
    said: list[str] = []
    room = _KEPT_BYTES
    for line in reversed([line for line in old if _KEPT.search(line)]):
        room -= len(line.encode()) + 1
        if room < 0:
            break
        said.insert(0, line)
    text = "\n".join([*head, _counted(old), *said, *rest, ""])
    session_files.swap(notes.timeline, text)


def _counted(old: list[str]) -> str:
    """Return the one line that stands for old events."""
    first = last = ""
    total = 0
    verdicts: dict[str, int] = {}
    for line in old:
        before = _SUMMARY.match(line)
        if before:
            first, last, total = first or before[1], before[2], total + int(before[3])
            for status, count in re.findall(r"(keep|discard|crash) (\d+)", line):
                verdicts[status] = verdicts.get(status, 0) + int(count)
            continue
        found = _TIME.match(line)
        if found:
            first, last, total = first or found[1], found[1], total + 1
            verdict = session.VERDICT.match(found[2])
            if verdict:
                verdicts[verdict[2]] = verdicts.get(verdict[2], 0) + 1
    counts = ", ".join(f"{status} {count}" for status, count in sorted(verdicts.items())) or "no verdict"
    return f"- {first} to {last} | {total} events summarised | verdicts: {counts}; the ledger has each"


def refresh(where: paths.Campaign, notes: Notes, *, subtask: str = "", event_line: str = "") -> Situation | None:
    """Write state, files and hand-over anew from the records and git; the caller holds the notes' lock.

    Returns:
        The picture they were written from, None when there is no plan to look at yet.

    Raises:
        OSError: the disk is full or read-only.
    """
    try:
        now = situation.look(where)
    except AutoresearchError:
        now = None
    secrets = session_text.secrets_of(where)
    page = session_files.parse(session_files.read(notes.state))
    page = session.stamped(page, clock.now())
    if now is not None:
        _write_state(page, now, secrets)
        subtask = subtask or f"{situation.next_action(now)[1]}"
    if subtask:
        page.sections["Current Subtask"] = [f"- {session_text.clean(subtask, secrets)}"]
    if event_line:
        page = session.with_event(page, event_line)
    session_files.swap(notes.state, session_files.render(page, session_files.STATE))
    session_files.sweep(notes)
    if now is not None:
        session_files.swap(notes.handoff, handoff_text(notes, now, secrets, page))
        session_files.swap(notes.files, files_text(notes, now, secrets))
    return now


def _write_state(page: Page, now: Situation, secrets: list[str]) -> None:
    def safe(text: str) -> str:
        return session_text.clean(text, secrets)

    goal = session_text.quoted(now.objective, secrets, 2000)
    page.sections["Goal"] = [f"- {goal or 'none given'}"]
    running = ", ".join(f"{state.id} ({state.waited or state.phase})" for state in now.states)
    status = {
        "as of": f"{session_text.local_time(clock.now())}, {now.standing.line}",
        "approval": now.approval,
        "best": situation.result(now.best),
        "latest result": situation.result(now.rows[-1] if now.rows else None),
        "running": safe(running) or "nothing",
        "failures": safe(situation.failures(now)) or "none",
        "skipped checks": safe("; ".join(situation.skipped(now))) or "none",
        "uncommitted changes": safe(situation.uncommitted(now)),
        "the user's checkout": safe(now.head),
    }
    lines = page.sections.get("Current Status", [])
    page.sections["Current Status"] = session_files.labelled(lines, status)
    made = now.opened.plan
    plan = {
        "stop rule": safe(made.stop) or "none given",
        **dict.fromkeys(RULES, ""),  # a rule that an extension took away
        **{name: safe(value) for name, value in situation.rules(now)},
        "metric": safe(f"{made.metric} ({made.metric_at}), {made.direction}"),
        "branches": f"{made.prefix}/<experiment> from {made.base[:12]}",
        "launcher": made.launcher,
    }
    page.sections["Plan"] = session_files.labelled(page.sections.get("Plan", []), plan)


def handoff_parts(now: Situation, page: Page) -> dict[str, list[str]]:
    """Return the three sections of the hand-over, lines without their list signs, not yet cleaned."""
    name, repository = now.opened.name, now.opened.where.repository
    blockers = [line[2:] for line in page.sections.get("Blockers", []) if line != session_files.NOTHING]
    steering = [line[2:] for line in page.sections.get("Plan", []) if line.startswith(("- steering (", "- decision ("))]
    watch = [f"blocker: {line}" for line in blockers]
    watch += [f"failures: {text}" for text in (situation.failures(now),) if text]
    watch += [f"skipped: {text}" for text in situation.skipped(now)]
    watch.append(f"uncommitted changes: {situation.uncommitted(now)}")
    watch.append("the user's checkout is read, never touched; branches are never moved back or deleted")
    running = ", ".join(state.id for state in now.states) or "nothing"
    return {
        "Resume From Here": [
            f"make resume CAMPAIGN={name} REPO={shlex.quote(repository)} checks these notes against git and the ledger",
            f"objective: {now.objective or 'none given'}",
            f"stop rule: {now.opened.plan.stop or 'none given'}; {now.standing.line}",
            f"branch: {situation.branch(now) or 'none yet'}",
            f"latest result: {situation.result(now.rows[-1] if now.rows else None)}",
            f"best: {situation.result(now.best)}",
            f"running: {running}",
        ],
        "Next Actions": [situation.next_action(now)[1], *steering[-10:]],
        "Watch Outs": watch,
    }


def handoff_text(notes: Notes, now: Situation, secrets: list[str], page: Page, extra: list[str] | None = None) -> str:
    """Return handoff.md; `extra` are further lines to watch out for."""
    parts = handoff_parts(now, page)
    parts["Watch Outs"] = [*(extra or []), *parts["Watch Outs"]]
    sections = {
        name: [f"- {session_text.clean(line, secrets, 1000)}" for line in lines] for name, lines in parts.items()
    }
    head = [f"# Hand-over of session {notes.name}", f"Written: {session_text.local_time(clock.now())}"]
    return session_files.render(Page(head, sections), session_files.HANDOFF)


def files_text(notes: Notes, now: Situation, secrets: list[str]) -> str:
    """Return files.md: what was read for the plan, what each hypothesis changed, what was made where."""
    opened, where = now.opened, now.opened.where
    made = opened.plan
    old = session_files.parse(session_files.read(notes.files))
    inspected = {
        f"- {session_text.clean(path, secrets)}" for path in (made.recipe, *made.code_paths, *made.require) if path
    }
    kept = [line for line in old.sections.get("Inspected", []) if line != session_files.NOTHING]
    sections = {
        "Inspected": [*kept, *sorted(inspected - set(kept))],
        "Changed": [f"- {session_text.clean(line, secrets, 300)}" for line in _changed(now)],
        "Generated": [f"- {path}" for path in _generated(now) if os.path.lexists(path)]
        + [f"- {session_text.clean(where.root, [], 1000)}/<experiment>: logs, checkpoints, artifacts"],
    }
    return session_files.render(Page([f"# Files of session {notes.name}"], sections), session_files.FILES)


def _changed(now: Situation) -> list[str]:
    """Return one line an experiment: what its newest commit changes against its parent, from git in one call."""
    newest = {name: at for at, name in enumerate(column(now.rows, "experiment"))}
    chosen = [now.rows[at] for at in list(newest.values())[-CHANGED:]]
    found = changed_paths(now, [(row.parent_commit, row.commit) for row in chosen])
    out = []
    for row, changed in zip(chosen, found, strict=True):
        shown = ", ".join(changed[:6]) + (f" and {len(changed) - 6} more" if len(changed) > 6 else "")
        out.append(f"{row.experiment}: {shown or 'no file'} (commit {row.commit[:12]})")
    return out


def changed_paths(now: Situation, pairs: list[tuple[str, str]]) -> list[list[str]]:
    """Return the paths that differ between each pair of commits; empty where git cannot tell."""
    asked = [(old, new) for old, new in pairs if old and new and old != new]
    if not asked:
        return [[] for _ in pairs]
    data = "".join(f"{new} {old}\n" for old, new in asked).encode()
    done = now.opened.git.call(*("diff-tree", "--stdin", "-r", "-z", "--name-only", "--no-renames"), input=data)
    commits = {new.encode() for _, new in asked}
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for field in done.out.split(b"\0"):
        if field in commits:  # with -z the commit is a field like its paths, which follow it
            current = found.setdefault(field.decode(), [])
        elif field:
            current.append(os.fsdecode(field))
    return [found.get(new, []) if old != new else [] for old, new in pairs]


def _generated(now: Situation) -> list[str]:
    where = now.opened.where
    return [where.plan, now.opened.ledger_path, where.smoke_ledger, where.summary, where.plot]
