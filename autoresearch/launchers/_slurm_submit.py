"""How an attempt is handed to `sbatch`: options, environment, and the script that lies beside the logs."""

from __future__ import annotations

import math
import os
import re
import secrets
import shlex
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from autoresearch.errors import AutoresearchError, Refused, TryAgain, Usage
from autoresearch.launchers import Job, Watch
from autoresearch.launchers import _slurm_unanswered as unanswered
from autoresearch.launchers._calls import Answer, call, refuse_secrets
from autoresearch.launchers._remote import duration
from autoresearch.launchers._script import cancel_by_file, render, token_of, write
from autoresearch.launchers._slurm_calls import environment, query

# What only autoresearch may say, or what would break a promise (arrays, waiting, other output, partial environments).
OURS_LONG = (
    *("--array", "--chdir", "--clusters", "--error", "--export", "--export-file", "--hold", "--ignore-pbs", "--input"),
    *("--job-name", "--open-mode", "--output", "--parsable", "--quiet", "--test-only", "--wait", "--wrap"),
)
OURS_SHORT = set("aDeHiJMoQW")
# Options of sbatch that take no value, or only one behind a `=`.
FLAGS_LONG = (
    *("--contiguous", "--exclusive", "--get-user-env", "--nice", "--no-kill", "--no-requeue", "--overcommit"),
    *("--oversubscribe", "--propagate", "--reboot", "--requeue", "--spread-job", "--use-min-nodes", "--verbose"),
)
FLAGS_SHORT = "kOsv"
ARRAY = re.compile(rb"^#SBATCH\b[^\n#]*\s(?:-a|--arr?a?y?\b)", re.MULTILINE)
# On a cluster of ray.sub's own these would send the driver elsewhere, or name links that containers do not have.
NOT_IN_CONTAINER = ("RAY_ADDRESS", "RAY_TMPDIR", "TMPDIR", "UV_CACHE_DIR")
MARGIN_S = 120.0
RAY_SUB_STARTUP_S = 45 * 60.0  # ray.sub itself waits 30 min for workers and 10 for a sandbox
SUBMIT_S = 60.0
TRIES = 4  # submissions of one start, should the controller never take one


class Files(NamedTuple):
    """The files of one submission, all in the attempt's logs."""

    script: str
    state: str
    batch_log: str


def files(job: Job, attempt: int = 0, token: str = "") -> Files:
    """The files of the n-th start of an attempt; 0 means the newest that exists (or the first).

    Args:
        token: of the submission, by default of the one whose script lies there. Each has notes of its own, so that
            one that was given up cannot be taken for, nor stop, the one that took its place.
    """
    if attempt == 0:
        attempt = 2 if os.path.exists(f"{job.logs}/slurm.2.sh") else 1
    stem = f"{job.logs}/slurm" + ("" if attempt == 1 else f".{attempt}")
    token = token or token_of(f"{stem}.sh")
    return Files(f"{stem}.sh", f"{stem}.{token or 'none'}.state", f"{stem}.log")


def name_of(job: Job, token: str) -> str:
    """The job's name in Slurm: readable, and unique for good, because a name is how a lost id is found again."""
    return f"{job.id}-{token}"


def words(settings: Mapping[str, str]) -> list[str]:
    """SLURM_ARGS as words.

    Raises:
        Usage: quotes that do not match, or an option that autoresearch has to set itself.
    """
    parts = _split(settings, "SLURM_ARGS")
    for part in parts:
        option = part.split("=", 1)[0]
        long = option.startswith("--") and any(ours.startswith(option) for ours in OURS_LONG)
        short = re.match(r"-[A-Za-z]", part) and part[1] in OURS_SHORT
        if long or short or part in ("--", ":"):
            raise Usage("SLURM_ARGS", f"{part!r} is not for the plan", "leave it out: autoresearch sets what it needs")
    stray = next(_neither_option_nor_value(parts), None)
    if stray is not None:
        fix = "only options of sbatch; a script of the repository goes into SLURM_SCRIPT"
        raise Usage("SLURM_ARGS", f"{stray!r} would be run as the job's script", fix)
    return parts


def _split(settings: Mapping[str, str], knob: str) -> list[str]:
    line = settings.get(knob, "")
    try:
        return shlex.split(line)
    except ValueError as error:
        raise Usage(knob, f"{line!r}: {error}", "write it as on a command line") from None


