"""Waiting for an attempt: progress while it runs, its result at the end. The attempt does not need the waiter."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from autoresearch import attempts, campaign, confirming, durations, files, ledger, parents, progress, recovery, talk
from autoresearch.attempts import State
from autoresearch.campaign import Campaign
from autoresearch.errors import AutoresearchError, TryAgain
from autoresearch.rows import Row, finite, holding
from autoresearch.rules import standing, verdict
from autoresearch.running import keeper

PROGRESS_S = 300.0
REDRAW_S = 2.0
POLL_S = 0.1


def attached(opened: Campaign, state: State, done: int) -> int:
    """Wait for a chain of runs that this process launched, show its progress, and answer; return the exit code."""
    shown = _Progress(opened, state)
    while not keeper.wait(done, shown.next_in()):
        shown.show()
    shown.clear()
    return answer(opened, state)


@contextmanager
def ctrl_c_ends(opened: Campaign, state: State) -> Iterator[None]:
    """Let Ctrl-C ask an attempt to end, at any moment from before its launch on, while this process goes on waiting.

    Where the caller ignores Ctrl-C (a job in the background of a script), it stays ignored.

    Raises:
        KeyboardInterrupt: all was said after a Ctrl-C; a script around us is not to go on with its next idea.
    """
    asked = False

    def ask(_signum: int, _frame: object) -> None:
        nonlocal asked
        asked = True
        ask_to_stop(opened, state)
        text = f"autoresearch: {state.id} was asked to end; its row follows (a second Ctrl-C changes nothing)\n"
        os.write(2, text.encode())  # print is not to be entered twice

    before = signal.getsignal(signal.SIGINT)
    if before != signal.SIG_IGN:
        signal.signal(signal.SIGINT, ask)
    try:
        yield
    except AutoresearchError as error:  # it was withdrawn before it ran, say: that is said too
        if not asked:
            raise
        print(error, file=sys.stderr, flush=True)
    finally:
        signal.signal(signal.SIGINT, before)
    if asked:
        raise KeyboardInterrupt


def ask_to_stop(opened: Campaign, state: State) -> None:
    """Ask every run of the attempt's chain to end gracefully, and the chain to end with it."""
    if attempts.is_supervised(opened.where, state):  # which takes the request away at its end
        with open(attempts.stop_file(opened.where, state.lock), "w", encoding="utf-8"):
            pass
    for other in attempts.every(opened.where):
        if other.lock == state.lock:
            with open(attempts.stop_file(opened.where, other.id), "w", encoding="utf-8"):
                pass


def until_over(opened: Campaign, state: State, timeout_s: float | None) -> None:
    """Wait for an attempt that another process launched.

    Raises:
        TryAgain: it still runs after `timeout_s`.
    """
    limit = None if timeout_s is None else time.monotonic() + timeout_s
    shown = _Progress(opened, state)
    lock = attempts.lock_file(opened.where, state)
    begun = time.monotonic()
    while files.is_locked(lock) or recovery.is_announced(opened, state):
        if limit is not None and time.monotonic() >= limit:
            shown.clear()
            raise TryAgain("wait", f"{state.id} still runs", f"make wait NAME={state.experiment} again")
        if time.monotonic() - begun >= shown.next_in():
            shown.show()
            begun = time.monotonic()
        time.sleep(POLL_S)
    shown.clear()


class _Progress:
    """What an attached run shows: in place on a terminal, a line every few minutes elsewhere."""

    def __init__(self, opened: Campaign, state: State) -> None:
        self.opened, self.id, self.lock = opened, state.id, state.lock
        self.terminal = sys.stderr.isatty()
        self.every = REDRAW_S if self.terminal else float(opened.plan.setting("PROGRESS_S") or PROGRESS_S)
        self.drawn = False

    def next_in(self) -> float:
        """Return the seconds to the next line."""
        return self.every

    def show(self) -> None:
        """Print where the runs of this chain are."""
        states = [state for state in attempts.every(self.opened.where) if state.lock == self.lock]
        if not states:
            return
        text = progress.line(self.opened, states[-1])
        if self.terminal:
            width = os.get_terminal_size(sys.stderr.fileno()).columns
            print(f"\r\x1b[K{text[: max(20, width - 1)]}", end="", file=sys.stderr, flush=True)
            self.drawn = True
        else:
            talk.note(text)

    def clear(self) -> None:
        """Remove what was drawn in place."""
        if self.drawn:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self.drawn = False


