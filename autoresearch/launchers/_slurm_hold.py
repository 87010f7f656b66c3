"""One allocation that is held while several experiments run inside it, so that start-up is paid once.

`hold` submits it, `submit` starts an attempt as a step of it (or through the attach script that NeMo-RL's
`ray.sub` leaves for an idle cluster), `release` gives it back.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import subprocess
import time
from collections.abc import Mapping

from autoresearch.errors import AutoresearchError, Refused, TryAgain
from autoresearch.launchers import Job, Watch
from autoresearch.launchers import _slurm_calls as calls
from autoresearch.launchers import _slurm_submit as submission
from autoresearch.launchers import _slurm_unanswered as unanswered
from autoresearch.launchers._calls import Answer, call, refuse_secrets
from autoresearch.launchers._remote import SILENT
from autoresearch.launchers._script import Noted, cancel_by_file, read_state, render, token_of, write
from autoresearch.launchers._waiting import Clock, Sight, cause_of
from autoresearch.running.keeper import SPARED

IDLE = """#!/bin/bash
# Token {token}.
# An allocation held by autoresearch; nothing runs here but the steps of experiments.
if [[ -e {state}.cancelled ]]; then exit 143; fi
exec sleep infinity
"""
OURS = re.compile(r".+-[0-9a-f]{8}")  # the name of a step that is a run of ours
AWAY_S = 60.0
NOTED_S = 30.0  # with the controller away, a script's own word counts after this
STEP_S = 20.0  # a step is listed within a second; a busy controller may need longer


def is_step(job_id: str) -> bool:
    """Is this the id of a step inside an allocation (`12.3`)?"""
    return "." in job_id


def hold(
    settings: Mapping[str, str],
    *,
    name: str,
    tree: str,
    logs: str,
    env: Mapping[str, str],
    limit_s: float | None = None,
) -> str:
    """Submit an allocation that idles until it is released.

    Args:
        settings: the plan's; SLURM_ARGS ask for the resources, SLURM_SCRIPT for a Ray cluster in containers.
        name: readable part of the job's name.
        tree: where the site's script is looked for; nothing is written there.
        logs: directory for its script, output and attach script; it is submitted from here, and its parent (the
            campaign's directory, with all trees) is mounted into a site's containers.
        env: its environment.
        limit_s: seconds after which Slurm takes it back by itself; None leaves that to SLURM_ARGS or the site.
    Returns:
        the job id. It may still be pending.
    Raises:
        Refused, TryAgain: as a submission of an attempt does.
    """
    token = secrets.token_hex(4)
    where = _hold_files(logs, token)
    exports = {"EXP_DIR": os.path.dirname(logs)}
    job = Job(_hold_name(name), [], logs, env, exports, (), logs, where.batch_log, limit_s, 0.0, None, settings)
    site = settings.get("SLURM_SCRIPT", "")
    write(where.script, IDLE.format(token=token, state=shlex.quote(where.state)))
    script, variables = where.script, dict(env)
    try:
        if site:
            script = submission.site_script(tree, site)
            variables = submission.site_environment(job, settings, where) | {"COMMAND": ""}
        full = submission.name_of(job, token)
        argv = submission.arguments(job, settings, full, where, script)
        argv = [word for word in argv if word != "--requeue"]
        argv.insert(1, "--no-requeue")  # a restarted allocation would have lost what ran inside it
        answer = call(argv, timeout_s=submission.SUBMIT_S, env=calls.environment(variables), cwd=logs)
        job_id = answer.out.strip().split("\n")[-1].split(";")[0]
        if answer.code != 0 or not job_id.isdigit():
            unanswered.refuse_if_sure(answer)
            until = time.time() + AWAY_S
            job_id = unanswered.settle(full, where.state, answer.text, SILENT, until, bool(site))
        if not job_id:
            raise TryAgain("sbatch", answer.text, "the controller did not take it; try again")
    except AutoresearchError:
        cancel_by_file(where.state)
        raise
    return job_id


def _hold_files(logs: str, token: str) -> submission.Files:
    return submission.Files(f"{logs}/hold.sh", f"{logs}/hold.{token}.state", f"{logs}/hold.log")


def _hold_name(name: str) -> str:
    return f"{name}-hold"


def forgotten(name: str, logs: str) -> str:
    """The id of an allocation that a `hold` asked for which was killed before it could say so; empty when none lives.

    Raises:
        TryAgain: the controller cannot be asked.
    """
    token = token_of(f"{logs}/hold.sh")
    state = _hold_files(logs, token).state
    if not token or unanswered.is_withdrawn(state):
        return ""
    job_id = unanswered.recover(f"{_hold_name(name)}-{token}", state)
    if job_id is None:
        raise TryAgain("hold", "Slurm cannot be asked whether it took an earlier one", "try again later")
    record = calls.look_up(job_id) if job_id else None
    if isinstance(record, Answer):
        raise TryAgain("hold", record.text, "try again later")
    if record is None or record.state in calls.ENDED:
        cancel_by_file(state)  # it is not to be asked for again, nor to begin
        return ""
    return job_id


def let_go(logs: str) -> None:
    """Note that the allocation that was asked for from `logs` is over, so that nobody looks for it again."""
    token = token_of(f"{logs}/hold.sh")
    if token:
        cancel_by_file(_hold_files(logs, token).state)


def is_over(job_id: str) -> bool:
    """Has an allocation ended? A controller that does not answer says nothing of that."""
    record = calls.look_up(job_id)
    return record is None or (not isinstance(record, Answer) and record.state in calls.ENDED)


def release(job_id: str, bound_s: float = 120.0) -> None:
    """Give an allocation back and wait until it is gone; harmless when it already is.

    Raises:
        TryAgain: it is still there after `bound_s` seconds.
    """
    until = time.monotonic() + bound_s
    calls.query(["scancel", job_id])
    while True:
        if is_over(job_id):
            return
        if time.monotonic() >= until:
            raise TryAgain("release", f"allocation {job_id} is not gone yet", f"look at: squeue -j {job_id}")
        time.sleep(0.5)


def describe(job_id: str) -> str:
    """One line on a step."""
    listed = _steps(job_id.split(".")[0])
    if isinstance(listed, Answer):
        return f"step {job_id}: the controller does not answer ({listed.text})"
    return f"step {job_id}: {'RUNNING' if job_id in listed else 'not running'}"


def _steps(allocation: str) -> dict[str, str] | Answer:
    """The running steps of an allocation as {id: name}; an Answer when the controller is away."""
    answer = calls.query(["squeue", "-h", "-s", "-j", allocation, "-o", "%i|%j"])
    if answer.code != 0 and not calls.UNKNOWN.search(answer.err):
        return answer
    return dict(line.split("|", 1) for line in answer.out.splitlines() if "|" in line)


def submit(job: Job, watch: Watch) -> str:
    """Start the attempt inside the held allocation, waiting for that to come up; records and returns the step's id.

    Raises:
        Refused: the allocation has ended, or the step did not start.
        TryAgain: the controller does not answer, or a stop was asked for while waiting.
    """
    refuse_secrets(job, "the command", job.argv)
    allocation = job.settings["SLURM_HOLD"]
    _wait_for(allocation, job, watch)
    token = secrets.token_hex(4)
    where = submission.files(job, 1, token)
    name = submission.name_of(job, token)
    site = job.settings.get("SLURM_SCRIPT")
    drop = submission.NOT_IN_CONTAINER if site else ()
    env = {key: value for key, value in job.env.items() if key not in drop}
    there, measured = job._replace(env=env), None if site else "step"  # a site's workers are other steps
    text = render(
        there, token, where.state, redirect=True, exports={}, needs=(), slurm=measured, alone=not site, told=False
    )
    write(where.script, text)
    client = _start(job, allocation, where, name, env)
    until = time.monotonic() + STEP_S
    while time.monotonic() < until:
        listed = _steps(allocation)
        if not isinstance(listed, Answer):
            for step, called in listed.items():
                if called == name:
                    watch.submitted(step)
                    return step
        if client.poll() is not None:
            break
        time.sleep(0.2)
    if read_state(where.state).began is not None:  # over before it was listed
        step = f"{allocation}.over"
        watch.submitted(step)
        return step
    client.terminate()
    raise Refused("srun", f"the step did not start in allocation {allocation}", f"see {job.logs}/srun.log")


def _wait_for(allocation: str, job: Job, watch: Watch) -> None:
    while True:
        record = calls.look_up(allocation)
        if record is None or (not isinstance(record, Answer) and record.state in calls.ENDED):
            fix = "make hold takes a new one, make hold RELEASE=1 goes on without one"
            raise Refused("hold", f"allocation {allocation} has ended", fix)
        state = "away" if isinstance(record, Answer) else record.state
        if state == "RUNNING" and (
            not job.settings.get("SLURM_SCRIPT") or os.path.exists(attach_script(allocation, job))
        ):
            return
        if watch.stop_requested():
            raise TryAgain("the held allocation", f"{allocation} is {state}", "stopped while waiting for it")
        if job.deadline is not None and time.time() + (job.cap_s or 0.0) >= job.deadline:
            raise Refused("the held allocation", f"{allocation} is {state} and the deadline leaves no room", "")
        watch.say(f"pending: allocation {allocation} is {state}")
        time.sleep(1.0)


def attach_script(allocation: str, job: Job) -> str:
    """Where ray.sub leaves its attach script: the directory that the allocation was submitted from."""
    answer = calls.query(["scontrol", "show", "job", "-o", allocation])
    found = answer.out.partition(" WorkDir=")[2].partition(" StdErr=")[0].strip()
    return f"{found or job.tree}/{allocation}-attach.sh"


def _start(
    job: Job, allocation: str, where: submission.Files, name: str, env: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """The client of the step, in a session of its own: it ends with the step, and a step ends with its client.

    So it has to outlive a supervisor that is killed; what runs in the step is not to be spared by anybody.
    """
    variables = calls.environment(env) | {SPARED: "1"}
    plainly = ["env", "-u", SPARED, "bash", where.script]
    if job.settings.get("SLURM_SCRIPT"):
        argv = ["bash", attach_script(allocation, job)]
        variables |= {"COMMAND": shlex.join(plainly), "SLURM_JOB_NAME": name}
    else:
        limit = submission.minutes(job, 0.0)
        argv = ["srun", f"--jobid={allocation}", "--overlap", "--nodes=1", "--ntasks=1", "--cpu-bind=none"]
        argv += ["--mpi=none", "--export=ALL", f"--job-name={name}", f"--chdir={job.tree}"]
        argv += [] if limit is None else [f"--time={limit}"]
        argv += plainly
    with open(f"{job.logs}/srun.log", "ab") as log:
        try:
            return subprocess.Popen(
                argv,
                env=variables,
                cwd=job.tree,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise Refused("srun", "not found", "run on a machine that submits to Slurm") from None


def recover(job: Job) -> str:
    """The step of an attempt whose id was never recorded; empty when it never began."""
    where = submission.files(job, 1)
    token = token_of(where.script)
    allocation = job.settings["SLURM_HOLD"]
    until = time.monotonic() + 5.0
    while token and time.monotonic() < until:
        listed = _steps(allocation)
        if not isinstance(listed, Answer):
            for step, called in listed.items():
                if called == submission.name_of(job, token):
                    return step
        if read_state(where.state).began is not None:
            return f"{allocation}.over"
        time.sleep(0.5)
    return ""


class StepEngine:
    """One step of a held allocation, as the common loop sees it."""

    def __init__(self, job: Job, step: str, clock: Clock) -> None:
        self.step, self.clock = step, clock
        self.allocation = step.split(".")[0]
        self.where = submission.files(job, 1)
        self.asked = False
        self.others: set[str] = set()  # runs that shared its machine

    def look(self) -> Sight:
        """Is the step listed; else what the script noted; else what became of the allocation."""
        listed = _steps(self.allocation)
        noted = read_state(self.where.state)
        if isinstance(listed, Answer):
            return self._away(listed, noted)
        self.others |= {name[:-9] for step, name in listed.items() if step != self.step and OURS.fullmatch(name)}
        if self.step in listed:
            return Sight("running", f"step {self.step}", started_at=noted.began, host=noted.host)
        record = calls.look_up(self.allocation)
        if isinstance(record, Answer):
            return self._away(record, noted)
        over = record is None or record.state in calls.ENDED or record.state == "COMPLETING"
        if over and not noted.failed and (noted.exit_code is None or noted.stopped):
            cause = "cancelled" if self.asked else "launcher"
            reason = f"the held allocation {self.allocation} has ended"
            return Sight("ended", reason, cause, None, noted.began, noted.ended, noted.host)
        return self._by_notes(noted) or Sight("gone")

    def _away(self, answer: Answer, noted: Noted) -> Sight:
        if noted.ended is not None and self.clock.now() - noted.ended < NOTED_S:
            return Sight("away", answer.text, finished_at=noted.ended)
        return self._by_notes(noted) or Sight("away", answer.text, started_at=noted.began)

    def _by_notes(self, noted: Noted) -> Sight | None:
        if noted.exit_code is None:
            return None
        cause = "cancelled" if self.asked or noted.stopped else cause_of(noted.exit_code)
        cause = "launcher" if noted.failed else cause
        shared = f"not alone in allocation {self.allocation}: {', '.join(sorted(self.others)[:4])}"
        detail = noted.failed or (shared if self.others else "")
        return Sight("ended", detail, cause, noted.exit_code, noted.began, noted.ended, noted.host)

    def end(self, force: bool) -> None:
        """TERM to the step's processes, then KILL; the allocation stays. The file reaches a step nobody can ask for."""
        self.asked = True
        cancel_by_file(self.where.state)
        if self.step.endswith(".over"):
            return
        calls.query(["scancel", *([] if force else ["--signal=TERM"]), self.step])
