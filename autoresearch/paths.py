"""Every path autoresearch uses is built here (DESIGN section 5), and the scratch root is chosen here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from autoresearch.errors import Refused

BREV_REPOSITORY = "/home/ubuntu/RL"
EPHEMERAL = "/ephemeral"
TREES = ".trees"
SUBDIRECTORIES = ("logs", "checkpoints", "artifacts", "ray", "tmp", "wandb")
CACHES = ("huggingface", "torch", "triton", "uv", "pip", "xdg", "wandb", "vllm")
# What git must not see in the user's checkout; written to .git/info/exclude, never to .gitignore. Of `session` only
# what is called as our notes are: a package of the user's may bear that name.
EXCLUDED = ("/reports/auto_research/", f"/session/{'[0-9]' * 8}_{'[0-9]' * 6}/")


def is_brev(repository: str) -> bool:
    """Return whether this machine follows the Brev rules: bulk output on /ephemeral or nowhere."""
    from autoresearch.running.disk import is_mount

    return (
        os.environ.get("BREV") == "1"
        or repository == BREV_REPOSITORY
        or (os.path.isdir(BREV_REPOSITORY) and is_mount(EPHEMERAL))
    )


def scratch_root(repository: str, wanted: str = "") -> tuple[str, str]:
    """Return the scratch root and where the choice came from.

    Args:
        repository: absolute path of the user's repository.
        wanted: the SCRATCH knob, or what the plan recorded; empty for the default.

    Raises:
        Refused: SCRATCH is no directory, it lies on an /ephemeral that is not mounted, or a Brev machine has none.
    """
    from autoresearch.running.disk import is_mount

    if wanted:
        # The default is made by the first launch; a plan that recorded it must not ask for it before.
        if not os.path.isdir(wanted) and wanted != _default_scratch():
            raise Refused("SCRATCH", f"{wanted!r} is not a directory", "create it, or mount the disk it lies on")
        real = os.path.realpath(wanted)
        # After a reboot without the volume its mount point is a plain directory, on the small disk of the system.
        if f"{real}/".startswith(f"{EPHEMERAL}/") and not is_mount(EPHEMERAL):
            raise Refused("SCRATCH", f"{EPHEMERAL} is not mounted", f"mount {EPHEMERAL}, or plan with another SCRATCH")
        return real, "SCRATCH"
    if is_mount(EPHEMERAL):
        return EPHEMERAL, f"{EPHEMERAL} is mounted"
    if is_brev(repository):
        raise Refused(
            "scratch",
            f"this is a Brev machine and {EPHEMERAL} is not mounted",
            f"mount {EPHEMERAL}, or give SCRATCH=DIR",
        )
    return _default_scratch(), "the default, since no big volume is mounted at /ephemeral"


def _default_scratch() -> str:
    """Return the scratch root of a machine without a big volume."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "autoresearch")


def account_name() -> str:
    """Return the name of the account's directory on scratch, as the Brev etiquette has it."""
    return os.environ.get("USER") or "ubuntu"


def make_shared(scratch: str) -> None:
    """Create the one directory below the scratch root that all accounts share, open to them as /tmp is."""
    shared = os.path.join(scratch, "nemo-rl")
    os.makedirs(scratch, mode=0o700, exist_ok=True)
    try:
        os.mkdir(shared, 0o700)
    except FileExistsError:
        return
    os.chmod(shared, 0o1777)


def user_root(scratch: str, account: str = "") -> str:
    """Return the account's directory below the scratch root; `account` is what a plan recorded."""
    return os.path.join(scratch, "nemo-rl", account or account_name())


def cache_root(scratch: str, account: str = "") -> str:
    """Return the cache directory that all campaigns of the account share."""
    return os.path.join(user_root(scratch, account), "cache")


def cache_exports(root: str) -> dict[str, str]:
    """Return the cache variables for a run, below `root` (values as in the Brev etiquette)."""
    huggingface = f"{root}/huggingface"
    return {
        "HF_HOME": huggingface,
        "HF_HUB_CACHE": f"{huggingface}/hub",
        "HF_DATASETS_CACHE": f"{huggingface}/datasets",
        "TRANSFORMERS_CACHE": f"{huggingface}/transformers",
        "TORCH_HOME": f"{root}/torch",
        "TRITON_CACHE_DIR": f"{root}/triton",
        "UV_CACHE_DIR": f"{root}/uv",
        "PIP_CACHE_DIR": f"{root}/pip",
        "XDG_CACHE_HOME": f"{root}/xdg",
        "WANDB_CACHE_DIR": f"{root}/wandb",
        # vLLM ignores XDG_CACHE_HOME and makes one directory an engine beside this name.
        "VLLM_CACHE_ROOT": f"{root}/vllm",
    }


