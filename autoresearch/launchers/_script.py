"""The script that runs one attempt on a machine of an engine, and what it notes about itself.

It takes the command byte for byte, ends what the command leaves behind, and appends to a small state file when
the run began and how it ended: evidence that stays when an engine has forgotten the job.
"""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from autoresearch.launchers import Job

LINKED = ("TMPDIR", "RAY_TMPDIR")
CANNOT_START = 97  # the script's exit code when the tree or a secret is missing on the machine

TEMPLATE = r"""#!/bin/bash
# Runs one attempt of an autoresearch campaign: {title}
# Token {token}. Notes go to the state file; output to the log of the engine or the one named below.
state={state}
note() {{ printf '%s %s %s %s\n' "$1" "$(date +%s.%N)" "$$" "$2" 2>/dev/null >>"$state"; }}
fail() {{ printf 'autoresearch: %s\n' "$1" >&2; note failed "$1"; exit {cannot}; }}
{redirect}
# Cancelled while the engine could not be told: do not begin.
if [[ -e $state.cancelled ]]; then exit 143; fi
{needs}{exports}{links}cd -- {tree} || fail 'the tree of the attempt is not visible on this machine'
{proof}{slurm}if [[ -s $state ]]; then printf 'autoresearch: started again after a requeue\n'; fi

command=(
{command}
)

# All that the command starts carries this mark in its environment.
mark='AUTORESEARCH_JOB={token}'
marked() {{ grep -lzxF -- "$mark" /proc/[0-9]*/environ 2>/dev/null | tr -dc '0-9\n'; }}
signal_marked() {{
  local pids
  mapfile -t pids < <(marked)
  if ((${{#pids[@]}})); then kill "-$1" "${{pids[@]}}" 2>/dev/null; fi
}}
leave_nothing() {{
  local try
  [[ -n $(marked) ]] || return 0
  signal_marked TERM
  for ((try = 0; try < 20; try++)); do
    [[ -n $(marked) ]] || return 0
    sleep 0.1
  done
  signal_marked KILL
}}
# Give the command its time, told by us where nobody else has sent it TERM, then end what is left.
ended_early=
stop() {{
  local try
  trap '' TERM INT USR1
  ended_early=1
  note stopped 1
  if [[ $1 == untold ]]; then signal_marked TERM; fi
  for ((try = 0; try < {grace_tenths}; try++)); do
    kill -0 "$child" 2>/dev/null || break
    sleep 0.1
  done
  leave_nothing
}}
leave_nothing # of an earlier start that its engine forgot
{device}note began "$(uname -n)"
note device "$device"
{job}# Where the engine has lost sight of the job, a file beside the state ends it, or the second line behind the cap.
# Reading an empty pipe is a sleep without a process.
exec {{pause}}<> <(:)
{{ while [[ ! -e $state.cancelled{limit} ]]; do read -rt 3 -u "$pause"; {measure}done; kill -USR1 "$$"; }} &
watcher=$!
disown "$watcher"
env -- "$mark" "${{command[@]}}" </dev/null {{pause}}>&- &
child=$!
trap 'stop {told}' TERM INT
trap 'stop untold' USR1
wait "$child"
code=$?
if [[ -n $ended_early ]]; then
  wait "$child"
  code=$?
fi
trap '' TERM INT USR1
kill "$watcher" 2>/dev/null
leave_nothing
note ended "$code"
exit "$code"
"""


