"""What the launchers of engines elsewhere share: submitting once, following, collecting, cancelling."""

from __future__ import annotations

import os
from collections.abc import Mapping

from autoresearch.errors import TryAgain, Usage
from autoresearch.launchers import Job, Outcome, Watch
from autoresearch.launchers._script import cancel_by_file, read_state
from autoresearch.launchers._waiting import Clock, Ended, Engine, Following, Limits, end_now

SILENT = Watch(lambda: False, lambda job_id: None, lambda when: None, lambda text: None)


def limits_from(settings: Mapping[str, str], default: Limits) -> Limits:
    """The limits of a plan: QUEUE_LIMIT (pending at most) and ENGINE_PATIENCE (a silent engine at most).

    Raises:
        Usage: one of them is not a duration such as `30m` or `2h`.
    """
    knobs = (("QUEUE_LIMIT", "queue_s"), ("ENGINE_PATIENCE", "away_s"))
    changed = {field: duration(settings, knob) for knob, field in knobs if settings.get(knob)}
    return default._replace(**changed) if changed else default


def duration(settings: Mapping[str, str], knob: str) -> float:
    """A setting in seconds. Raises Usage, which names the setting, on what is no duration."""
    from autoresearch import durations

    try:
        return durations.parse(settings[knob])
    except Usage as error:
        raise Usage(knob, error.why, error.fix) from None


class Remote:
    """A launcher whose jobs belong to an engine; subclasses say how that one submits, looks and ends.

    Args:
        limits: how patient to be, where the plan does not say.
        clock: the clocks of the loop, for tests.
    """

    name = ""
    defaults = Limits()

    def __init__(self, limits: Limits | None = None, clock: Clock | None = None) -> None:
        self.limits, self.clock = limits or self.defaults, clock or Clock()

    def script(self, job: Job) -> str:
        """The file that is written before anything is submitted: its presence says that something may have been."""
        raise NotImplementedError

    def engine(self, job: Job, job_id: str) -> Engine:
        """The job as the common loop looks at it."""
        raise NotImplementedError

    def first(self, job: Job, watch: Watch) -> str:
        """Submit the attempt for the first time."""
        raise NotImplementedError

    def again(self, job: Job, watch: Watch, ended: Ended) -> str:
        """Submit once more after a start that the engine spoilt; empty when there is no second time."""
        return ""

    def lost_id(self, job: Job) -> str | None:
        """The id of a job that was submitted but never recorded, empty when the engine knows none.

        None when the engine cannot be asked now; `first` then has to find out before it submits anything else.
        """
        raise NotImplementedError

    def state(self, job: Job) -> str:
        """What the script notes about itself."""
        return f"{self.script(job).removesuffix('.sh')}.state"

    def current(self, job: Job, job_id: str) -> str | None:
        """The id of the job as it is now: the recorded one, else as `lost_id`."""
        return job_id or self._found(job)

    def finished(self, job: Job, job_id: str, outcome: Outcome) -> Outcome:
        """The last word on an outcome: bring logs home, say more."""
        return outcome

    def let_go(self, engine: Engine) -> None:
        """Nobody follows the job any more: end what the engine keeps running on this machine."""

    def limits_for(self, job: Job) -> Limits:
        """The limits for one job."""
        return limits_from(job.settings, self.limits)

    def submit(self, job: Job, watch: Watch) -> str:
        """Start the job unless an earlier call already did; the id is recorded before this returns.

        Raises:
            Refused: the engine will not take it as it is; nothing was started.
            TryAgain: the engine does not answer, or has no room for the user; should it have taken the job after
                all, that does not begin.
        """
        job_id = self._found(job)
        if not job_id:
            return self.first(job, watch)
        watch.submitted(job_id)
        return job_id

    def follow(self, job: Job, job_id: str, watch: Watch) -> Outcome:
        """Follow to the end; a start that the engine spoilt is tried once more and stays the same outcome."""
        now = self.current(job, job_id)
        if now is None:
            raise TryAgain(self.name, "it cannot be asked for the job", "try again later")
        if not now:
            return self._never(job)
        if now != job_id:
            watch.submitted(now)
        job_id = now
        while True:
            engine = self.engine(job, job_id)
            try:
                ended = self._following(job, engine, watch).run()
            finally:
                self.let_go(engine)
            more = self.again(job, watch, ended) if ended.retry and not watch.stop_requested() else ""
            if not more:
                return self.finished(job, job_id, self._noted(job, ended.outcome))
            job_id = more

    def cancel(self, job: Job, job_id: str) -> None:
        """End the job and return when it is gone; harmless when it already is.

        Raises:
            TryAgain: it is still there, or the engine does not answer.
        """
        now = self.current(job, job_id)
        if now is None:
            cancel_by_file(self.state(job))
            raise TryAgain("stop", f"{self.name} cannot be asked for the job", "try again later")
        if not now:
            return
        job_id = now
        engine = self.engine(job, job_id)
        try:
            sight = end_now(engine, job.grace_s, job.grace_s + 120.0, self.clock)
        finally:
            self.let_go(engine)
        if sight.phase not in ("ended", "gone"):
            raise TryAgain("stop", f"job {job_id} is still {sight.phase}: {sight.detail}", "try again later")

    def collect(self, job: Job, job_id: str) -> Outcome | None:
        """The outcome if the job has ended, None while it is queued, runs, or cannot be asked about."""
        now = self.current(job, job_id)
        if now is None:
            return None
        if not now:
            return self._never(job)
        job_id = now
        engine = self.engine(job, job_id)
        if engine.look().phase not in ("ended", "gone"):
            return None
        return self.finished(job, job_id, self._noted(job, self._following(job, engine, SILENT).run().outcome))

    def _noted(self, job: Job, outcome: Outcome) -> Outcome:
        """The outcome with what the script alone could see on its machine."""
        noted = read_state(self.state(job))
        memory = None if noted.memory is None else noted.memory / 1024**3
        return outcome._replace(device=noted.device, memory_gb=memory, memory_source=noted.memory_source)

    def _found(self, job: Job) -> str | None:
        return self.lost_id(job) if os.path.exists(self.script(job)) else ""

    def _never(self, job: Job) -> Outcome:
        if os.path.exists(self.script(job)):  # should its submission arrive after all, it does not begin
            cancel_by_file(self.state(job))
        return Outcome("launcher", None, None, None, 0.0, reason=f"the job never reached {self.name}")

    def _following(self, job: Job, engine: Engine, watch: Watch) -> Following:
        try:
            submitted_at = os.stat(self.script(job)).st_mtime
        except OSError:
            submitted_at = self.clock.now()
        return Following(job, engine, watch, self.limits_for(job), submitted_at, self.clock)
