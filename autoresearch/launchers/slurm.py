"""Slurm: one batch job an attempt, followed through requeues to its one outcome.

Settings of the plan: SLURM_ARGS, SLURM_SCRIPT (a script of the repository such as NeMo-RL's `ray.sub`),
SLURM_CONTAINER, SLURM_MOUNTS, SLURM_ENV, SLURM_STARTUP, SLURM_HOLD, QUEUE_LIMIT, ENGINE_PATIENCE.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from autoresearch.launchers import Finding, Job, Outcome, Watch
from autoresearch.launchers import _slurm_calls as calls
from autoresearch.launchers import _slurm_hold as held
from autoresearch.launchers import _slurm_submit as submission
from autoresearch.launchers import _slurm_unanswered as unanswered
from autoresearch.launchers._calls import Answer
from autoresearch.launchers._remote import Remote
from autoresearch.launchers._script import CANNOT_START, Noted, cancel_by_file, read_state
from autoresearch.launchers._slurm_check import canary, check
from autoresearch.launchers._waiting import Clock, Ended, Engine, Limits, Sight, cause_of

__all__ = ["Slurm", "attach_script", "canary", "forgotten", "hold", "is_over", "launcher", "let_go", "release"]

hold, forgotten, release, let_go = held.hold, held.forgotten, held.release, held.let_go
attach_script, is_over = held.attach_script, held.is_over
SRUN_DIED = re.compile(rb"Background srun '[^'\n]*'[^\n]*(?:died|exited)")
LAUNCH_FAILED = re.compile(r"launch.failed|JobLaunchFailure", re.IGNORECASE)
NOT_STARTED = 53  # Slurm's "signal" of a script that could not be started: output path, working directory
ORPHAN_S = 60.0
NEVER = ("PartitionTimeLimit", "PartitionNodeLimit")  # the job does not fit its partition; no waiting helps
NEVER_S = 60.0
BRIEF_S = 3.0


class SlurmEngine:
    """One job of Slurm's, as the common loop sees it.

    Args:
        site: the job is a script of the repository's own that starts a cluster first (ray.sub).
    """

    def __init__(self, job_id: str, where: submission.Files, site: bool, clock: Clock) -> None:
        self.job_id, self.where, self.site, self.clock = job_id, where, site, clock
        self.lost_since: float | None = None  # monotonic
        self.never_since: float | None = None

    def look(self) -> Sight:
        """One look: the queue, then the books; the script's own notes where Slurm says nothing."""
        record = calls.look_up(self.job_id)
        noted = read_state(self.where.state)
        if isinstance(record, Answer):
            return self._away(record, noted)
        if record is None or record.state in calls.ENDED:
            record = calls.finished(self.job_id) or record
        if record is None:
            if noted.exit_code is not None:
                return self._by_notes(noted, "Slurm has forgotten the job")
            return Sight("gone")
        if record.state in calls.ENDED:
            if self._never_ran(record, noted):
                return self._orphaned(record, noted)
            return self._ended(record, noted)
        if record.state in calls.PENDING:
            if LAUNCH_FAILED.search(record.reason):  # held for good after a failed start
                return self._orphaned(record, noted)
            return self._pending(record)
        if record.state == "CONFIGURING":
            return Sight("starting", f"the nodes of job {self.job_id} come up", started_at=record.started_at)
        began = noted.began if self._is_of(record, noted) else None
        if self.site and began is None:
            return Sight("starting", f"the cluster of job {self.job_id} comes up", started_at=record.started_at)
        return Sight("running", f"job {self.job_id} on {record.host}", "", None, began or record.started_at, None)

    def _pending(self, record: calls.Record) -> Sight:
        """A job that asks for more than its partition ever gives is given up, once that is sure."""
        now = self.clock.monotonic()
        self.never_since = (self.never_since or now) if record.reason in NEVER else None
        if self.never_since is not None and now - self.never_since >= NEVER_S:
            self.end(False)
            why = f"Slurm will never start it: {record.reason}; plan a shorter cap, or set --time in SLURM_ARGS"
            return Sight("ended", why, "launcher")
        return Sight("pending", f"{record.reason or record.state} (job {self.job_id})")

    def end(self, force: bool) -> None:
        """scancel; a second request kills every process of the job. The file reaches a job that Slurm has lost."""
        cancel_by_file(self.where.state)
        argv = ["scancel", "--signal=KILL", "--full", self.job_id] if force else ["scancel", self.job_id]
        calls.query(argv)
        if force:
            calls.query(["scancel", self.job_id])

    def _never_ran(self, record: calls.Record, noted: Noted) -> bool:
        """Did a start fail at once before our script noted it? A controller that was killed repeats a start it forgot,
        and the node refuses that (exit 1) because the first one still runs."""
        known = record.started_at is not None and record.finished_at is not None
        brief = known and (record.finished_at or 0.0) - (record.started_at or 0.0) <= BRIEF_S
        unnoted = not noted.failed and (noted.began is None or not self._is_of(record, noted))
        return record.state == "FAILED" and record.exit_code == 1 and brief and unnoted and not self.site

    def _orphaned(self, record: calls.Record, noted: Noted) -> Sight:
        """Slurm lost a start it had made (its controller died) and failed to repeat it: the first may still run."""
        self.end(False)
        self.lost_since = self.lost_since or self.clock.monotonic()
        alive = noted.began is not None and noted.ended is None
        if alive and self.clock.monotonic() - self.lost_since < ORPHAN_S:
            return Sight("running", f"ending what is left of job {self.job_id}", started_at=noted.began)
        why = f"Slurm could not start the job: {record.reason or record.state}"
        return Sight("ended", why, "launcher", None, noted.began, noted.ended, noted.host, noted.began is None)

    def _away(self, answer: Answer, noted: Noted) -> Sight:
        if noted.ended is None:
            return Sight("away", answer.text, started_at=noted.began)
        requeued = noted.stopped and not unanswered.is_withdrawn(self.where.state)  # perhaps: we did not end it
        if not requeued and self.clock.now() - noted.ended > held.NOTED_S:
            return self._by_notes(noted, "the controller does not answer")
        return Sight("away", answer.text, finished_at=noted.ended)

    @staticmethod
    def _is_of(record: calls.Record, noted: Noted) -> bool:
        """Do the notes belong to this start of the job? Slurm's times are whole seconds."""
        return noted.began is not None and (record.started_at is None or noted.began >= record.started_at - 2.0)

    def _by_notes(self, noted: Noted, why: str) -> Sight:
        code = noted.exit_code or 0
        if noted.failed:
            return Sight("ended", noted.failed, "launcher", CANNOT_START, noted.began, noted.ended, noted.host)
        cause = "cancelled" if noted.stopped else cause_of(code)
        return Sight("ended", why, cause, code, noted.began, noted.ended, noted.host)

    def _ended(self, record: calls.Record, noted: Noted) -> Sight:
        if not self._is_of(record, noted) and not noted.failed:
            noted = Noted()
        cause, reason, retry = self._cause(record, noted)
        started, finished, code = noted.began or record.started_at, noted.ended or record.finished_at, None
        if cause == "ok" or cause.startswith(("exit", "signal")):
            code = int(cause[7:]) + 128 if cause.startswith("signal") else record.exit_code
        if cause == "cancelled" and noted.began is None and record.host == "":
            started = None  # cancelled while it was pending
        return Sight("ended", reason, cause, code, started, finished, noted.host or record.host, retry)

    def _cause(self, record: calls.Record, noted: Noted) -> tuple[str, str, bool]:
        """The end cause by state first, then by exit code; what to add; whether one more try is worth it."""
        fresh = noted.began is None
        state = record.state
        if state == "COMPLETED":
            return "ok", "", False
        if state in ("NODE_FAIL", "BOOT_FAIL", "REVOKED"):
            return "launcher", f"Slurm: {state}", fresh
        if state == "PREEMPTED":
            return "launcher", "preempted and not requeued", False
        if state == "TIMEOUT":
            return "timeout", "Slurm's time limit", False
        if state == "OUT_OF_MEMORY":
            return "oom", "out of the memory that Slurm gave the job", False
        if state == "DEADLINE":
            return "stopped", "Slurm's --deadline", False
        if state == "CANCELLED":
            return "cancelled", f"cancelled in Slurm{' by uid ' + record.by if record.by.isdigit() else ''}", False
        return self._failed(record, noted)

    def _failed(self, record: calls.Record, noted: Noted) -> tuple[str, str, bool]:
        if self.site and noted.exit_code is None and self._srun_died():
            return "launcher", "a srun of the cluster died, see the batch log", noted.began is None
        if noted.failed:
            return "launcher", noted.failed, False
        if record.signal == NOT_STARTED or (noted.began is None and LAUNCH_FAILED.search(record.reason)):
            return "launcher", "Slurm could not start the script: log path or tree missing on the node?", False
        if record.reason == "BadConstraints":
            return "launcher", "Slurm: BadConstraints", False
        if record.signal:
            return f"signal {record.signal}", "", False
        if record.exit_code is None and noted.exit_code is None:
            return "lost", f"Slurm: {record.state} {record.reason}".strip(), False
        if noted.began is None and record.exit_code == 143 and unanswered.is_withdrawn(self.where.state):
            return "cancelled", "", False  # started after all, our script has ended at once
        code = record.exit_code or noted.exit_code or 1
        if self.site and noted.began is None:
            return "launcher", f"the cluster did not come up (exit {code}), see the batch log", False
        return cause_of(code), "", False

    def _srun_died(self) -> bool:
        try:
            with open(self.where.batch_log, "rb") as file:
                file.seek(max(os.path.getsize(self.where.batch_log) - 262144, 0))
                return bool(SRUN_DIED.search(file.read()))
        except OSError:
            return False