def after_waiting(opened: Campaign, state: State) -> int:
    """Answer for an attempt that `until_over` waited for; what a kill left open is finished first."""
    if not was_withdrawn(opened, state):
        recovery.finish(opened)
    return answer(opened, state)


def was_withdrawn(opened: Campaign, state: State) -> bool:
    """Return whether an attempt was given up before it ran and nobody was told yet."""
    left = attempts.read(attempts.path(opened.where, state.id))
    return left is not None and left.phase == attempts.WITHDRAWN and not attempts.is_supervised(opened.where, left)


def never_ran(opened: Campaign, state: State) -> bool:
    """Return whether an attempt was given up before it ran, whoever was told so."""
    return was_withdrawn(opened, state) or (
        attempts.read(attempts.path(opened.where, state.id)) is None and _row_of(opened, state) is None
    )


def answer(opened: Campaign, state: State) -> int:
    """Say how an attempt's chain ended and where the campaign stands; return 0, or 4 for a crash.

    Raises:
        AutoresearchError: it was withdrawn before it ran, or its row could not be written yet.
    """
    left = attempts.read(attempts.path(opened.where, state.id))
    if left is not None:
        _unfinished(opened, left)
    told = _told_of(opened, state) if state.is_open else None
    if told and left is None and _row_of(opened, state) is None:
        own, later, smoke = told, list[Row](), False  # it was withdrawn: what ran before it stands
    else:
        own, later, smoke = find_row(opened, state)
    if told and state.role == "confirm" and own != told:  # what is asked about is the idea
        own, later = told, [own, *later]
    for line in result_lines(own, smoke=smoke):
        talk.out(line)
    for row in later:
        if row.commit == own.commit or parents.confirms(row) == own.id:
            value = row.metric_value if row.value is not None else row.end_cause
            talk.out("  " + talk.one_line(f"then {row.id}: {value}: {row.status}: {row.reason}", 400))
    if own.verdict_by == "rule" and own.reason.startswith(verdict.UNCONFIRMED):
        pairs = "" if state.pairs == opened.approval.plan.confirm else f" CONFIRM={state.pairs}"
        talk.out(f"not confirmed yet; make experiment NAME={own.experiment} REPEAT=1{pairs} goes on with it")
    if not smoke:
        tell_of_runs_left(opened, state, own, later)
    closing(opened)
    return 4 if own.status == "crash" else 0


def tell_of_runs_left(opened: Campaign, state: State, own: Row, later: list[Row]) -> None:
    """Say how many of the runs that were asked for are not made, and what makes them."""
    left, kind = fresh_runs_left(opened, state, own), "fresh runs"
    if not left:
        left, kind = max(0, state.more - sum(row.commit == own.commit for row in later)), "repeats"
    if left and parents.judged(opened.rows(), own.commit) is None:
        talk.out(f"{left} {kind} are not made: there is no number to repeat yet")
    elif left:
        call = "baseline" if own.experiment == parents.BASELINE else f"experiment NAME={own.experiment}"
        talk.out(f"{left} {kind} are not made; make {call} REPEATS={left} makes them")


def fresh_runs_left(opened: Campaign, state: State, own: Row) -> int:
    """Return how many fresh runs of a keep the plan asks for that a stop, a deadline or a kill has cut off."""
    picked = state.confirms if state.role == "repeat" else own.id if state.role == "idea" and not state.more else ""
    if not picked or state.smoke or own.experiment == parents.BASELINE or opened.plan.repeats < 2:
        return 0
    rows = opened.rows()
    kept = confirming.row_of(rows, picked)
    asked = verdict.remeasurements(verdict.Verdict(kept.status, kept.reason), opened.plan.repeats) if kept else 0
    fresh = [rows[at] for at in holding(rows, "reason", f"{parents.FRESH}{picked}")]
    return max(0, asked - sum(row.status != "crash" and parents.named(row, parents.FRESH) == picked for row in fresh))


