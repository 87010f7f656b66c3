"""Slurm's command line programs: how they are called and what their answers mean.

States come before exit codes: TIMEOUT, CANCELLED, NODE_FAIL, PREEMPTED and OUT_OF_MEMORY usually carry 0:0.
`sacct --json` is never used: 22.05 reports exit code 0 for a job that failed.
"""

from __future__ import annotations

import calendar
import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from autoresearch.launchers._calls import MISSING, TIMED_OUT, Answer, call

QUERY_S = 25.0  # the clients retry a silent controller for about 9 s before they give up
AWAY = re.compile(
    r"unable to contact slurm controller|socket timed out|connection refused|zero bytes were transmitted|"
    r"transport endpoint|no route to host|connection (reset|timed out)|temporarily unable|no answer in|"
    r"unable to resolve|resource temporarily unavailable|standby mode",
    re.IGNORECASE,
)
FULL = re.compile(r"MaxSubmitJob|MaxJobCount|SubmitJobLimit|job submit limit", re.IGNORECASE)
UNKNOWN = re.compile(r"invalid job id", re.IGNORECASE)
PENDING = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
ENDED = {
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REVOKED",
    "TIMEOUT",
}
KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_CONF_SERVER")
# AUTORESEARCH_MARK marks processes of this machine's supervisor: a job of Slurm's is not one of them.
DANGEROUS = (
    "AUTORESEARCH_MARK",
    "SBATCH_WAIT",
    "SBATCH_ARRAY_INX",
    "SBATCH_EXPORT",
    "SBATCH_TEST_ONLY",
    "SBATCH_GET_USER_ENV",
)
# A user's habits: SCANCEL_INTERACTIVE asks and asks, SCANCEL_STATE and SQUEUE_USERS leave jobs out.
HABITS = ("SQUEUE_", "SCANCEL_", "SACCT_", "SCONTROL_")


class Record(NamedTuple):
    """What one of the programs says about a job. Times are epoch seconds."""

    state: str
    reason: str = ""
    exit_code: int | None = None
    signal: int | None = None
    started_at: float | None = None
    finished_at: float | None = None
    host: str = ""
    by: str = ""  # who cancelled it, where that is told


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """`base` without what an enclosing job or a habit of the user's would slip into a submission."""
    env = {
        key: value
        for key, value in base.items()
        if (not key.startswith("SLURM_") or key in KEPT) and key not in DANGEROUS
    }
    if "SLURM_CONF" not in env and "SLURM_CONF" in os.environ:
        env["SLURM_CONF"] = os.environ["SLURM_CONF"]
    return env


def query(argv: Sequence[str], timeout_s: float = QUERY_S) -> Answer:
    """Ask one of Slurm's programs, with times in UTC and messages in English."""
    env = {key: value for key, value in environment(os.environ).items() if not key.startswith(HABITS)}
    env |= {"TZ": "UTC", "LC_ALL": "C", "SLURM_TIME_FORMAT": "standard"}
    return call(argv, timeout_s=timeout_s, env=env)


def is_away(answer: Answer) -> bool:
    """Did the controller not answer? That is not the same as a job it does not know."""
    return answer.code == TIMED_OUT or (answer.code not in (0, MISSING) and bool(AWAY.search(answer.err)))


