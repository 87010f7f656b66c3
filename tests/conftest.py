"""Shared fixtures: a hermetic environment, hostile paths, and real git repositories with dirt in them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from autoresearch.git import Git
from autoresearch.git.trees import Pool

ROOT = Path(__file__).resolve().parent.parent
# A busy machine is no failure of what is tested.
settings.register_profile("busy", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
# A shell script that starts the tests behind `&` has them ignore it, and so would all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

DROPPED = ("GIT_", "MAKE", "MFLAGS", "AR_", "XDG_", "WANDB_", "HF_", "RAY_", "SLURM_", "CUDA_", "PYTHON", "BASH_ENV")
GIT_CONFIG = """[user]
\tname = A Researcher
\temail = researcher@example.org
[init]
\tdefaultBranch = main
"""


@pytest.fixture(autouse=True)
def hermetic(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test a HOME, git configuration, PATH and locale of its own; returns that HOME."""
    home = tmp_path_factory.mktemp("home of o'brien")
    for key in list(os.environ):
        if key.startswith(DROPPED):
            monkeypatch.delenv(key)
    (home / ".gitconfig").write_text(GIT_CONFIG)
    for key, value in {
        "HOME": str(home),
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "GIT_CONFIG_GLOBAL": str(home / ".gitconfig"),
        "GIT_CONFIG_NOSYSTEM": "1",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "TMPDIR": str(tmp_path_factory.mktemp("tmp")),
        "USER": "ubuntu",
    }.items():
        monkeypatch.setenv(key, value)
    return home


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """An empty directory whose path holds a blank, quotes, a dollar and a non-ASCII letter."""
    path = tmp_path / 'it\'s a "dir" $x é'
    path.mkdir()
    return path


def git(repo: Path, *args: str, **more: object) -> str:
    """Run git in `repo` and return its stdout without the last newline; raises when git fails."""
    done = subprocess.run(
        ["git", "-C", str(repo), *args], check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL, **more
    )
    return done.stdout.rstrip("\n")


@pytest.fixture
def make_repo(hostile: Path) -> Callable[..., Path]:
    """A factory: `make_repo(files={path: text}, name="repo")` returns a repository with one commit."""

    def build(files: dict[str, str] | None = None, name: str = "repo") -> Path:
        repo = hostile / name
        repo.mkdir()
        git(repo, "init", "-q")
        for path, text in (files or {"train.py": "print('val_accuracy: 0.5')\n"}).items():
            (repo / path).parent.mkdir(parents=True, exist_ok=True)
            (repo / path).write_text(text)
        git(repo, "add", "-A")
        git(repo, "commit", "-q", "-m", "first")
        return repo

    return build


@pytest.fixture
def repo(make_repo: Callable[..., Path]) -> Path:
    """A repository with one commit and one file, `train.py`."""
    return make_repo()


@pytest.fixture
def pool(repo: Path, tmp_path: Path) -> Pool:
    """An empty pool of trees for `repo`."""
    return Pool(Git(str(repo)), str(tmp_path / "camp aign's" / ".trees"))


def snapshot(repo: Path) -> dict[str, object]:
    """Everything of a checkout that autoresearch promises not to touch, for a comparison before and after.

    The index file itself is compared byte for byte, so no git command that refreshes it is run here.
    """
    files = {
        str(path.relative_to(repo)): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in sorted(repo.rglob("*"))
        if ".git" not in path.relative_to(repo).parts
        and path.relative_to(repo).parts[:2] != ("reports", "auto_research")
        and path.relative_to(repo).parts[0] not in ("session", "reports")
    }
    dot_git = repo / ".git"
    return {
        "files": files,
        "HEAD": (dot_git / "HEAD").read_bytes(),
        "index": (dot_git / "index").read_bytes() if (dot_git / "index").exists() else b"",
        "config": (dot_git / "config").read_bytes(),
        "stash": git(repo, "stash", "list"),
        "heads": git(repo, "for-each-ref", "refs/heads/main", "refs/tags"),
        "status": git(repo, "--no-optional-locks", "status", "--porcelain=v2", "--ignored", "--branch").split("\n# ")[
            0
        ],
    }
