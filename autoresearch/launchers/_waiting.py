"""Following a job on an engine that owns it: one loop for Slurm, Ray and Kubernetes.

An engine only looks and ends; what a look means for the attempt (cap, deadline, stop requests, vanished
jobs, an engine that is away) is decided here, once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from autoresearch.launchers import Job, Outcome, Watch
from autoresearch.running.endcause import Evidence, classify, tail

SLICE_S = 0.5  # a stop request is seen this soon, however slow the polling
TOO_LATE = "the deadline leaves no room for it"
ROOM_S = 2.0  # disks are looked at this often while the run goes on
AGAIN_S = 15.0  # a request to end that had no effect is repeated


class Sight(NamedTuple):
    """One look at a job. Times are epoch seconds.

    `phase`: `pending` (queued), `starting` (its machines come up, the run itself has not begun), `running`,
    `ended`, `gone` (the engine answers and does not know it), `away` (the engine does not answer; the times are
    then what the run itself noted).
    `cause` of an ended job is a word of DESIGN section 2, or `cancelled` when somebody ended it.
    """

    phase: str
    detail: str = ""
    cause: str = ""
    exit_code: int | None = None
    started_at: float | None = None
    finished_at: float | None = None
    host: str = ""
    retry: bool = False  # the engine failed before the run began: worth one more try


class Engine(Protocol):
    """What the loop needs of an engine, for one job."""

    def look(self) -> Sight:
        """Say how the job is now; never raises for an engine that does not answer."""
        ...

    def end(self, force: bool) -> None:
        """Ask the engine to end the job, by KILL when `force`; harmless when it has ended."""
        ...


class Limits(NamedTuple):
    """How patient to be, in seconds."""

    gone_s: float = 60.0  # an unknown job is `lost` after this; accounting lags behind
    away_s: float = 6 * 3600.0  # an engine that stays silent this long makes it `lost`
    queue_s: float | None = None  # a job that has not begun after this is given up
    startup_s: float | None = None  # machines that have not come up after this are given up
    first_poll_s: float = 0.3
    last_poll_s: float = 8.0


class Clock(NamedTuple):
    """The clocks of the loop, so that tests can bring their own."""

    now: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class Ended(NamedTuple):
    """The end of following: the outcome, and whether the engine is worth one more try."""

    outcome: Outcome
    retry: bool = False


def cause_of(exit_code: int) -> str:
    """The end cause of a script's exit code; 128+n is the shell's way of saying signal n."""
    if exit_code == 0:
        return "ok"
    return f"signal {exit_code - 128}" if 128 < exit_code <= 192 else f"exit {exit_code}"


class Following:
    """The state of following one job; `run` is the loop.

    Args:
        submitted_at: when the job was handed over (epoch seconds): tells a cap that is only "what is left until
            the deadline" from one that the plan gives, and bounds what a node's clock can claim.
    """

    def __init__(
        self, job: Job, engine: Engine, watch: Watch, limits: Limits, submitted_at: float, clock: Clock
    ) -> None:
        self.job, self.engine, self.watch, self.limits = job, engine, watch, limits
        self.submitted_at, self.clock = submitted_at, clock
        self.want = self.why = self.said = ""
        self.asked_at: float | None = None
        self.repeat_at = self.room_at = 0.0
        self.since: dict[str, float] = {}
        self.run_since: float | None = None  # monotonic
        self.told_start: float | None = None  # what the last look said, by whichever clock
        self.ran_before = 0.0  # seconds of earlier starts of a requeued job
        self.starts = 0

    def run(self) -> Ended:
        """Look until the job has ended, enforcing what the job allows; returns how it ended."""
        pause = self.limits.first_poll_s
        state = ("", "")
        while True:
            sight = self.engine.look()
            if sight.phase != state[0]:
                self.since = {sight.phase: self.clock.monotonic()}
            ended = self._step(sight)
            if ended:
                return ended
            if (sight.phase, self.want) != state:  # something happens: look closely again
                state, pause = (sight.phase, self.want), self.limits.first_poll_s
            self._sleep(pause)
            pause = min(pause * 1.3, self.limits.last_poll_s)

    def _step(self, sight: Sight) -> Ended | None:
        if sight.phase == "ended":
            return self._conclude(sight)
        if sight.phase == "gone":
            return self._missing(sight)
        if sight.phase == "away":
            self._unseen(sight)
        elif sight.phase == "running":
            self._running(sight)
        else:
            self._waiting(sight)
        if not self.want and self.watch.stop_requested():
            self._end("stopped", "stop was asked for")
        self._insist()
        self._say(sight.phase, sight.detail)
        return self._missing(sight) if sight.phase == "away" else None

    def _say(self, phase: str, detail: str) -> None:
        text = f"{phase}: {detail}" if detail else phase
        if self.want:
            text = f"ending ({self.want}); {text}"
        if text != self.said:
            self.said = text
            self.watch.say(text)

    def _missing(self, sight: Sight) -> Ended | None:
        if sight.phase == "gone" and self.want:  # ended as we asked and forgotten already
            return self._conclude(sight._replace(cause="cancelled", detail=""))
        self._say(sight.phase, sight.detail)
        bound = self.limits.gone_s if sight.phase == "gone" else self.limits.away_s
        if self._lasted(sight.phase) < bound:
            return None
        self.engine.end(True)  # whatever it is, it shall not go on unwatched
        word = "the engine does not know the job" if sight.phase == "gone" else "the engine does not answer"
        reason = f"{word} since {bound:.0f} s" + (f": {sight.detail}" if sight.detail else "")
        return self._conclude(sight._replace(cause="lost", detail=reason))

    def _unseen(self, sight: Sight) -> None:
        """Keep cap and deadline while the engine does not answer. Notes may be of the run before a requeue."""
        if self.run_since is not None or (sight.started_at is not None and self.starts == 0):
            if sight.finished_at is None:  # a run that is over uses up no more of its cap
                known = sight.started_at if self.run_since is None else self.told_start
                self._running(sight._replace(started_at=known))
        elif not self.want and not self._fits():
            self._end("stopped", f"cancelled unseen: {TOO_LATE}")

    def _running(self, sight: Sight) -> None:
        now = self.clock.now()
        begun = min(max(sight.started_at or now, self.submitted_at), now)
        if self.run_since is None:
            self.run_since = self.clock.monotonic() - (now - begun)
            self.starts += 1
            self.watch.started(begun)
        elif sight.started_at != self.told_start:  # the engine counted its own start-up, the script does not
            self.run_since = max(self.run_since, self.clock.monotonic() - (now - begun))
        self.told_start = sight.started_at
        cap = self._cap()
        if cap is not None and not self.want and self._ran() >= cap:
            self._end("timeout", f"over its cap of {cap:.0f} s")

    def _waiting(self, sight: Sight) -> None:
        if self.run_since is not None:  # it ran and was requeued
            self.ran_before += self._ran()
            self.run_since = None
            self.watch.started(0.0)
        if self.want:
            return
        waited, limits = self._lasted(sight.phase), self.limits
        if not self._fits():
            self._end("stopped", f"cancelled while {sight.phase}: {TOO_LATE}")
        elif sight.phase == "starting":
            if limits.startup_s is not None and waited >= limits.startup_s:
                self._end("launcher", f"no run after {waited:.0f} s of start-up")
        elif limits.queue_s is not None and waited >= limits.queue_s:
            self._end("launcher", f"pending for {waited:.0f} s ({sight.detail or 'no reason given'})")

    def _short_of_room(self) -> str:
        """Why the run has to end before a disk is full that it shares with this machine, empty while there is room."""
        now, settings = self.clock.monotonic(), self.job.settings
        if now < self.room_at or not settings.get("DISK_PATHS"):
            return ""
        self.room_at = now + ROOM_S
        from autoresearch.running import disk, watchdog

        limits = watchdog.limits(settings, disk_paths=(), growing=())
        for space in disk.spaces(limits.disk_paths):
            why = "" if space.trouble else disk.shortage(space, limits.disk_reserve_gb)
            if why:
                return f"{space.path}: {why}"
        return ""

    def _fits(self) -> bool:
        job = self.job
        if job.deadline is None:
            return True
        needs = 0.0 if job.cap_s is None or self._cap_is_rest() else job.cap_s
        return self.clock.now() + needs < job.deadline

    def _cap_is_rest(self) -> bool:
        job = self.job
        return (
            job.cap_s is not None and job.deadline is not None and job.deadline - self.submitted_at <= job.cap_s + 2.0
        )

    def _cap(self) -> float | None:
        job = self.job
        if job.cap_s is None or job.deadline is None or self.run_since is None or not self._cap_is_rest():
            return job.cap_s
        begun = self.clock.now() - self._ran()
        return min(job.cap_s, max(job.deadline - begun, 0.0))

    def _ran(self) -> float:
        return 0.0 if self.run_since is None else self.clock.monotonic() - self.run_since

    def _lasted(self, phase: str) -> float:
        return self.clock.monotonic() - self.since.get(phase, self.clock.monotonic())

    def _end(self, want: str, why: str) -> None:
        self.want, self.why = want, why
        self.asked_at = self.clock.monotonic()
        self.repeat_at = self.asked_at + max(self.job.grace_s, 1.0) + 1.0
        self.engine.end(False)

    def _insist(self) -> None:
        now = self.clock.monotonic()
        if self.asked_at is not None and now >= self.repeat_at:
            self.repeat_at = now + AGAIN_S
            self.engine.end(True)

    def _conclude(self, sight: Sight) -> Ended:
        cause, reason = sight.cause, sight.detail
        if cause == "cancelled":
            cause, reason = (self.want, self.why) if self.want else ("stopped", reason or "cancelled by somebody else")
        started, finished = sight.started_at, sight.finished_at
        if started is not None and finished is not None:
            elapsed = max(finished - started, 0.0) + self.ran_before
        else:
            elapsed = self._ran() + self.ran_before
        if sight.exit_code is not None and cause.startswith(("ok", "exit", "signal")):
            told = classify(Evidence(sight.exit_code), tail(self.job.log_path))
            cause, reason = told.cause, told.reason or reason
        if self.starts > 1:
            reason = f"{reason + '; ' if reason else ''}started {self.starts} times (requeued)"
        outcome = Outcome(
            cause, sight.exit_code, started, finished or self.clock.now(), elapsed, host=sight.host, reason=reason
        )
        return Ended(outcome, sight.retry and not self.want)

    def _sleep(self, pause: float) -> None:
        """Sleep for `pause`, less when a cap falls, a stop is asked for or a disk fills up in between."""
        now, cap = self.clock.monotonic(), self._cap()
        until = now + pause
        if self.run_since is not None and cap is not None and not self.want and self.run_since + cap >= now:
            until = min(until, self.run_since + cap + 0.01)
        while True:
            left = until - self.clock.monotonic()
            if left <= 0 or (not self.want and self.watch.stop_requested()):
                return
            if not self.want and self.run_since is not None and (short := self._short_of_room()):
                self._end("disk", short)
                return
            self.clock.sleep(min(left, SLICE_S))


def end_now(engine: Engine, grace_s: float, bound_s: float, clock: Clock) -> Sight:
    """End a job and wait until it is gone; returns the last look (`ended`, `gone`, or whatever it still was).

    Args:
        grace_s: seconds between the polite and the forceful request.
        bound_s: seconds after which to give up waiting.
    """
    begun, asked, forced = clock.monotonic(), False, False
    pause = 0.2
    while True:
        sight = engine.look()
        waited = clock.monotonic() - begun
        if sight.phase in ("ended", "gone") or waited >= bound_s:
            return sight
        if sight.phase != "away":
            force = waited >= grace_s + 1.0
            if not asked or (force and not forced):
                engine.end(force)
                asked, forced = True, force
        clock.sleep(pause)
        pause = min(pause * 1.3, 2.0)
