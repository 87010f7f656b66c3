"""Slurm: one batch job an attempt, followed through requeues to its one outcome.

Settings of the plan: SLURM_ARGS, SLURM_SCRIPT (a script of the repository such as NeMo-RL's `ray.sub`),
SLURM_CONTAINER, SLURM_MOUNTS, SLURM_ENV, SLURM_STARTUP, SLURM_HOLD, QUEUE_LIMIT, ENGINE_PATIENCE.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from autoresearch.errors import TryAgain
from autoresearch.launchers import Finding, Job, Outcome, Watch
from autoresearch.launchers import _slurm_calls as calls
from autoresearch.launchers import _slurm_hold as held
from autoresearch.launchers import _slurm_submit as submission
from autoresearch.launchers._calls import Answer
from autoresearch.launchers._script import CANNOT_START, Noted, read_state
from autoresearch.launchers._settings import limits_from
from autoresearch.launchers._slurm_check import canary, check
from autoresearch.launchers._waiting import Clock, Engine, Following, Limits, Sight, cause_of, end_now

__all__ = ["Slurm", "canary", "hold", "launcher", "release"]

hold, release = held.hold, held.release
SRUN_DIED = re.compile(rb"Background srun '[^'\n]*'[^\n]*(?:died|exited)")
LAUNCH_FAILED = re.compile(r"launch.failed|JobLaunchFailure", re.IGNORECASE)
NOT_STARTED = 53  # Slurm's "signal" of a script that could not be started: output path, working directory
NOTED_S = 30.0  # with the controller away, the script's own word counts after this


class SlurmEngine:
    """One job of Slurm's, as the common loop sees it.

    Args:
        site: the job is a script of the repository's own that starts a cluster first (ray.sub).
    """

    def __init__(self, job_id: str, where: submission.Files, site: bool, clock: Clock) -> None:
        self.job_id, self.where, self.site, self.clock = job_id, where, site, clock

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
            return self._ended(record, noted)
        if record.state in calls.PENDING:
            if LAUNCH_FAILED.search(record.reason):  # held for good after a failed start
                self.end(False)
                return Sight("ended", record.reason, "launcher", retry=noted.began is None)
            return Sight("pending", f"{record.reason or record.state} (job {self.job_id})")
        began = noted.began if self._is_of(record, noted) else None
        if self.site and began is None:
            return Sight("starting", f"the cluster of job {self.job_id} comes up", started_at=record.started_at)
        return Sight("running", f"job {self.job_id} on {record.host}", "", None, began or record.started_at, None)

    def end(self, force: bool) -> None:
        """scancel; a second request kills every process of the job."""
        argv = ["scancel", "--signal=KILL", "--full", self.job_id] if force else ["scancel", self.job_id]
        calls.query(argv)
        if force:
            calls.query(["scancel", self.job_id])

    def _away(self, answer: Answer, noted: Noted) -> Sight:
        if noted.ended is not None and self.clock.now() - noted.ended > NOTED_S:
            return self._by_notes(noted, "the controller does not answer")
        return Sight("away", answer.text)

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


class Slurm:
    """The launcher `slurm`."""

    name = "slurm"

    def __init__(self, limits: Limits | None = None, clock: Clock | None = None) -> None:
        self.limits, self.clock = limits or Limits(), clock or Clock()

    def check(self, settings: Mapping[str, str], gpus_needed: int, nodes: int) -> list[Finding]:
        """Programs, controller, SLURM_ARGS (by `sbatch --test-only`), accounting, GPUs asked for."""
        return check(settings, gpus_needed, nodes)

    def canary(self, settings: Mapping[str, str], tree: str, directories: Sequence[str]) -> Finding:
        """Prove by a small job that tree and directories are visible where jobs run."""
        return canary(settings, tree, directories)

    def submit(self, job: Job, watch: Watch) -> str:
        """sbatch, or a step inside a held allocation; the id is recorded before this returns."""
        if job.settings.get("SLURM_HOLD"):
            return held.submit(job, watch)
        return submission.submit(job, job.settings, watch)

    def follow(self, job: Job, job_id: str, watch: Watch) -> Outcome:
        """Follow to the end; a start that the cluster spoilt is tried once more and stays the same row."""
        if not job_id and not self._recoverable(job):
            return NEVER_SUBMITTED
        job_id = job_id or self._recover(job, watch)
        if not job_id:
            return NEVER_SUBMITTED
        while True:
            ended = self._following(job, job_id, watch).run()
            if not ended.retry or watch.stop_requested() or os.path.exists(submission.files(job, 2).script):
                return self._with_log(job, ended.outcome)
            watch.say(f"submitted once more: {ended.outcome.reason}")
            job_id = submission.submit(job, job.settings, watch, attempt=2)

    def cancel(self, job: Job, job_id: str) -> None:
        """scancel, and wait until Slurm says that the job is gone."""
        job_id = job_id or self._find(job)
        if not job_id:
            return
        sight = end_now(self._engine(job, job_id), job.grace_s, job.grace_s + 120.0, self.clock)
        if sight.phase not in ("ended", "gone"):
            raise TryAgain(
                "stop", f"job {job_id} is still {sight.phase}: {sight.detail}", f"look at: squeue -j {job_id}"
            )

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

    def collect(self, job: Job, job_id: str) -> Outcome | None:
        """The outcome if the job has ended, None while it is queued, runs, or cannot be asked about."""
        if not job_id and not self._recoverable(job):
            return NEVER_SUBMITTED
        job_id = job_id or self._find(job)
        if not job_id:
            return NEVER_SUBMITTED
        sight = self._engine(job, job_id).look()
        if sight.phase not in ("ended", "gone"):
            return None
        return self._following(job, job_id, SILENT).run().outcome

    def _recoverable(self, job: Job) -> bool:
        return os.path.exists(submission.files(job).script)

    def _find(self, job: Job) -> str:
        return held.recover(job) if job.settings.get("SLURM_HOLD") else submission.recover(job)

    def _recover(self, job: Job, watch: Watch) -> str:
        job_id = self._find(job)
        if job_id:
            watch.submitted(job_id)
        return job_id

    def _engine(self, job: Job, job_id: str) -> Engine:
        if held.is_step(job_id):
            return held.StepEngine(job, job_id, self.clock)
        return SlurmEngine(job_id, submission.files(job), bool(job.settings.get("SLURM_SCRIPT")), self.clock)

    def _following(self, job: Job, job_id: str, watch: Watch) -> Following:
        where = submission.files(job)
        try:
            submitted_at = os.stat(where.script).st_mtime
        except OSError:
            submitted_at = self.clock.now()
        limits = limits_from(job.settings, self.limits)
        if job.settings.get("SLURM_SCRIPT"):
            limits = limits._replace(startup_s=submission.startup_s(job.settings))
        return Following(job, self._engine(job, job_id), watch, limits, submitted_at, self.clock)

    @staticmethod
    def _with_log(job: Job, outcome: Outcome) -> Outcome:
        """Where a cluster script ended before the run began, its own output is what there is to read."""
        where = submission.files(job)
        try:
            empty = os.path.getsize(job.log_path) == 0
        except OSError:
            empty = True
        if empty and os.path.exists(where.batch_log):
            with open(where.batch_log, "rb") as source, open(job.log_path, "ab") as target:
                source.seek(max(os.path.getsize(where.batch_log) - 65536, 0))
                target.write(source.read())
        return outcome


SILENT = Watch(lambda: False, lambda job_id: None, lambda when: None, lambda text: None)
NEVER_SUBMITTED = Outcome("launcher", None, None, None, 0.0, reason="the job never reached Slurm")


def launcher() -> Slurm:
    """The launcher called `slurm` in plans."""
    return Slurm()
