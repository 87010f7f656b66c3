"""The one way autoresearch says no: what happened, why, and what to do next.

Exit codes are those of DESIGN section 4: 0 done, 1 unexpected, 2 wrong use, 3 refused with nothing
changed, 4 the run is a crash (its row is written), 75 try again later.
"""

from __future__ import annotations


class AutoresearchError(Exception):
    """An error a user sees as `autoresearch: what: why: what to do`; never a traceback.

    Args:
        what: the thing that failed, a few words.
        why: the reason, with the value or path that caused it.
        fix: the next step, best a command that can be pasted; empty when there is none.
    """

    code = 1

    def __init__(self, what: str, why: str, fix: str = "") -> None:
        super().__init__(what, why, fix)
        self.what, self.why, self.fix = what, why, fix

    def __str__(self) -> str:
        return ": ".join(part for part in ("autoresearch", self.what, self.why, self.fix) if part)


class Usage(AutoresearchError):
    """The call itself is wrong: an unknown knob, a missing or malformed value."""

    code = 2


class Refused(AutoresearchError):
    """A precondition does not hold; nothing was changed."""

    code = 3


class TryAgain(AutoresearchError):
    """A lock or a device is busy; the same call may go through later."""

    code = 75