# Which GPUs can be used here. A driver that hangs is not waited for.
DEVICE = r"""models() {
  local names='' listed=() ask=(timeout -k 1 6 nvidia-smi --query-gpu=name "--format=csv,noheader")
  if command -v nvidia-smi >/dev/null; then
    names=$("${ask[@]}" ${CUDA_VISIBLE_DEVICES:+"--id=$CUDA_VISIBLE_DEVICES"}) || names=$("${ask[@]}") || names=''
  fi
  [[ -n $names ]] || names=$(sed -n 's/^Model:[[:space:]]*//p' /proc/driver/nvidia/gpus/*/information)
  if [[ -z $names && ! -e /proc/driver/nvidia ]] && ! command -v nvidia-smi >/dev/null; then names=none; fi
  mapfile -t listed < <(sort -u <<<"$names")
  printf -v names '%s + ' "${listed[@]}"
  printf '%s\n' "${names% + }"
} 2>/dev/null
exec {models}< <(models </dev/null)
IFS= read -rt 15 -u "$models" device || device=
exec {models}<&-
"""
# Where the work may be done by other machines, a driver's machine without a GPU says nothing.
ELSEWHERE = "if [[ $device == none ]]; then device=; fi\n"
ONE_NODE = "if [[ $device == none && ${SLURM_JOB_NUM_NODES:-1} != 1 ]]; then device=; fi\n"
# The peak of the anonymous and shared memory, not of cached files, of the job's own cgroup where Slurm makes one.
MEMORY = r"""cgroup='' counted='' peak=0 measured=cgroup
((${SLURM_JOB_NUM_NODES:-1} == 1)) || measured="cgroup of 1 of $SLURM_JOB_NUM_NODES nodes"
while IFS=: read -r _ controllers path; do
  [[ $path =~ ^(.*/job_${SLURM_JOB_ID:-none}STEP)(/|$) ]] || continue
  path=${BASH_REMATCH[1]}
  if [[ ,$controllers, == *,memory,* ]]; then
    cgroup=/sys/fs/cgroup/memory$path counted=' total_rss total_shmem '
  elif [[ -z $controllers && -r /sys/fs/cgroup$path/memory.stat ]]; then
    cgroup=/sys/fs/cgroup$path counted=' anon shmem '
  fi
done </proc/self/cgroup
measure() {
  local key value sum=0
  [[ -n $cgroup ]] || return 0
  while read -r key value; do
    if [[ $counted == *" $key "* ]]; then sum=$((sum + value)); fi
  done 2>/dev/null <"$cgroup/memory.stat"
  if ((sum > peak + peak / 100)); then
    peak=$sum
    note memory "$peak $measured"
  fi
}
"""


class Noted(NamedTuple):
    """What a script noted: epoch seconds of its last start and of its end, its exit code, its machine."""

    began: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    host: str = ""
    failed: str = ""  # why the script could not begin
    stopped: bool = False  # it was sent TERM from outside
    device: str = ""  # models of the GPUs, `none`, or empty when unknown
    memory: int | None = None  # peak in bytes
    memory_source: str = ""
    job: str = ""  # its id in Slurm


def second_line_s(job: Job) -> float | None:
    """Seconds after which a script ends its run by itself, should nobody else be there to enforce the cap."""
    return None if job.cap_s is None else job.cap_s + job.grace_s + 120.0


def quoted(words: Sequence[str]) -> str:
    """The words as a shell would have to read them, one a line."""
    return "\n".join(f"  {shlex.quote(word)}" for word in words)


def _links(env: Mapping[str, str]) -> str:
    """Lines that make the short links to temporary directories on a machine that has its own /tmp."""
    lines = []
    for name in LINKED:
        link = env.get(name, "")
        target = os.path.realpath(link) if link else ""
        if not link or target == link:
            continue
        inside, short, real = (shlex.quote(word) for word in (os.path.dirname(link), link, target))
        lines.append(
            f"if [[ ! -d {short} ]]; then mkdir -p -m 700 -- {inside}; ln -sT -- {real} {short} 2>/dev/null; fi\n"
            f"if [[ -d {short} && -O {inside} ]]; then export {name}={short}; else export {name}={real}; fi\n"
        )
    return "".join(lines)


