"""Looks before the first Slurm job: is Slurm there, does it take the job, does a job see our directories."""

from __future__ import annotations

import os
import secrets
import shlex
import time
from collections.abc import Callable, Mapping, Sequence

from autoresearch.errors import AutoresearchError
from autoresearch.launchers import Finding
from autoresearch.launchers import _slurm_calls as calls
from autoresearch.launchers._calls import MISSING, Answer, call
from autoresearch.launchers._remote import limits_from
from autoresearch.launchers._slurm_submit import SUBMIT_S, has_option, pairs, startup_s, words
from autoresearch.launchers._waiting import Limits

NEEDED = ("sbatch", "squeue", "scontrol", "scancel")
GPU_OPTIONS = ("--gres", "--gpus", "--gpus-per-node", "--gpus-per-task", "--exclusive", "--tres-per-task")
CANARY = """#!/bin/bash
exec 2>/dev/null
answer={answer}
for path in {paths}; do
  if [[ ! -d $path ]]; then printf 'missing %s\\n' "$path"
  elif [[ $path != {tree} && ! -w $path ]]; then printf 'read-only %s\\n' "$path"
  else printf 'ok %s\\n' "$path"; fi
done >"$answer.part"
mv -- "$answer.part" "$answer"
"""


def check(settings: Mapping[str, str], gpus_needed: int, nodes: int) -> list[Finding]:
    """Findings for `doctor` and before the first launch, the first hindrance last.

    Args:
        gpus_needed: GPUs the recipe wants on each node, 0 when it wants none or that is not known.
        nodes: how many nodes it wants.
    """
    for program in NEEDED:
        answer = call([program, "--version"], timeout_s=10.0)
        if answer.code == MISSING:
            return [Finding("FAIL", program, "not installed", "run on a machine that submits to Slurm")]
        if answer.code != 0:
            return [Finding("FAIL", program, answer.text, "set SLURM_CONF, or run on a machine that submits to Slurm")]
    findings = [Finding("ok", "Slurm", answer.out.strip())]
    try:
        parts = words(settings)
        pairs(settings)
        startup_s(settings)
        limits_from(settings, Limits())
    except AutoresearchError as error:
        return [*findings, Finding("FAIL", error.what, error.why, error.fix)]
    ping = calls.query(["scontrol", "ping"])
    if " is UP" not in ping.out:
        return [*findings, Finding("FAIL", "the controller", "does not answer", "try later: scontrol ping")]
    findings.append(_test_only(parts))
    findings.append(_books())
    findings.extend(_resources(parts, settings, gpus_needed, nodes))
    return findings


def _test_only(parts: Sequence[str]) -> Finding:
    answer = call(
        ["sbatch", "--test-only", *parts, "--wrap=true"], timeout_s=SUBMIT_S, env=calls.environment(os.environ)
    )
    if answer.code == 0:
        return Finding("ok", "SLURM_ARGS", answer.text.removeprefix("sbatch: "))
    # Drained nodes do not exist for --test-only, while sbatch itself takes the job and lets it wait for them.
    if "node configuration is not available" in answer.text:
        away = calls.query(["sinfo", "-h", "-N", "-t", "down,drain", "-o", "%N"]).out.split()
        if away:
            nodes = " ".join(sorted(set(away))[:4])
            return Finding("warn", "SLURM_ARGS", f"no node that is up fits; {nodes} down or drained", "see: sinfo -R")
    return Finding("FAIL", "SLURM_ARGS", answer.text, "correct SLURM_ARGS in the plan")


def _books() -> Finding:
    if calls.query(["sacct", "-X", "-n", "-P", "-j", "1", "-o", "state"]).code == 0:
        return Finding("ok", "accounting", "sacct answers")
    if calls.query(["sacct", "-c", "-n", "-P", "-j", "1", "-o", "state"]).code == 0:
        return Finding("ok", "accounting", "no sacct, but the completion log can be read")
    return Finding(
        "warn", "accounting", "no sacct here", "ends are read from the controller's memory and the job's notes"
    )


def _resources(parts: list[str], settings: Mapping[str, str], gpus_needed: int, nodes: int) -> list[Finding]:
    found = []
    asks = any(has_option(parts, option) for option in GPU_OPTIONS) or has_option(parts, "--gpus", "-G")
    if gpus_needed and not asks and not settings.get("SLURM_SCRIPT"):
        found.append(
            Finding(
                "warn",
                "GPUs",
                f"the recipe wants {gpus_needed} a node, SLURM_ARGS asks for none",
                f"add --gpus-per-node={gpus_needed} to SLURM_ARGS",
            )
        )
    if nodes > 1 and not has_option(parts, "--nodes", "-N"):
        found.append(Finding("warn", "nodes", f"the recipe wants {nodes}", f"add --nodes={nodes} to SLURM_ARGS"))
    if has_option(parts, "--time", "-t"):
        found.append(Finding("warn", "--time", "SLURM_ARGS sets it", "leave it out, and it follows the plan's cap"))
    if settings.get("SLURM_SCRIPT") and not settings.get("SLURM_CONTAINER") and not os.environ.get("CONTAINER"):
        found.append(Finding("FAIL", "SLURM_CONTAINER", "is not set", "name the image that the script starts"))
    return found


