"""The launcher `local`: the run is a child of its supervisor, on this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping

from autoresearch.command import program
from autoresearch.errors import Refused
from autoresearch.launchers import Finding, Job, Outcome, Watch
from autoresearch.running import gpu_types, processes, runfile, runner, watchdog

NO_ID = "none"
ASK_S = 20.0
ELSEWHERE = "LAUNCHER=slurm, LAUNCHER=ray or LAUNCHER=nrl-k8s"


class Local:
    """Runs a job on this machine. Its devices are taken by the supervisor before (see `devices`)."""

    name = "local"

    def check(self, settings: Mapping[str, str], gpus_needed: int, nodes: int) -> list[Finding]:
        """Look whether this machine has the GPUs the job needs, and whether somebody uses them."""
        found: list[Finding] = []
        if nodes > 1:
            found.append(Finding("FAIL", "nodes", f"the recipe needs {nodes} nodes, this is one", ELSEWHERE))
        if gpus_needed <= 0 and not settings.get("GPUS"):
            found = found or [Finding("ok", "local", "runs on this machine, no GPU needed")]
        else:
            found += _gpus(settings.get("GPUS") or os.environ.get("CUDA_VISIBLE_DEVICES", ""), gpus_needed)
        if settings.get("FORCE_LOCAL", "") in ("", "0"):
            return found
        return [one._replace(level="warn") if one.level == "FAIL" else one for one in found]

    def submit(self, job: Job, watch: Watch) -> str:
        """Return `none`: the run begins with `follow`, in the same process."""
        watch.submitted(NO_ID)
        return NO_ID

    def follow(self, job: Job, job_id: str, watch: Watch) -> Outcome:
        """Run the job to its end; see `runner.run`."""
        what = command(job)
        return runner.run(what, watch)._replace(device=gpu_types.visible(what.env.get("CUDA_VISIBLE_DEVICES")))

    def cancel(self, job: Job, job_id: str) -> None:
        """End what carries the job's mark."""
        record = runfile.read(job.logs)
        if record is not None:
            processes.end_marked(processes.parse_mark(record.mark), job.grace_s)

    def describe(self, job_id: str, settings: Mapping[str, str]) -> str:
        """Return one line on the job's state."""
        return "on this machine"

    def collect(self, job: Job, job_id: str) -> Outcome | None:
        """Finish a run whose supervisor was killed; see `runner.recover`."""
        found = runner.recover(job.logs, grace_s=job.grace_s)
        device = gpu_types.visible(command(job).env.get("CUDA_VISIBLE_DEVICES"))
        return found and found._replace(device=device)


def command(job: Job) -> runner.Command:
    """Return what the runner is to do for a job.

    Raises:
        Usage: a knob in the settings that is not what it should be.
    """
    env = dict(job.env)
    gpus = job.settings.get("GPUS", "")
    if gpus:
        env["CUDA_VISIBLE_DEVICES"] = gpus
    checkpoints = job.exports.get("CHECKPOINT_DIR", "")
    return runner.Command(
        job.argv,
        job.tree,
        env,
        job.logs,
        job.log_path,
        job.cap_s,
        job.grace_s,
        job.deadline,
        job.settings.get("MARK", ""),
        watchdog.limits(
            job.settings,
            disk_paths=(job.logs, job.tree),
            growing=tuple(path for path in (job.logs, checkpoints) if path),
        ),
    )


def _gpus(chosen: str, needed: int) -> list[Finding]:
    listing = _ask("--query-gpu=index,uuid,name")
    if listing is None:
        fix = f"install the driver, or use another machine: {ELSEWHERE}"
        return [Finding("FAIL", "GPUs", f"the recipe needs {max(needed, 1)}, nvidia-smi finds none here", fix)]
    here = [[field.strip() for field in line.split(",")] for line in listing]
    wanted = [name.strip() for name in chosen.split(",") if name.strip()]
    missing = [name for name in wanted if not _is_known(name, here)]
    found = []
    if missing:
        found.append(Finding("FAIL", "GPUs", f"no GPU {' '.join(missing)} here", f"there are {len(here)}"))
    usable = len(wanted) if wanted else len(here)
    if usable < needed:
        fix = f"a recipe for fewer GPUs, or {ELSEWHERE}"
        found.append(Finding("FAIL", "GPUs", f"the recipe needs {needed}, there are {usable}", fix))
    found.extend(_users(here, wanted))
    return found or [Finding("ok", "GPUs", f"{usable} usable: {here[0][2] if here else ''}")]


def _is_known(name: str, here: list[list[str]]) -> bool:
    """Is a GPU here, by its number or, as CUDA takes it, the beginning of its UUID? Parts of GPUs are not listed."""
    if name.startswith("MIG-"):
        return True
    return any(name == fields[0] or (name[:4] == "GPU-" and fields[1].startswith(name)) for fields in here)


def _users(here: list[list[str]], wanted: list[str]) -> list[Finding]:
    """Warn of processes that compute on the GPUs we want."""
    ours = {fields[1] for fields in here if not wanted or any(_is_known(name, [fields]) for name in wanted)}
    found = []
    for line in _ask("--query-compute-apps=gpu_uuid,pid,process_name,used_memory") or []:
        fields = [field.strip() for field in line.split(",")]
        if len(fields) >= 4 and fields[0] in ours:
            text = f"pid {fields[1]} ({fields[2]}) uses {fields[3]}"
            found.append(Finding("warn", "GPUs", text, "wait for it, or choose others with GPUS"))
    return found


def _ask(query: str) -> list[str] | None:
    """Return nvidia-smi's lines, or None without an answer; a driver that hangs is given up on."""
    try:
        path = program(["nvidia-smi"])
    except Refused:
        return None
    raw = processes.bounded(lambda: _run([path, query, "--format=csv,noheader"]), ASK_S)
    lines = [line for line in (raw or b"").decode("utf-8", "replace").split("\n") if line.strip()]
    return None if raw is None or (not lines and "query-gpu" in query) else lines


def _run(argv: list[str]) -> bytes:
    import subprocess

    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
    )
    return done.stdout if done.returncode == 0 else b""


def launcher() -> Local:
    """Return the launcher."""
    return Local()