class Slurm(Remote):
    """The launcher `slurm`."""

    name = "slurm"

    def check(self, settings: Mapping[str, str], gpus_needed: int, nodes: int) -> list[Finding]:
        """Programs, controller, SLURM_ARGS (by `sbatch --test-only`), accounting, GPUs asked for."""
        return check(settings, gpus_needed, nodes)

    def describe(self, job_id: str, settings: Mapping[str, str]) -> str:
        """One line on the job's present state."""
        if held.is_step(job_id):
            return held.describe(job_id)
        record = calls.look_up(job_id)
        if isinstance(record, Answer):
            return f"job {job_id}: the controller does not answer ({record.text})"
        record = record or calls.finished(job_id)
        if record is None:
            return f"job {job_id}: unknown to Slurm"
        reason = f" ({record.reason})" if record.reason else ""
        return f"job {job_id}: {record.state}{reason}" + (f" on {record.host}" if record.host else "")

    def script(self, job: Job) -> str:
        """The script of the newest submission."""
        return submission.files(job).script

    def engine(self, job: Job, job_id: str) -> Engine:
        """A job of its own, or a step inside a held allocation."""
        if held.is_step(job_id):
            return held.StepEngine(job, job_id, self.clock)
        return SlurmEngine(job_id, submission.files(job), bool(job.settings.get("SLURM_SCRIPT")), self.clock)

    def first(self, job: Job, watch: Watch) -> str:
        """sbatch, or a step inside a held allocation."""
        if job.settings.get("SLURM_HOLD"):
            return held.submit(job, watch)
        return submission.submit(job, job.settings, watch, patience_s=self.limits_for(job).away_s)

    def again(self, job: Job, watch: Watch, ended: Ended) -> str:
        """One more sbatch, with a script and notes of its own."""
        if os.path.exists(submission.files(job, 2).script):
            return ""
        watch.say(f"submitted once more: {ended.outcome.reason}")
        return submission.submit(job, job.settings, watch, attempt=2, patience_s=self.limits_for(job).away_s)

    def current(self, job: Job, job_id: str) -> str | None:
        """A second start whose id nobody lived to record takes the place of the first."""
        second = submission.files(job, 2)
        if job_id and os.path.exists(second.script):
            found = submission.recover(job, 2)
            if found == "":
                cancel_by_file(second.state)
            return found or job_id
        return super().current(job, job_id)

    def state(self, job: Job) -> str:
        """What the script of the newest submission notes."""
        return submission.files(job).state

    def lost_id(self, job: Job) -> str | None:
        """Found by the job's unique name, as a step of what is held now or as a job of its own."""
        return (held.recover(job) if job.settings.get("SLURM_HOLD") else "") or submission.recover(job)

    def limits_for(self, job: Job) -> Limits:
        """A cluster inside the job gets its time to come up."""
        limits = super().limits_for(job)
        if job.settings.get("SLURM_SCRIPT"):
            return limits._replace(startup_s=submission.startup_s(job.settings))
        return limits

    def finished(self, job: Job, job_id: str, outcome: Outcome) -> Outcome:
        """Where a cluster script ended before the run began, its own output is what there is to read.

        Memory that our script could not measure is what accounting sampled.
        """
        where = submission.files(job)
        if os.path.exists(where.batch_log) and not (os.path.exists(job.log_path) and os.path.getsize(job.log_path)):
            with open(where.batch_log, "rb") as source, open(job.log_path, "ab") as target:
                source.seek(max(os.path.getsize(where.batch_log) - 65536, 0))
                target.write(source.read())
        if outcome.memory_gb is None and outcome.started_at is not None:
            peak = calls.max_rss(job_id)
            outcome = outcome._replace(memory_gb=peak, memory_source="sacct MaxRSS" if peak is not None else "")
        return outcome


def launcher() -> Slurm:
    """The launcher called `slurm` in plans."""
    return Slurm()