def canary(
    settings: Mapping[str, str],
    tree: str,
    directories: Sequence[str],
    secret_keys: Sequence[str] = (),
    wait_s: float = 300.0,
    stop: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = lambda text: None,
) -> Finding:
    """Prove by a small job that the tree can be seen and the directories written where jobs run.

    Where an allocation is held it is a step of that, which may be all that the cluster has room for.

    Args:
        tree: an attempt's worktree.
        directories: the experiment's directories; the first also carries the answer.
        secret_keys: not looked at: Slurm hands the submitter's environment over.
        wait_s: seconds that the job may take once it is not in the queue any more, where it may wait as long as a run
            may (QUEUE_LIMIT).
        stop: true once the canary is not wanted any more; it is cancelled then.
        say: told what it waits for.
    """
    token = secrets.token_hex(4)
    answer_path = os.path.join(directories[0], f".canary-{token}")
    script = CANARY.format(
        answer=shlex.quote(answer_path),
        paths=" ".join(shlex.quote(path) for path in (tree, *directories)),
        tree=shlex.quote(tree),
    )
    wait = _Wait(wait_s, limits_from(settings, Limits()).queue_s, stop, say)
    if settings.get("SLURM_HOLD"):
        try:
            return _as_step(settings["SLURM_HOLD"], script, answer_path, wait)
        finally:
            _forget(answer_path)
    argv = ["sbatch", *words(settings), "--parsable", "--nodes=1", "--ntasks=1", "--time=5", "--no-requeue"]
    argv += [f"--job-name=autoresearch-canary-{token}", "--output=/dev/null", "--chdir=/", "--export=PATH"]
    submitted = call(argv, timeout_s=SUBMIT_S, env=calls.environment(os.environ), stdin=script)
    job_id = submitted.out.strip().split(";")[0]
    if submitted.code != 0 or not job_id.isdigit():
        return Finding("FAIL", "canary job", submitted.text, "correct SLURM_ARGS in the plan")
    try:
        return _read(job_id, answer_path, wait)
    finally:
        calls.query(["scancel", job_id])
        _forget(answer_path)


def _forget(path: str) -> None:
    if os.path.exists(path):
        os.unlink(path)


class _Wait:
    """How long to wait: for ever in the queue where no limit is set, `after_s` seconds behind it."""

    def __init__(
        self, after_s: float, queue_s: float | None, stop: Callable[[], bool], say: Callable[[str], None]
    ) -> None:
        self.after_s, self.stop, self.say = after_s, stop, say
        self.queue_until = None if queue_s is None else time.monotonic() + queue_s
        self.until, self.said = time.monotonic() + after_s, ""

    def queued(self, text: str) -> None:
        """It waits in the queue still."""
        self.until = time.monotonic() + self.after_s
        if text != self.said:
            self.said = text
            self.say(f"canary job: {text}")

    def over(self) -> str:
        """Why not to wait any longer, empty while there is no reason."""
        if self.stop():
            return "it was given up"
        now = time.monotonic()
        late = now >= self.until or (self.queue_until is not None and now >= self.queue_until)
        return "no answer yet" if late else ""


def _as_step(allocation: str, script: str, path: str, wait: _Wait) -> Finding:
    while True:
        record = calls.look_up(allocation)
        state = "away" if isinstance(record, Answer) else record.state if record else "gone"
        if state == "RUNNING":
            break
        if state == "gone" or state in calls.ENDED:
            fix = "give it back: make hold RELEASE=1"
            return Finding("FAIL", "the held allocation", f"{allocation} has ended", fix)
        if state in calls.PENDING:
            wait.queued(f"allocation {allocation} is {state}")
        if wait.over():
            return Finding("FAIL", "the held allocation", f"{allocation} is {state}", "try again when it runs")
        time.sleep(1.0)
    argv = ["srun", f"--jobid={allocation}", "--overlap", "--nodes=1", "--ntasks=1", "--cpu-bind=none", "--mpi=none"]
    argv += ["--output=none", "--chdir=/", "--export=PATH", "bash", "-c", script]
    ran = call(argv, timeout_s=SUBMIT_S, env=calls.environment(os.environ))
    if ran.code != 0:
        return Finding("FAIL", "canary step", ran.text, f"look at allocation {allocation}: make hold RELEASE=1")
    return _read(allocation, path, _Wait(15.0, None, wait.stop, wait.say))


def _read(job_id: str, path: str, wait: _Wait) -> Finding:
    pause, ended_at = 0.2, 0.0
    state = "pending"
    while not (over := wait.over()):
        os.listdir(os.path.dirname(path))  # makes network file systems look again
        if os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                bad = [line for line in file.read().splitlines() if not line.startswith("ok ")]
            if bad:
                return Finding("FAIL", "canary job", f"on the node: {'; '.join(bad)}", "use a shared SCRATCH")
            return Finding("ok", "canary job", f"job {job_id} saw the tree and the directories")
        record = calls.look_up(job_id)
        if not isinstance(record, Answer):
            state = "unknown" if record is None else f"{record.state} {record.reason}".strip()
            if record is not None and record.state in calls.PENDING:
                wait.queued(state)
            if record is None or record.state in calls.ENDED:
                ended_at = ended_at or time.monotonic()
                if time.monotonic() - ended_at > 15.0:
                    return Finding(
                        "FAIL",
                        "canary job",
                        f"its answer did not come back (job {job_id}: {state})",
                        "use a shared SCRATCH",
                    )
        time.sleep(pause)
        pause = min(pause * 1.3, 5.0)
    return Finding("FAIL", "canary job", f"{over} ({state})", "try again when the queue is shorter")
