"""Where a run goes: one module a launcher behind one small protocol.

The supervisor of an attempt calls `submit` once, then `follow` until the job has ended. Both run in
the supervisor's own process, which survives its terminal; after a kill -9 of everything, recovery
calls `follow` again with the recorded job id (remote engines) or `collect` what is left (local).

A fifth launcher is one file: `autoresearch/launchers/<name>.py` with a function `launcher()` that
returns an object with these methods. Names use `_` in the file and `-` in the plan (`nrl-k8s` is
`nrl_k8s.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import NamedTuple, Protocol

from autoresearch.errors import Usage

NAMES = ("local", "slurm", "ray", "nrl-k8s")


class Job(NamedTuple):
    """One launch of an attempt, ready to run.

    `env` is the whole environment of a local run, secrets included; `exports` is the part of it
    that is ours and public (caches, attempt directories), for engines that build an environment of
    their own; `secret_keys` names the keys of `env` whose values must never be written anywhere.
    """

    id: str  # unique and readable: <campaign>-<experiment>[.<attempt>]
    argv: list[str]
    tree: str  # absolute path of the attempt's worktree, the run's working directory
    env: Mapping[str, str]
    exports: Mapping[str, str]
    secret_keys: tuple[str, ...]
    logs: str  # absolute directory of this attempt's logs; scripts lie here
    log_path: str  # where stdout and stderr end up: <logs>/run.log
    cap_s: float | None  # wall-clock cap of the run in seconds, queue time not counted
    grace_s: float  # seconds between TERM and KILL
    deadline: float | None  # the campaign's deadline, epoch seconds
    settings: Mapping[str, str]  # the launcher's own settings from the plan, by knob name


class Outcome(NamedTuple):
    """How a run ended. Times are epoch seconds; `elapsed_s` is monotonic where a clock of ours ran."""

    end_cause: str  # a word of DESIGN section 2: ok, `exit N`, `signal N`, timeout, disk, ...
    exit_code: int | None
    started_at: float | None
    finished_at: float | None
    elapsed_s: float
    memory_gb: float | None = None  # peak, GiB
    memory_source: str = ""  # how it was measured: `nvml`, `pss`, ...
    host: str = ""
    reason: str = ""  # one short line for the row when there is more to say
    device: str = ""  # the type of the GPUs the run had: their models; `none` where there is none, empty when unknown


class Finding(NamedTuple):
    """One line of `doctor`: level is `ok`, `warn` or `FAIL`; `fix` is the remedy."""

    level: str
    what: str
    detail: str
    fix: str = ""


class Watch(NamedTuple):
    """What the supervisor lends a launcher while it follows a job.

    The local launcher calls `stop_requested` and `say` in a helper process, so that a hung file
    system cannot hang the supervisor: they may only look at files and write files.
    """

    stop_requested: Callable[[], bool]  # true once somebody asked for a graceful end
    submitted: Callable[[str], None]  # records the job id durably; called before `submit` returns
    started: Callable[[float], None]  # records that the run itself has begun (epoch seconds; 0: it is queued again)
    say: Callable[[str], None]  # one short line of state for `status`: "pending: Resources"


class Launcher(Protocol):
    """What a launcher module's `launcher()` returns."""

    name: str

    def check(self, settings: Mapping[str, str], gpus_needed: int, nodes: int) -> list[Finding]:
        """Look before the first launch (and for `doctor`): is the engine there, does the job fit it?"""
        ...

    def submit(self, job: Job, watch: Watch) -> str:
        """Start the job, return its id (`none` for local). Raises AutoresearchError if nothing started."""
        ...

    def follow(self, job: Job, job_id: str, watch: Watch) -> Outcome:
        """Wait until the job has ended and nothing of it lives; enforce cap, deadline and stop requests."""
        ...

    def cancel(self, job: Job, job_id: str) -> None:
        """End the job and return when it is gone; harmless when it already is."""
        ...

    def describe(self, job_id: str, settings: Mapping[str, str]) -> str:
        """One line on the job's present state, for `status`."""
        ...

    def collect(self, job: Job, job_id: str) -> Outcome | None:
        """After everything of ours was killed: the outcome if the job has ended, None while it goes on."""
        ...


def load(name: str) -> Launcher:
    """Return the launcher called `name` in plans (`local`, `slurm`, `ray`, `nrl-k8s` or a user's file).

    Raises:
        Usage: no module of that name is in this package.
    """
    if name.startswith("_") or not name.replace("-", "_").isidentifier():
        raise Usage("LAUNCHER", f"{name!r} is not a launcher", f"one of: {' '.join(NAMES)}")
    try:
        module = import_module(f"autoresearch.launchers.{name.replace('-', '_')}")
    except ModuleNotFoundError:
        raise Usage("LAUNCHER", f"{name!r} is not a launcher", f"one of: {' '.join(NAMES)}") from None
    if not hasattr(module, "launcher"):
        raise Usage("LAUNCHER", f"{module.__name__} has no function launcher()", "see docs/launchers.md")
    made: Launcher = module.launcher()
    return made


def canary(
    name: str,
    settings: Mapping[str, str],
    tree: str,
    directories: Sequence[str],
    secrets: Sequence[str],
    stop: Callable[[], bool] = lambda: False,
    say: Callable[[str], None] = lambda text: None,
) -> Finding:
    """Let the launcher called `name` prove that a tree and directories are visible where it runs jobs.

    Args:
        name: as in `load`; a launcher without a function `canary` in its module proves nothing.
        settings: the plan's settings and facts.
        tree: an attempt's worktree.
        directories: what must be writable there; the first may carry the answer.
        secrets: names of the keys that the job's environment has to hold.
        stop: true once it is not wanted any more: the job is given up, which is a FAIL.
        say: one short line of state for `status`.
    """
    module = import_module(f"autoresearch.launchers.{name.replace('-', '_')}")
    if not hasattr(module, "canary"):
        return Finding("ok", "canary job", f"{name} has none")
    found: Finding = module.canary(settings, tree, directories, secrets, stop=stop, say=say)
    return found