class Attempt(NamedTuple):
    """The directories of one attempt; all absolute, made 0700 by `make`."""

    experiment: str
    logs: str
    checkpoints: str
    artifacts: str
    ray: str
    tmp: str
    wandb: str

    @property
    def log(self) -> str:
        """The file that takes stdout and stderr of the run."""
        return os.path.join(self.logs, "run.log")

    def exports(self) -> dict[str, str]:
        """Return the attempt's own variables; sockets are linked shorter at launch (Ray, vLLM)."""
        return {
            "EXP_DIR": self.experiment,
            "LOG_DIR": self.logs,
            "CHECKPOINT_DIR": self.checkpoints,
            "ARTIFACT_DIR": self.artifacts,
            "RAY_TMPDIR": self.ray,
            "TMPDIR": self.tmp,
            "WANDB_DIR": self.wandb,
        }

    def make(self) -> None:
        """Create the directories, private to the account; those between them and the experiment's are so too."""
        for path in (self.experiment, *(os.path.join(self.experiment, kind) for kind in SUBDIRECTORIES)):
            os.makedirs(path, mode=0o700, exist_ok=True)
        for path in (self.logs, self.checkpoints, self.artifacts):
            os.makedirs(path, mode=0o700, exist_ok=True)


class Campaign(NamedTuple):
    """Where everything of one campaign lies."""

    repository: str
    scratch: str
    name: str
    account: str = ""  # as the plan recorded it: cron calls without USER, and the campaign stays where it is

    @property
    def root(self) -> str:
        """The campaign's directory on scratch."""
        return os.path.join(self.user_root, "nemo-rl-auto-research", self.name)

    @property
    def user_root(self) -> str:
        """The account's directory on scratch."""
        return user_root(self.scratch, self.account)

    @property
    def caches(self) -> str:
        """The caches that all campaigns of the account share."""
        return cache_root(self.scratch, self.account)

    @property
    def marker(self) -> str:
        """Names the repository (line 1) and the campaign; only what lies beside it, on its disk, is ever removed."""
        return os.path.join(self.root, ".campaign")

    @property
    def trees(self) -> str:
        """The pool of worktrees."""
        return os.path.join(self.root, TREES)

    @property
    def records(self) -> str:
        """The small records in the user's repository."""
        return os.path.join(reports(self.repository), self.name)

    @property
    def plan(self) -> str:
        """The plan as the user reads and edits it."""
        return os.path.join(self.records, "plan.toml")

    @property
    def approval(self) -> str:
        """What the approval compiled for the hot path, with the digest of the plan it binds to."""
        return os.path.join(self.records, "approved.json")

    @property
    def ledger(self) -> str:
        """One row an attempt."""
        return os.path.join(self.records, "results.tsv")

    @property
    def scratch_ledger(self) -> str:
        """Where the ledger lies with LEDGER=scratch; clean-campaign removes directories only, so it stays."""
        return os.path.join(self.root, "results.tsv")

    @property
    def smoke_ledger(self) -> str:
        """One row a plumbing run, same columns."""
        return os.path.join(self.records, "smoke.tsv")

    @property
    def summary(self) -> str:
        """The written summary."""
        return os.path.join(self.records, "summary.md")

    @property
    def plot(self) -> str:
        """The progress plot."""
        return os.path.join(self.records, "progress.svg")

    @property
    def state(self) -> str:
        """Locks, and the attempts that have no row yet."""
        return os.path.join(self.records, ".state")

    @property
    def lock(self) -> str:
        """The campaign's lock file: ledger, reservations, the campaign's clock."""
        return os.path.join(self.state, "lock")

    @property
    def started(self) -> str:
        """First launch and absolute deadline, kept over restarts; no experiment's state file can be called so."""
        return os.path.join(self.state, ".started.json")

    @property
    def hold(self) -> str:
        """Names the Slurm allocation that is held for the campaign's runs."""
        return os.path.join(self.state, "hold")

    def experiment(self, name: str) -> str:
        """Return the directory of an experiment on scratch."""
        return os.path.join(self.root, name)

    def attempt(self, name: str, number: int, smoke: bool = False) -> Attempt:
        """Return an attempt's directories; a later one logs and saves below `n`, since trainers resume silently."""
        home = self.experiment(name)
        below = f"smoke-{number}" if smoke else "" if number == 1 else str(number)
        logs, checkpoints, artifacts = (
            os.path.join(home, kind, below) if below else os.path.join(home, kind)
            for kind in ("logs", "checkpoints", "artifacts")
        )
        ray, tmp, wandb = (os.path.join(home, kind) for kind in ("ray", "tmp", "wandb"))
        return Attempt(home, logs, checkpoints, artifacts, ray, tmp, wandb)


def demo_root(scratch: str) -> str:
    """Return the directory of the demo's repositories; they are never the repository that a bare call means."""
    return os.path.join(user_root(scratch), "demo")


def reports(repository: str) -> str:
    """Return the directory of all campaigns' small records in a repository."""
    return os.path.join(repository, "reports", "auto_research")


def last_campaign(repository: str) -> str:
    """Return the file that names the campaign used last in a repository."""
    return os.path.join(reports(repository), ".last")


def config_home(environ: Mapping[str, str] = os.environ) -> str:
    """Return autoresearch's own configuration directory of the account."""
    return os.path.join(
        environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config"), "autoresearch"
    )