def render(
    job: Job,
    token: str,
    state: str,
    *,
    redirect: bool,
    exports: Mapping[str, str],
    needs: Sequence[str],
    proof: str = "",
    limit_s: float | None = None,
    slurm: str | None = None,
    alone: bool = False,
    told: bool = True,
) -> str:
    """The script's text.

    Args:
        token: what makes this launch unique; the mark of its processes.
        state: path of the state file.
        redirect: send output to `job.log_path` where that can be written (engines that keep output elsewhere).
        exports: public variables to set; an engine that hands the whole environment over needs none.
        needs: names of variables that must be set on the machine.
        proof: what the tree's `.git` has to hold, so that a folder of the same name is not taken for it.
        limit_s: seconds after which the script ends the run itself, for engines without a limit of their own.
        slurm: `job` or `step`: what of Slurm's is this run's own and nobody else's, so that its memory is the run's.
        alone: all work of the run is done on this machine (on one of these machines, for a job of several nodes).
        told: an engine that ends the job sends TERM to all its processes, not only to the script.
    """
    log = shlex.quote(job.log_path)
    needed = "".join(
        f"[[ -n ${{{key}+set}} ]] || fail 'the machine does not supply {key}'\n" for key in needs if key.isidentifier()
    )
    return TEMPLATE.format(
        title=job.id,
        token=token,
        state=shlex.quote(state),
        cannot=CANNOT_START,
        redirect=f"if : 2>/dev/null >>{log}; then exec >>{log} 2>&1; fi" if redirect else "",
        needs=needed,
        exports="".join(f"export {key}={shlex.quote(value)}\n" for key, value in sorted(exports.items())),
        links=_links(job.env),
        tree=shlex.quote(job.tree),
        proof=f"[[ $(<.git) == {shlex.quote(proof)} ]] || fail 'that is another tree'\n" if proof else "",
        limit="" if limit_s is None else f" && $SECONDS -lt {math.ceil(limit_s)}",
        slurm=MEMORY.replace("STEP", "/step_${SLURM_STEP_ID:-none}" if slurm == "step" else "") if slurm else "",
        measure="measure; " if slurm else "",
        job='note job "${SLURM_JOB_ID-}"\n' if slurm == "job" else "",
        device=DEVICE + (ONE_NODE if alone else ELSEWHERE),
        command=quoted(job.argv),
        told="told" if told else "untold",
        grace_tenths=max(int(job.grace_s * 10), 1),
    )


def write(path: str, text: str) -> None:
    """Write a script durably, executable for its owner only; bytes of arguments that are not UTF-8 stay as they are."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o700)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text.encode("utf-8", "surrogateescape"))
        file.flush()
        os.fsync(file.fileno())
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def token_of(path: str) -> str:
    """The token in a script that was written, empty when there is no such script."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("# Token "):
                    return line[len("# Token ") :].split(".", 1)[0].strip()
    except FileNotFoundError:
        pass
    return ""


def cancel_by_file(state: str) -> None:
    """Tell a script through the file system that it shall end, or not begin: for jobs their engine cannot reach."""
    try:
        with open(f"{state}.cancelled", "ab"):
            pass
    except OSError:
        pass


def read_state(path: str) -> Noted:
    """What the script noted, the last start counting; lines that are not complete are left out."""
    noted = Noted()
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return noted
    start = ""
    for line in text.split("\n")[:-1]:
        word, when, script, value = (*line.split(" ", 3), "", "", "")[:4]
        try:
            time = float(when)
        except ValueError:
            continue
        if word == "began":
            noted, start = Noted(began=time, host=value), script
        elif word == "failed":
            noted = noted._replace(ended=time, exit_code=CANNOT_START, failed=value)
        elif script != start:  # an earlier start that ends late
            continue
        elif word == "ended" and value.isdigit():
            noted = noted._replace(ended=time, exit_code=int(value))
        elif word == "stopped":
            noted = noted._replace(stopped=True)
        elif word == "device":
            noted = noted._replace(device=value)
        elif word == "job" and value.isdigit():
            noted = noted._replace(job=value)
        elif word == "memory":
            size, _, source = value.partition(" ")
            if size.isdigit():
                noted = noted._replace(memory=int(size), memory_source=source)
    return noted
