"""The environment of a run: the user's own, `.env`, then ours, which win (DESIGN section 5)."""

from __future__ import annotations

import os
from typing import NamedTuple

from autoresearch import paths
from autoresearch.plan import Plan

# What a make around us, or the git that called a hook, would pass on to the make or git inside a training.
_DROPPED = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MAKE_TERMOUT", "MAKE_TERMERR", "OLDPWD")
_DROPPED_PREFIXES = ("AR_", "GIT_")
# A user's own choices of these concern every git call, also those of a training.
_KEPT_GIT = ("GIT_SSH", "GIT_SSH_COMMAND", "GIT_LFS_SKIP_SMUDGE", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM")


class RunEnvironment(NamedTuple):
    """`full` is what a local run gets; `exports` is the public part that is ours, for engines and for `show-env`."""

    full: dict[str, str]
    exports: dict[str, str]


def build(
    where: paths.Campaign, plan: Plan, experiment: str, attempt: paths.Attempt, tree: str, links: dict[str, str]
) -> RunEnvironment:
    """Return the environment of one attempt.

    Args:
        where: the campaign's places.
        plan: the approved plan (CLEAN_CACHE, UV_CACHE, GPUS are its settings).
        experiment: the experiment's name.
        attempt: the attempt's directories.
        tree: the worktree the run starts in; empty when there is none yet (`show-env`).
        links: short stand-ins for variables that hold sockets, e.g. RAY_TMPDIR.
    """
    exports = cache_exports(where, plan, attempt)
    exports |= attempt.exports() | links
    exports |= {
        "AUTORESEARCH_CAMPAIGN": where.name,
        "AUTORESEARCH_EXPERIMENT": experiment,
        "PYTHONUNBUFFERED": "1",
    }
    exports |= _nemo_rl(where)
    if plan.setting("GPUS"):
        exports["CUDA_VISIBLE_DEVICES"] = plan.setting("GPUS")
    if tree:
        exports |= _python(where, tree)
    full = inherited()
    if plan.setting("UV_CACHE") == "default":
        full.pop("UV_CACHE_DIR", None)
    return RunEnvironment(full | exports | ({"PWD": tree} if tree else {}), exports)


def cache_exports(where: paths.Campaign, plan: Plan, attempt: paths.Attempt) -> dict[str, str]:
    """Return the cache variables: shared by the account's campaigns, or the run's own with CLEAN_CACHE=1."""
    clean = plan.setting("CLEAN_CACHE") in ("1", "yes", "true", "on")
    root = os.path.join(attempt.artifacts, "cache") if clean else where.caches
    exports = paths.cache_exports(root)
    if plan.setting("UV_CACHE") == "default":
        del exports["UV_CACHE_DIR"]
    return exports


def make_caches(exports: dict[str, str]) -> None:
    """Create the cache directories that `exports` names, private to the account."""
    root = os.path.dirname(exports["HF_HOME"])
    for name in paths.CACHES:
        os.makedirs(os.path.join(root, name), mode=0o700, exist_ok=True)


def inherited() -> dict[str, str]:
    """Return the user's environment with `.env` in it, without what belongs to us or to a make or git around us."""
    return {key: value for key, value in os.environ.items() if not _is_dropped(key)}


def _is_dropped(key: str) -> bool:
    return key in _DROPPED or (key.startswith(_DROPPED_PREFIXES) and key not in _KEPT_GIT)


def _nemo_rl(where: paths.Campaign) -> dict[str, str]:
    if not os.path.isdir(os.path.join(where.repository, "nemo_rl")):
        return {}
    own = os.path.join(where.repository, "venvs")
    return {
        # Without it a second local run attaches to the first one's Ray, whatever RAY_TMPDIR says.
        "RAY_ADDRESS": "local",
        "RAY_COLOR_PREFIX": "0",
        "RAY_DEDUP_LOGS": "0",
        # Worker environments are several GB each; the default would build them anew in every tree.
        "NEMO_RL_VENV_DIR": own if os.path.isdir(own) else os.path.join(where.user_root, "venvs"),
    }


def bytecode_root(where: paths.Campaign) -> str:
    """Return the directory that takes the bytecode of the campaign's runs, outside every tree."""
    return os.path.join(where.root, ".pycache")


def forget_bytecode(where: paths.Campaign, tree: str) -> None:
    """Remove the bytecode of an earlier run in this tree.

    Python trusts a .pyc by size and whole seconds, so an edit of the same size right after would run the old code.
    """
    left = bytecode_root(where) + tree
    if os.path.lexists(left):
        import shutil

        shutil.rmtree(left, ignore_errors=True)


def _python(where: paths.Campaign, tree: str) -> dict[str, str]:
    first = [tree] + ([os.path.join(tree, "src")] if os.path.isdir(os.path.join(tree, "src")) else [])
    inherited = os.environ.get("PYTHONPATH")
    exports = {
        # An editable install of the user's checkout would run the checkout's code instead of the tree's.
        "PYTHONPATH": os.pathsep.join([*first, *([inherited] if inherited else [])]),
        "PYTHONPYCACHEPREFIX": bytecode_root(where),
    }
    venv = os.path.join(where.repository, ".venv")
    if os.path.isdir(venv):
        exports |= {"UV_PROJECT_ENVIRONMENT": venv, "UV_NO_SYNC": "1"}
    return exports
