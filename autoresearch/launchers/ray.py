"""Ray jobs: one submission an attempt to the jobs API of a head, followed to its one outcome.

Settings of the plan: RAY_ADDRESS (the dashboard), RAY_GPUS, RAY_CPUS (for the entrypoint itself), RAY_SECRETS,
QUEUE_LIMIT, ENGINE_PATIENCE. The body of a job is shown to everybody who can reach the API, so no secret is
ever put there: the machine has to supply them, and a canary proves it.
"""

from __future__ import annotations

import math
import os
import re
import secrets
import shlex
import time
from collections.abc import Callable, Mapping, Sequence

from autoresearch.errors import AutoresearchError, Refused, TryAgain
from autoresearch.knobs import parse_number
from autoresearch.launchers import Finding, Job, Outcome, Watch
from autoresearch.launchers._calls import refuse_secrets
from autoresearch.launchers._ray_api import Api, Reply, denied, refuse_denied
from autoresearch.launchers._remote import Remote, limits_from
from autoresearch.launchers._script import (
    CANNOT_START,
    Noted,
    cancel_by_file,
    read_state,
    render,
    second_line_s,
    token_of,
    write,
)
from autoresearch.launchers._waiting import Clock, Engine, Limits, Sight, cause_of

# The head keeps its own; the links in /tmp belong to the machine that submits.
NOT_ON_HEAD = ("RAY_ADDRESS", "RAY_TMPDIR")
UNSTOPPABLE_S = 6.0  # Ray says "stopped" of a pending job and keeps it pending
NOTED_S = 20.0
STOP_MARGIN_S = 6
KEYS_OF_RAY = ("RAY_AUTH_TOKEN",)


def script_path(job: Job) -> str:
    """The script of an attempt, beside its logs."""
    return f"{job.logs}/ray.sh"


def state_path(job: Job) -> str:
    """What that script notes."""
    return f"{job.logs}/ray.state"


def needed(settings: Mapping[str, str], keys: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """The secrets that a machine has to supply: RAY_SECRETS or SECRETS (`none` for none), else all that are set."""
    wanted = settings.get("RAY_SECRETS") or settings.get("SECRETS", "")
    if wanted:
        return [] if wanted == "none" else wanted.replace(",", " ").split()
    return [key for key in keys if env.get(key) and key not in KEYS_OF_RAY]


def resources(settings: Mapping[str, str]) -> dict[str, float]:
    """What the entrypoint itself asks of the cluster. Raises Usage on what is no number."""
    fields = (("RAY_GPUS", "entrypoint_num_gpus"), ("RAY_CPUS", "entrypoint_num_cpus"))
    return {field: parse_number(knob, settings[knob]) for knob, field in fields if settings.get(knob)}


def body_of(job: Job, submission_id: str) -> dict[str, object]:
    """The request: a path and numbers, nothing of the environment."""
    script = script_path(job)
    try:
        script.encode()
    except UnicodeEncodeError:
        raise Refused("the attempt's path", f"{script!r} is not UTF-8", "choose another SCRATCH") from None
    body: dict[str, object] = {
        "entrypoint": f"exec bash {shlex.quote(script)}",
        "submission_id": submission_id,
        "runtime_env": {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(math.ceil(job.grace_s) + STOP_MARGIN_S)}},
        "metadata": {"job_name": job.id},
    }
    body |= resources(job.settings)
    refuse_secrets(job, "the Ray job", [script, job.id])
    return body


