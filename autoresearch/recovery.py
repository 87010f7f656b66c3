"""What a kill -9 or a reboot left behind: found by its state file, ended, and brought to its one row."""

from __future__ import annotations

import os
from collections.abc import Callable

from autoresearch import attempts, conclude, files, launchers, talk
from autoresearch.attempts import State
from autoresearch.campaign import Campaign
from autoresearch.errors import AutoresearchError, TryAgain
from autoresearch.running import keeper, processes
from autoresearch.sessions import session


def is_orphan(opened: Campaign, state: State) -> bool:
    """Return whether nobody looks after an attempt: no supervisor, and no client that is about to start one."""
    if attempts.is_supervised(opened.where, state):
        return False
    return state.phase != "reserved" or not has_client(state)


def is_announced(opened: Campaign, state: State) -> bool:
    """Return whether a living client is about to start the supervisor of an attempt."""
    current = attempts.read(attempts.path(opened.where, state.id))
    return current is not None and current.phase == "reserved" and has_client(current)


def has_client(state: State) -> bool:
    """Return whether the process that reserved an attempt is alive: it starts its supervisor, or waits for its end."""
    try:
        return processes.alive(processes.parse_process(state.client))
    except ValueError:
        return False


def finish(opened: Campaign) -> list[State]:
    """Finish every orphan of the campaign before a verb does anything else; return those that were."""
    for directory in (opened.where.records, opened.where.state):
        files.forget_cut_off(directory)
    done = []
    for state in attempts.every(opened.where):
        if is_orphan(opened, state) and _finish_one(opened, state):
            done.append(state)
            what = "had lost its supervisor and is recorded now"
            if attempts.is_supervised(opened.where, state):
                what = "had lost its supervisor and is followed again"
            elif state.phase == "reserved":
                what = "was cut off before it ran: it has no row, its branch stays"
            talk.note(f"{state.id} {what}")
    return done


def start_detached(opened: Campaign, states: list[State]) -> list[State]:
    """Start the recovery of the orphans among `states` in the background, for a verb that only reads; return them."""
    orphans = [state for state in states if is_orphan(opened, state)]
    for lock in dict.fromkeys(state.lock for state in orphans):
        try:
            _detach(opened, lock)
        except (TryAgain, OSError):
            pass  # somebody else has taken it up, or the disk has no room for its lock: a reader still reads
    return orphans


def _detach(opened: Campaign, lock: str) -> None:
    """Give the orphans of one lock a keeper and a supervisor, which also follows a job that goes on in its cluster."""
    from autoresearch import launch

    def take_up() -> None:
        _take_up(opened, lock, launch.supervise)
        attempts.forget_lock(opened.where, lock)

    path = os.path.join(opened.where.state, lock)
    keeper.detach(take_up, lambda: rescue(opened, lock), lock_path=path, grace_s=launch.grace_s(opened))


def _finish_one(opened: Campaign, state: State) -> bool:
    """Finish one orphan under its own lock; False when somebody else took it up meanwhile."""
    try:
        lock = keeper.take(attempts.lock_file(opened.where, state))
    except TryAgain:
        return False
    following = False
    try:
        current = attempts.read(attempts.path(opened.where, state.id))
        if current is not None:
            following = settle(opened, current)
        if not following:
            attempts.forget_lock(opened.where, state.lock)
    finally:
        os.close(lock)
    if following:
        follow_again(opened, state)
    return True


def rescue(opened: Campaign, lock_name: str) -> None:
    """Finish what a killed supervisor left open; runs in its keeper, which holds the lock."""
    from autoresearch import launch

    _take_up(opened, lock_name, launch.run_one)


def _take_up(opened: Campaign, lock: str, follow: Callable[[Campaign, State], object]) -> None:
    for state in attempts.every(opened.where):
        if state.lock == lock and settle(opened, state):
            follow(opened, state)


def settle(opened: Campaign, state: State) -> bool:
    """Bring an attempt without a supervisor to its end; True when its job goes on elsewhere and is to be followed.

    An attempt that was reserved but never launched leaves no row: its place in the count is free again.
    """
    if state.phase == attempts.WITHDRAWN:
        return False  # it is kept until somebody is told
    if state.phase == "reserved":
        session.checkpoint(opened.where, f"{session.WITHDRAWN} {state.id}", "it was cut off before it ran")
        give_up(opened, state)
        return False
    outcome = conclude.outcome_of(state)
    if outcome is None:
        from autoresearch import launch

        _take_secrets(opened)
        launcher = launchers.load(opened.plan.launcher)
        outcome = launcher.collect(launch.make_job(opened, state), state.job_id)
        if outcome is None:
            return True
        state = attempts.update(opened.where, state._replace(phase="ended", outcome=outcome._asdict()))
    conclude.finish(opened, state, outcome)
    return False


def _take_secrets(opened: Campaign) -> None:
    """Give this process what `.env` holds, as a launch would have it: tokens of an engine or of a metric's store."""
    from autoresearch import campaign, dotenv_file
    from autoresearch.git import Git

    file = os.path.join(opened.where.repository, ".env")
    if "AR_DOTENV_KEYS" in os.environ or not os.path.exists(file):
        return
    try:
        pairs = dotenv_file.load(file)
    except AutoresearchError:
        return  # a broken file is no reason to leave a row unwritten
    os.environ |= {**pairs, "AR_DOTENV_KEYS": " ".join(pairs)}
    opened.git = Git(opened.where.repository, drop_env_keys=campaign.secret_keys())


def give_up(opened: Campaign, state: State) -> None:
    """Forget an attempt that never ran: its trees go back, its place in the count is free again."""
    conclude.give_tree_back(opened, state)
    attempts.remove(opened.where, state)


def follow_again(opened: Campaign, state: State) -> None:
    """Start a supervisor for a job that goes on in its cluster while everything of ours was killed."""
    from autoresearch import launch

    current = attempts.read(attempts.path(opened.where, state.id))
    if current is not None:
        try:
            launch.detach(opened, current)
        except TryAgain:
            pass  # another verb has taken it up in this moment