def when(text: str) -> float | None:
    """Epoch seconds of Slurm's `2026-11-30T20:46:01` in UTC; None for `N/A`, `Unknown` and the like."""
    try:
        return float(calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%S")))
    except ValueError:
        return None


def _codes(text: str) -> tuple[int | None, int | None]:
    match = re.fullmatch(r"(\d+):(\d+)", text, re.ASCII)
    return (int(match[1]), int(match[2])) if match else (None, None)


def _state(text: str) -> tuple[str, str]:
    """`CANCELLED by 1000` is the state CANCELLED, by 1000."""
    word, _, rest = text.strip().partition(" ")
    return word.rstrip("+"), rest.removeprefix("by ").strip()


def from_squeue(line: str) -> Record:
    """A line of `squeue -o '%T|%S|%N|%r'`."""
    state, start, nodes, reason = (*line.split("|", 3), "", "", "")[:4]
    return Record(_state(state)[0], "" if reason == "None" else reason, started_at=when(start), host=nodes)


def from_scontrol(line: str) -> Record:
    """One `scontrol show job -o` line: KEY=VALUE words, a value may hold blanks up to the next key."""
    fields = dict(re.findall(r"(?:^| )([A-Za-z/:]+)=(.*?)(?= [A-Za-z/:]+=|$)", line.strip()))
    code, signal = _codes(fields.get("ExitCode", ""))
    host = fields.get("BatchHost") or fields.get("NodeList", "")
    reason = fields.get("Reason", "")
    return Record(
        _state(fields.get("JobState", ""))[0],
        "" if reason == "None" else reason,
        code,
        signal,
        when(fields.get("StartTime", "")),
        when(fields.get("EndTime", "")),
        "" if host == "(null)" else host,
    )


def from_sacct(line: str) -> Record:
    """A line of `sacct -X -n -P -o state,exitcode,start,end,nodelist`."""
    state, codes, start, end, nodes = (*line.split("|"), "", "", "", "", "")[:5]
    word, by = _state(state)
    code, signal = _codes(codes)
    return Record(word, "", code, signal, when(start), when(end), "" if nodes == "None assigned" else nodes, by)


def look_up(job_id: str) -> Record | Answer | None:
    """The job's record from the queue; an Answer when the controller is away, None when it does not know the job."""
    answer = query(["squeue", "-h", "-t", "all", "-j", job_id, "-o", "%T|%S|%N|%r"])
    line = answer.out.strip().splitlines()
    if answer.code == 0 and line:
        return from_squeue(line[0])
    if answer.code != 0 and not UNKNOWN.search(answer.err):
        return answer
    return None


def finished(job_id: str) -> Record | None:
    """The job's record from whichever book the site keeps: the controller's memory, accounting, or completion log."""
    answer = query(["scontrol", "show", "job", "-o", job_id])
    if answer.code == 0 and "JobState=" in answer.out:
        return from_scontrol(answer.out.strip().splitlines()[0])
    fields = "state,exitcode,start,end,nodelist"
    for argv in (
        ["sacct", "-X", "-n", "-P", "-S", "now-90days", "-j", job_id, "-o", fields],
        ["sacct", "-c", "-n", "-P", "-S", "now-90days", "-j", job_id, "-o", fields],
        ["sacct", "-c", "-n", "-P", "-j", job_id, "-o", "state,exitcode"],
    ):
        answer = query(argv)
        lines = answer.out.strip().splitlines()
        if answer.code == 0 and lines and _state(lines[-1].split("|")[0])[0]:
            return from_sacct(lines[-1])
    return None


def find(name: str) -> str | Answer:
    """The id of the newest job with that unique name; empty: no book knows one, an Answer: the queue is away."""
    away: Answer | None = None
    for argv in (
        ["squeue", "-h", "-t", "all", "--name", name, "-o", "%A|%j"],
        ["sacct", "-X", "-n", "-P", "-S", "now-90days", "--name", name, "-o", "jobidraw,jobname"],
        ["sacct", "-c", "-n", "-P", "--name", name, "-o", "jobid,jobname"],  # knows --name but gives all jobs
    ):
        answer = query(argv)
        pairs = [line.split("|", 1) for line in answer.out.splitlines()]
        ids = [pair[0] for pair in pairs if pair[0].isdigit() and pair[1:] == [name]]
        if answer.code == 0 and ids:
            return max(ids, key=int)
        if argv[0] == "squeue" and answer.code != 0:
            away = answer
    return away or ""


def max_rss(job_id: str) -> float | None:
    """The most memory that one task of a job held, in GiB, as accounting sampled it; None where it did not."""
    answer = query(["sacct", "-n", "-P", "-S", "now-90days", "-j", job_id, "-o", "maxrss"])
    found = [re.fullmatch(r"([0-9.]+)([KMGT]?)", word, re.ASCII) for word in answer.out.split()]
    sizes = [float(match[1]) * 1024.0 ** " KMGT".index(match[2] or " ") for match in found if match]
    return max(sizes) / 1024**3 if answer.code == 0 and any(sizes) else None