class RayEngine:
    """One Ray job, as the common loop sees it."""

    def __init__(self, api: Api, submission_id: str, state: str, clock: Clock) -> None:
        self.api, self.submission_id, self.state, self.clock = api, submission_id, state, clock
        self.asked_at: float | None = None

    def look(self) -> Sight:
        """The job's status; what the script noted where the head says nothing."""
        reply, noted = self.api.job(self.submission_id), read_state(self.state)
        if reply.status == 404:
            return self._by_notes(noted, 0.0) or Sight("gone")
        if reply.status != 200:
            away = Sight("away", _short(reply), started_at=noted.began, finished_at=noted.ended)
            return self._by_notes(noted, NOTED_S) or away
        status, data = str(reply.data.get("status")), reply.data
        begun, over = _seconds(data.get("start_time")), _seconds(data.get("end_time"))
        if status == "PENDING":
            return self._pending(str(data.get("message") or ""))
        if status == "RUNNING":
            return Sight("running", f"job {self.submission_id}", started_at=noted.began or begun, host=noted.host)
        started = noted.began or (begun if status != "STOPPED" else None)
        end = Sight("ended", "", "", None, started, noted.ended or over, noted.host)
        if status == "SUCCEEDED":
            return end._replace(cause="ok", exit_code=0)
        if status == "STOPPED":
            return end._replace(cause="cancelled", detail="stopped in Ray")
        return self._failed(end, data.get("driver_exit_code"), str(data.get("message") or ""), noted)

    def end(self, force: bool) -> None:
        """Ask Ray, and tell the script by a file: a pending job cannot be stopped, so it must not begin."""
        cancel_by_file(self.state)
        if self.asked_at is None:
            self.asked_at = self.clock.monotonic()
        self.api.stop(self.submission_id)

    def _pending(self, message: str) -> Sight:
        if self.asked_at is not None and self.clock.monotonic() - self.asked_at > UNSTOPPABLE_S:
            return Sight("ended", "Ray keeps it pending; it will not begin", "cancelled")
        return Sight("pending", f"{message or 'waits for the cluster'} (job {self.submission_id})")

    def _failed(self, end: Sight, code: object, message: str, noted: Noted) -> Sight:
        if noted.failed:
            return end._replace(cause="launcher", exit_code=CANNOT_START, detail=noted.failed)
        if self.asked_at is not None and noted.began is None:  # placed after all, its script has ended at once
            return end._replace(cause="cancelled", started_at=None)
        number = code if isinstance(code, int) else noted.exit_code
        if noted.stopped and number is not None:
            return end._replace(cause="cancelled", exit_code=number, detail="ended from outside")
        if number is None:
            return end._replace(cause="launcher", detail=" ".join(message.split())[:300] or "Ray: FAILED")
        number = 128 - number if number < 0 else number
        return end._replace(cause=cause_of(number), exit_code=number)

    def _by_notes(self, noted: Noted, wait_s: float) -> Sight | None:
        """The outcome by the script's own word, when the head has been silent for a while after it."""
        if noted.ended is None or noted.exit_code is None or self.clock.now() - noted.ended < wait_s:
            return None
        end = Sight("ended", "by the job's notes", "", noted.exit_code, noted.began, noted.ended, noted.host)
        if noted.failed:
            return end._replace(cause="launcher", detail=noted.failed)
        if noted.stopped and self.asked_at is None:
            return end._replace(cause="launcher", exit_code=None, detail="its Ray head went away")
        if noted.stopped:
            return end._replace(cause="cancelled")
        return end._replace(cause=cause_of(noted.exit_code))


class Ray(Remote):
    """The launcher `ray`."""

    name = "ray"
    # A head that does not come back takes its jobs along; one that cannot place a job gives up after 15 min itself.
    defaults = Limits(away_s=300.0, queue_s=840.0, last_poll_s=5.0)

    def check(self, settings: Mapping[str, str], gpus_needed: int, nodes: int) -> list[Finding]:
        """The head, its version and token, its GPUs."""
        try:
            api = Api(settings, os.environ)
            limits_from(settings, self.limits)
            resources(settings)
        except AutoresearchError as error:
            return [Finding("FAIL", error.what, error.why, error.fix)]
        reply = api.call("GET", "/api/jobs/")
        if denied(reply):
            return [Finding("FAIL", "Ray token", f"the head answers {reply.status}", "put RAY_AUTH_TOKEN into .env")]
        if reply.status != 200:
            return [Finding("FAIL", "Ray head", f"{api.address}: {_short(reply)}", "start it, or correct RAY_ADDRESS")]
        version = api.call("GET", "/api/version").data.get("ray_version", "?")
        findings = [Finding("ok", "Ray head", f"{api.address} runs Ray {version}")]
        total = _gpus(api)
        if gpus_needed and total is not None:
            enough = total >= gpus_needed * max(nodes, 1)
            detail = f"the cluster has {total:g}, the recipe wants {gpus_needed * max(nodes, 1)}"
            findings.append(Finding("ok" if enough else "FAIL", "GPUs", detail, "" if enough else "add nodes"))
        return findings

    def describe(self, job_id: str, settings: Mapping[str, str]) -> str:
        """One line on the job's present state."""
        reply = Api(settings, os.environ).job(job_id)
        if reply.status == 404:
            return f"job {job_id}: unknown to Ray"
        if reply.status != 200:
            return f"job {job_id}: the head does not answer ({_short(reply)})"
        message = " ".join(str(reply.data.get("message") or "").split())[:120]
        return f"job {job_id}: {reply.data.get('status')}" + (f" ({message})" if message else "")

    def script(self, job: Job) -> str:
        """The attempt's script."""
        return script_path(job)

    def engine(self, job: Job, job_id: str) -> Engine:
        """The job at its head."""
        return RayEngine(Api(job.settings, {**os.environ, **job.env}), job_id, state_path(job), self.clock)

    def lost_id(self, job: Job) -> str:
        """Submission ids are ours: the script holds what makes one unique."""
        token = token_of(script_path(job))
        job_id = f"{job.id}-{token}"
        reply = Api(job.settings, {**os.environ, **job.env}).job(job_id)
        noted = read_state(state_path(job)).began is not None
        return job_id if token and (noted or reply.status not in (404, 0)) else ""

    def first(self, job: Job, watch: Watch) -> str:
        """POST the job; an answer that got lost is asked for by the id, so nothing is ever started twice."""
        refuse_secrets(job, "the command", job.argv)
        token = secrets.token_hex(4)
        submission_id = f"{job.id}-{token}"
        api = Api(job.settings, {**os.environ, **job.env})
        body = body_of(job, submission_id)
        needs = needed(job.settings, job.secret_keys, job.env)
        exports = {key: value for key, value in job.exports.items() if key not in NOT_ON_HEAD}
        refuse_secrets(job, "the run's exports", exports.values())
        plain = job._replace(env={key: value for key, value in job.env.items() if key not in NOT_ON_HEAD})
        limit = second_line_s(job)
        state = state_path(job)
        text = render(plain, token, state, redirect=True, exports=exports, needs=needs, limit_s=limit)
        write(script_path(job), text)
        self._post(api, body, submission_id)
        watch.submitted(submission_id)
        return submission_id

    def _post(self, api: Api, body: Mapping[str, object], submission_id: str) -> None:
        for _ in range(3):
            reply = api.call("POST", "/api/jobs/", body, timeout_s=60.0)
            if reply.status == 200 or (reply.status == 500 and "already exists" in reply.text):
                return
            refuse_denied(reply)
            if reply.status in (400, 404, 422):
                raise Refused("Ray", _short(reply), "correct the RAY_... settings of the plan")
            if not reply.sent:
                break
            if api.job(submission_id).status == 200:
                return
            self.clock.sleep(1.0)
        raise TryAgain("Ray", f"{api.address}: {_short(reply)}", "nothing was submitted; is the head up?")

    def finished(self, job: Job, job_id: str, outcome: Outcome) -> Outcome:
        """What Ray kept of a job that ended before its output went to our log is brought home."""
        if outcome.end_cause == "ok" or (os.path.exists(job.log_path) and os.path.getsize(job.log_path)):
            return outcome
        api = Api(job.settings, {**os.environ, **job.env})
        text = api.logs(job_id) + str(api.job(job_id).data.get("message") or "")
        if text:
            with open(job.log_path, "a", encoding="utf-8") as log:
                log.write(text.rstrip("\n") + "\n")
        return outcome


