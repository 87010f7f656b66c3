"""Two runs of one model never convert its weights at the same time.

NeMo-RL converts a Hugging Face model to Megatron's format once, into a shared directory; a second run that starts
meanwhile reads a half-written checkpoint. So the first run of a model is alone until it ends; when its log shows
that set-up was passed, a marker lets all later runs go at once.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from typing import NamedTuple

from autoresearch import files
from autoresearch.errors import TryAgain
from autoresearch.plan import Plan

LOOK_S = 0.5


class Turn(NamedTuple):
    """The right to be the one run that may convert a model; `fd` is -1 where none is needed."""

    fd: int
    marker: str

    def over(self, setup_s: float) -> None:
        """Give the right back; `setup_s` above 0 says that the run got past its set-up."""
        if self.fd < 0:
            return
        if setup_s > 0:
            with open(self.marker, "w", encoding="ascii"):
                pass
        os.close(self.fd)


def take(plan: Plan, caches: str, *, say: Callable[[str], None], stop: Callable[[], bool]) -> Turn:
    """Wait for the turn of a run on this machine; only a NeMo-RL model that was never set up here needs one.

    Raises:
        TryAgain: the waiting was ended by a request to stop.
    """
    if not plan.model or not os.path.isdir(os.path.join(plan.repository, "nemo_rl")):
        return Turn(-1, "")
    os.makedirs(caches, mode=0o700, exist_ok=True)
    marker = os.path.join(caches, f".converted-{files.digest(plan.model.encode())[:16]}")
    fd = os.open(f"{marker}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    told = False
    while not os.path.exists(marker):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return Turn(fd, marker)
        except BlockingIOError:
            pass
        if not told:
            say(f"waiting for the first run of {plan.model}, which converts its weights")
            told = True
        if stop():
            os.close(fd)
            raise TryAgain("conversion", "the waiting was ended by a request to stop")
        time.sleep(LOOK_S)
    os.close(fd)
    return Turn(-1, marker)
