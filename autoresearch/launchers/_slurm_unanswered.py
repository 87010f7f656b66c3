"""A submission that was not answered: the controller may have taken it or not, and nothing may run twice."""

from __future__ import annotations

import os
import time

from autoresearch.errors import Refused, TryAgain
from autoresearch.launchers import Watch
from autoresearch.launchers._calls import MISSING, Answer
from autoresearch.launchers._script import cancel_by_file, read_state
from autoresearch.launchers._slurm_calls import FULL, find, is_away

SETTLE_S = 10.0  # a controller that answers again has taken by then what had reached it before
LOOK_S = 1.0


def refuse_if_sure(answer: Answer) -> None:
    """Raise what an answer of sbatch means when it surely took nothing; return when it may have.

    Raises:
        Refused: Slurm will not take the job as it is, or is not there.
        TryAgain: the user's queue is full.
    """
    if answer.code == MISSING:
        raise Refused("sbatch", answer.text, "run on a machine that submits to Slurm")
    if answer.code <= 0 or answer.code > 128 or is_away(answer):  # no id, killed, or no answer of the controller
        return
    if FULL.search(answer.err):
        raise TryAgain("sbatch", answer.text, "wait until jobs of yours have ended")
    raise Refused("sbatch", answer.text, "correct SLURM_ARGS")


def known(name: str, state: str) -> str | Answer:
    """The id of a job by its unique name or its own notes; empty when no book knows it, an Answer when none answers."""
    return read_state(state).job or find(name)


def recover(name: str, state: str) -> str | None:
    """The id of an earlier submission; empty when it was not taken, None as long as the controller does not answer."""
    until = time.monotonic() + SETTLE_S
    while True:
        found = known(name, state)
        if isinstance(found, Answer):
            return None
        if found or time.monotonic() >= until:
            return found
        time.sleep(LOOK_S)


def settle(name: str, state: str, why: str, watch: Watch, until: float, site: bool = False) -> str:
    """Wait until the controller answers, then say what became of a submission that was not answered.

    Args:
        name: the job's unique name.
        state: what its script notes, and where it looks whether it was cancelled.
        why: what was said instead of an answer.
        until: epoch seconds after which nobody waits any more.
        site: the script is the site's own and brings a cluster up before ours can end it.
    Returns:
        the job's id, empty when it was not taken.
    Raises:
        TryAgain: the controller is away until the end, or a stop was asked for meanwhile. Should it have taken the
            job, that does not begin.
    """
    since, answered = time.monotonic(), 0.0
    watch.say(f"submitting: {why}")
    while True:
        found = known(name, state)
        now = time.monotonic()
        if isinstance(found, Answer):
            why, answered = found.text, 0.0
        elif found:
            return found
        else:
            answered = answered or now
            if now - answered >= SETTLE_S:
                return ""
        over = "a stop was asked for" if watch.stop_requested() else f"for {now - since:.0f} s now"
        if not answered and (time.time() >= until or watch.stop_requested()):
            cancel_by_file(state)
            job_id = read_state(state).job  # it has begun in this moment: it is followed to its end
            if job_id:
                return job_id
            ends = f"scancel --name={name}" if site else "it ends by itself"
            raise TryAgain("sbatch", f"{why} ({over})", f"the job may have been taken; if so, {ends}")
        watch.say(f"submitting: {why}" if not answered else "submitting: was the job taken?")
        time.sleep(LOOK_S)


def is_withdrawn(state: str) -> bool:
    """Was the submission with that state told not to begin?"""
    return os.path.exists(f"{state}.cancelled")
