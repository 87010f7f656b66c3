"""`demo`: a git repository of its own with the bundled project, below the scratch root; prints its path.

bin/demo drives the campaign in it. Each demo gets a repository of its own, so that it always starts from nothing.
"""

from __future__ import annotations

import os
import shutil
import time

from autoresearch import knobs, paths, talk
from autoresearch.errors import Refused
from autoresearch.git import Git

PROJECT = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "examples")


def run() -> int:
    """Copy the project, commit it, print where it is."""
    wanted = knobs.text("SCRATCH")
    if wanted:
        os.makedirs(wanted, mode=0o700, exist_ok=True)
    scratch = paths.scratch_root("", wanted)[0]
    os.makedirs(scratch, mode=0o700, exist_ok=True)
    _check_room(scratch)
    repository = os.path.join(paths.demo_root(scratch), time.strftime("%Y%m%d_%H%M%S"))
    if os.path.exists(repository):
        raise Refused("demo", f"{repository} exists already", "call it again in a second")
    ignored = shutil.ignore_patterns("__pycache__", "logs", "results", "*.pyc")
    shutil.copytree(os.path.join(PROJECT, "digits_grpo"), repository, ignore=ignored)
    git = Git(repository)
    git.run("init", "--quiet", "--initial-branch=main")
    _identify(git)
    git.run("add", "--all")
    git.run("commit", "--quiet", "--message", "Start the digits project")
    talk.out(repository)
    return 0


def _check_room(scratch: str) -> None:
    from autoresearch.running import disk

    disk.check([scratch], 1.0, 1.0)


def _identify(git: Git) -> None:
    """Give the demo repository an identity of its own where the account has none; the account's is never changed."""
    if git.call("var", "GIT_COMMITTER_IDENT").code or not git.call("config", "user.email").out.strip():
        git.run("config", "user.name", "autoresearch demo")
        git.run("config", "user.email", "demo@localhost")