def canary(
    settings: Mapping[str, str],
    tree: str,
    directories: Sequence[str],
    secret_keys: Sequence[str] = (),
    wait_s: float = 120.0,
    stop: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = lambda text: None,
) -> Finding:
    """Prove by a small job that tree and directories are visible where jobs run, and that secrets are set there.

    Args:
        tree: an attempt's worktree.
        directories: the experiment's directories, which must be writable.
        secret_keys: names of secrets that the environment of jobs has to hold; only names travel.
        wait_s: seconds that the job may take.
        stop: true once the canary is not wanted any more.
    """
    api = Api(settings, os.environ)
    submission_id = f"autoresearch-canary-{secrets.token_hex(4)}"
    tests = [f"test -d {shlex.quote(tree)} || echo missing {shlex.quote(tree)}"]
    tests += [f"test -w {shlex.quote(path)} || echo missing or read-only {shlex.quote(path)}" for path in directories]
    tests += [
        f'test -n "${{{key}+set}}" || echo no {key} there'
        for key in needed(settings, secret_keys, dict.fromkeys(secret_keys, "x"))
        if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key, re.ASCII)
    ]
    body = {"entrypoint": "; ".join([*tests, "echo canary done"]), "submission_id": submission_id}
    reply = api.call("POST", "/api/jobs/", body, timeout_s=60.0)
    if reply.status != 200:
        return Finding("FAIL", "canary job", _short(reply), "is RAY_ADDRESS right, and the head up?")
    until = time.monotonic() + wait_s
    status = "PENDING"
    while time.monotonic() < until and not stop() and status in ("PENDING", "RUNNING"):
        time.sleep(0.3)
        status = str(api.job(submission_id).data.get("status") or status)
        say(f"canary job: {status}")
    logs = api.logs(submission_id)
    api.call("DELETE", f"/api/jobs/{submission_id}")
    bad = [line for line in logs.splitlines() if line.startswith(("missing ", "no "))]
    if bad:
        return Finding("FAIL", "canary job", f"on the head: {'; '.join(bad)}", "share SCRATCH; export secrets there")
    if status != "SUCCEEDED" or "canary done" not in logs:
        api.stop(submission_id)
        return Finding("FAIL", "canary job", f"{submission_id} is {status}", "look at the Ray dashboard")
    return Finding("ok", "canary job", f"{submission_id} saw the tree and the directories")


def _gpus(api: Api) -> float | None:
    """GPUs of the whole cluster, None when the head does not say."""
    text = str(api.call("GET", "/api/cluster_status?format=1").data.get("data"))
    match = re.search(r"[0-9.]+/([0-9.]+) GPU", text)
    if match:
        return float(match[1])
    return 0.0 if " CPU" in text else None


def _seconds(milliseconds: object) -> float | None:
    return milliseconds / 1000.0 if isinstance(milliseconds, int | float) and milliseconds else None


def _short(reply: Reply) -> str:
    lines = [line for line in reply.text.strip().splitlines() if line.strip()]
    text = lines[-1].strip()[:200] if lines else ""
    return f"{reply.status} {text}".strip() if reply.status else text or "no answer"


def launcher() -> Ray:
    """The launcher called `ray` in plans."""
    return Ray()