def _told_of(opened: Campaign, state: State) -> Row | None:
    """Return the row of the idea that an attempt confirms, or that of the run before it in its chain."""
    rows = opened.rows()
    return confirming.row_of(rows, state.confirms) if state.confirms else parents.latest(rows, state.experiment)


def find_row(opened: Campaign, state: State) -> tuple[Row, list[Row], bool]:
    """Return an attempt's row, those after it, and whether it was filed as plumbing.

    Raises:
        AutoresearchError: it has none.
    """
    found = _row_of(opened, state)
    if found is None:
        if attempts.read(attempts.path(opened.where, state.id)) is None:
            raise AutoresearchError("row", f"{state.id} was given up before it ran; it has none", "make status")
        raise AutoresearchError("row", f"{state.id} ended without one", "make status starts its recovery")
    return found


def _row_of(opened: Campaign, state: State) -> tuple[Row, list[Row], bool] | None:
    log = progress.log_of(opened.where, state)
    for smoke in (state.smoke, True):
        rows = opened.rows(smoke=smoke)
        # Each attempt has a log of its own; it is among the newest.
        at = next((at for at in range(len(rows) - 1, -1, -1) if rows[at].log_path == log), None)
        if at is not None:
            return rows[at], list(rows[at + 1 :]), smoke
    return None


def _unfinished(opened: Campaign, left: State) -> None:
    if left.phase == attempts.WITHDRAWN:
        code = int(left.row[0]) if left.row else 1
        attempts.remove(opened.where, left)
        error = AutoresearchError("withdrawn", left.refusal)
        error.code = code
        raise error
    log = progress.log_of(opened.where, left)
    if left.phase == "concluded" and all(row.log_path != log for row in ledger.read(left.book).rows):
        kept = attempts.path(opened.where, left.id)
        why = f"the row of {left.id} is kept in {kept}; what hindered it: {os.path.dirname(log)}/supervisor.log"
        raise AutoresearchError("row", why, "free some space where a disk is full; the next verb ends it")


def result_lines(row: Row, *, smoke: bool = False) -> list[str]:
    """Return a row as a few lines for a person or an agent."""
    value = f"{row.metric_name} {row.metric_value}" if row.value is not None else f"no valid {row.metric_name}"
    parent = f", parent {row.parent_metric}" if row.parent_metric and row.value is not None else ""
    minutes = finite(row.elapsed_min)
    took = "no time" if minutes is None else durations.format(minutes * 60)
    memory = f", {row.memory_gb} GiB ({row.memory_source})" if row.memory_source else ""
    kind = "smoke run, counts for nothing" if smoke else row.status
    out = [
        f"{row.id}: {value}{parent}: {kind}: {row.reason or row.end_cause}",
        f"  {took}{memory}; end cause {row.end_cause}",
    ]
    out.append(f"  branch {row.branch}, commit {row.commit[:12]}")
    out.append(f"  log {row.log_path}")
    if row.status == "crash":
        out += [f"  | {line}" for line in last_lines(row.log_path)]
    return [talk.one_line(line, 400) if not line.startswith("  ") else "  " + talk.one_line(line, 400) for line in out]


def last_lines(log: str, count: int = 8) -> list[str]:
    """Return the last lines of a log, control characters and secrets removed."""
    from autoresearch import metrics

    hint = metrics.tail_hint(log, count)
    return talk.masked(hint, campaign.secret_values()).splitlines()[-count:]


def closing(opened: Campaign) -> None:
    """Print where the campaign stands, by the rule as it is approved by now, and what to do next."""
    opened.renew_rules()
    rows, states = opened.rows(), attempts.every(opened.where)
    where = standing.line(opened, rows, states)
    talk.out(where.line)
    if where.note:
        talk.out(where.note)
    if where.met and os.path.exists(opened.where.hold):
        talk.out("a Slurm allocation is still held for this campaign; make hold RELEASE=1 gives it back")
    talk.out(f"next: {standing.next_step(opened, rows, states, where.met)[1]}")