def _neither_option_nor_value(parts: list[str]) -> Iterator[str]:
    takes_value = False
    for part in parts:
        if part.startswith("--"):
            takes_value = "=" not in part and part not in FLAGS_LONG
        elif part.startswith("-"):
            takes_value = len(part[1:].lstrip(FLAGS_SHORT)) == 1
        elif takes_value:
            takes_value = False
        else:
            yield part


def has_option(parts: list[str], long: str, short: str = "") -> bool:
    """Is an option given, in any of the forms sbatch takes?"""
    return any(
        part.split("=", 1)[0] == long or (short and part.startswith(short) and not part.startswith("--"))
        for part in parts
    )


def pairs(settings: Mapping[str, str]) -> dict[str, str]:
    """SLURM_ENV (`GPUS_PER_NODE=8 UV_CACHE_DIR_OVERRIDE=/x`) as variables for the site's script."""
    found = {}
    for word in _split(settings, "SLURM_ENV"):
        key, equals, value = word.partition("=")
        if not equals or not re.fullmatch(r"[A-Z_][A-Z0-9_]*", key, re.ASCII):
            raise Usage("SLURM_ENV", f"{word!r} is not NAME=value", "")
        found[key] = value
    return found


def startup_s(settings: Mapping[str, str]) -> float:
    """Seconds that a cluster may take from the job's start to the run's, 0 for a plain script."""
    if settings.get("SLURM_STARTUP"):
        return duration(settings, "SLURM_STARTUP")
    return RAY_SUB_STARTUP_S if settings.get("SLURM_SCRIPT") else 0.0


def minutes(job: Job, startup: float) -> int | None:
    """`--time`: Slurm counts whole minutes and looks twice a minute, so it is the second line behind our own cap."""
    return None if job.cap_s is None else math.ceil((job.cap_s + job.grace_s + startup + MARGIN_S) / 60)


def pattern(path: str) -> str:
    """A path for `--output`, where `%` and backslashes would mean something."""
    if "\\" in path:
        raise Refused(
            "the log's path", f"{path!r} holds a backslash, which Slurm cannot take", "choose another SCRATCH"
        )
    return path.replace("%", "%%")


def arguments(job: Job, settings: Mapping[str, str], name: str, where: Files, script: str) -> list[str]:
    """The whole `sbatch` command line of one submission."""
    parts = words(settings)
    argv = ["sbatch", "--requeue", "--kill-on-invalid-dep=yes"]
    limit = minutes(job, startup_s(settings))
    if limit is not None and not has_option(parts, "--time", "-t"):
        argv.append(f"--time={limit}")
    output = where.batch_log if settings.get("SLURM_SCRIPT") else job.log_path
    return [
        *argv,
        *parts,
        "--parsable",
        f"--job-name={name}",
        f"--output={pattern(output)}",
        "--open-mode=append",
        f"--chdir={job.tree}",
        "--export=ALL",
        script,
    ]


def mounts(job: Job, given: str) -> str:
    """MOUNTS of ray.sub: the plan's, and the attempt's tree and directories where those do not cover them."""
    covered = [entry.split(":")[0].rstrip("/") for entry in given.split(",") if entry]
    added = []
    for path in sorted({job.tree, job.exports.get("EXP_DIR", job.logs), job.logs}, key=len):
        if any(path == have or path.startswith(have + "/") for have in covered):
            continue
        if re.search(r"[:,\s]", path):
            raise Refused("the attempt's path", f"{path!r} cannot be mounted in a container", "choose another SCRATCH")
        covered.append(path)
        added.append(f"{path}:{path}")
    return ",".join([given, *added] if given else added)


def site_environment(job: Job, settings: Mapping[str, str], where: Files) -> dict[str, str]:
    """What a script like NeMo-RL's ray.sub takes from the environment.

    COMMAND is only the path of our script: ray.sub echoes and stores it, so nothing of value may be in it.
    """
    env = {key: value for key, value in job.env.items() if key not in NOT_IN_CONTAINER} | pairs(settings)
    container = settings.get("SLURM_CONTAINER") or env.get("CONTAINER", "")
    if not container:
        raise Refused("SLURM_SCRIPT", "needs a container", "set SLURM_CONTAINER in the plan")
    env["CONTAINER"] = container
    env["MOUNTS"] = mounts(job, settings.get("SLURM_MOUNTS") or env.get("MOUNTS", ""))
    env["COMMAND"] = f"bash {shlex.quote(where.script)}"
    env["BASE_LOG_DIR"] = job.logs
    refuse_secrets(job, "MOUNTS", [env["MOUNTS"], container, env["COMMAND"]])
    return env


def site_script(root: str, name: str) -> str:
    """The path of the script of SLURM_SCRIPT.

    Raises:
        Refused: it is not there, or asks for a job array, whose jobs would all write one run's logs.
    """
    script = os.path.join(root, name)
    try:
        with open(script, "rb") as file:
            text = file.read(1 << 20)
    except OSError:
        raise Refused("SLURM_SCRIPT", f"{name} is not in {root}", "give its path from the root") from None
    if ARRAY.search(text):
        raise Refused("SLURM_SCRIPT", f"{name} asks for a job array", "take its #SBATCH --array line out")
    return script


class Asked(NamedTuple):
    """A submission that may have been taken."""

    name: str
    state: str


class Prepared(NamedTuple):
    """How a submission whose script is written is handed over."""

    argv: list[str]
    env: dict[str, str]
    name: str
    state: str


def prepare(job: Job, settings: Mapping[str, str], attempt: int) -> Prepared:
    """Write the script of a submission and say how it is submitted."""
    refuse_secrets(job, "the command", job.argv)
    token, site = secrets.token_hex(4), settings.get("SLURM_SCRIPT", "")
    where = files(job, attempt, token)
    name = name_of(job, token)
    if site:
        script, env = site_script(job.tree, site), site_environment(job, settings, where)
        there = job._replace(env=env)
        text = render(there, token, where.state, redirect=True, exports={}, needs=(), slurm="job", told=False)
    else:
        script, env = where.script, dict(job.env)
        text = render(
            job, token, where.state, redirect=False, exports={}, needs=(), slurm="job", alone=True, told=False
        )
    argv = arguments(job, settings, name, where, script)
    shown = " ".join(shlex.quote(word) for word in argv)
    write(where.script, text.replace("\n# Token ", f"\n# Submitted with: {_comment(shown)}\n# Token ", 1))
    return Prepared(argv, environment(env), name, where.state)


def _comment(text: str) -> str:
    return text.replace("\n", " ")


def submit(job: Job, settings: Mapping[str, str], watch: Watch, attempt: int = 1, patience_s: float = 3600.0) -> str:
    """Hand the attempt to Slurm and record its id; a controller that is away is waited for.

    Args:
        patience_s: seconds that a controller may stay silent; the campaign's deadline ends the wait as well.
    Raises:
        Refused: Slurm will not take it as it is.
        TryAgain: the user's queue is full, the controller stays away, or a stop was asked for meanwhile.
    """
    until = min(time.time() + patience_s, job.deadline or math.inf)
    site = bool(settings.get("SLURM_SCRIPT"))
    before, why = _unanswered(job, attempt), "not answered"
    for _ in range(TRIES):
        if before:
            job_id = unanswered.settle(before.name, before.state, why, watch, until, site)
            if job_id:
                watch.submitted(job_id)
                return job_id
            cancel_by_file(before.state)  # should it arrive after all, it does not begin
            if watch.stop_requested():
                raise TryAgain("sbatch", "a stop was asked for", "nothing was submitted")
        made = prepare(job, settings, attempt)
        answer = call(made.argv, timeout_s=SUBMIT_S, env=made.env, cwd=job.tree)
        job_id = answer.out.strip().split("\n")[-1].split(";")[0]
        if answer.code == 0 and job_id.isdigit():
            watch.submitted(job_id)
            if before:
                query(["scancel", f"--name={before.name}"])
            return job_id
        _refuse_if_sure(answer, made.state)
        before, why = Asked(made.name, made.state), answer.text
    cancel_by_file(files(job, attempt).state)
    raise TryAgain("sbatch", why, "the job may have been taken; if so, it ends by itself")


def _unanswered(job: Job, attempt: int) -> Asked | None:
    """The submission whose answer nobody lived to record."""
    where = files(job, attempt)
    token = token_of(where.script)
    if not token or unanswered.is_withdrawn(where.state):
        return None
    return Asked(name_of(job, token), where.state)


def _refuse_if_sure(answer: Answer, state: str) -> None:
    try:
        unanswered.refuse_if_sure(answer)
    except AutoresearchError:
        cancel_by_file(state)  # whoever comes later need not ask for it
        raise


def recover(job: Job, attempt: int = 0) -> str | None:
    """The id of a job that was submitted but never recorded; empty when none was taken, None when nobody can say."""
    where = files(job, attempt)
    token = token_of(where.script)
    return unanswered.recover(name_of(job, token), where.state) if token else ""
