"""What a verb loads and starts: no third-party module where it is not used, and few git processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT

BIN = ROOT / "bin"
MODULES = """
import sys
before = set(sys.modules)
from autoresearch.__main__ import main
code = main([sys.argv[1]])
for name, module in list(sys.modules.items()):
    path = getattr(module, "__file__", None) or ""
    kind = "third" if "site-packages" in path else "standard"
    if name not in before:
        print("MODULE", kind, name)
sys.exit(code)
"""
# Standard modules that cost more than a verb that only reads may take.
HEAVY = ("argparse", "dataclasses", "pathlib", "tomllib", "inspect", "ast", "subprocess", "asyncio", "urllib.request")
SHIM = """#!/bin/sh
printf '%s\\n' "$*" >>"{log}"
exec "{git}" "$@"
"""


@pytest.fixture
def campaign(repo: Path, hostile: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with campaign c, its baseline and one experiment; the current directory."""
    (hostile / "scratch").mkdir()
    (repo / "train.sh").write_text("#!/bin/sh\nprintf 'val_accuracy: %s\\n' \"${1:-0.5}\"\n")
    (repo / "train.sh").chmod(0o755)
    subprocess.run(["git", "-C", str(repo), "add", "train.sh"], check=True)
    subprocess.run(["git", "-C", str(repo), "commit", "-q", "-m", "train"], check=True)
    monkeypatch.chdir(repo)
    monkeypatch.setenv("AUTORESEARCH_DEVICES", str(hostile / "devices"))
    knobs = ("CAMPAIGN=c", "CMD=./train.sh", "METRIC=val_accuracy", "DIRECTION=max", f"SCRATCH={hostile / 'scratch'}")
    for words in (("plan", *knobs, "STOP=20 experiments"), ("approve", "YES=1"), ("baseline",)):
        run(*words)
    run("experiment", "NAME=one", "OVERRIDES=0.6")
    return repo


def run(verb: str, *knobs: str) -> str:
    """Run a program of bin/ that must succeed; return its stdout."""
    done = subprocess.run([str(BIN / verb), *knobs], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded(verb: str, repo: Path) -> tuple[set[str], set[str]]:
    """Return the third-party modules that a verb loads, and all modules."""
    env = {**os.environ, "AR_REPO": str(repo)}
    words = [str(ROOT / ".venv" / "bin" / "python"), "-I", "-c", MODULES, verb]
    done = subprocess.run(words, capture_output=True, text=True, env=env, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    lines = [line.split(" ")[1:] for line in done.stdout.splitlines() if line.startswith("MODULE ")]
    assert any(name == f"autoresearch.verbs.{verb}" for _, name in lines)
    return {name for kind, name in lines if kind == "third"}, {name for _, name in lines}


@pytest.mark.parametrize("verb", ["status", "env"])
def test_a_verb_that_only_reads_loads_nothing_of_others_and_nothing_heavy(campaign: Path, verb: str) -> None:
    third, every = loaded(verb, campaign)
    assert third == set()
    assert every & set(HEAVY) == set()
    assert "autoresearch.git.hypothesis" not in every
    assert "autoresearch.git.trees" not in every


def test_summarize_loads_its_table_and_no_more(campaign: Path) -> None:
    third, _ = loaded("summarize", campaign)
    assert {name.partition(".")[0] for name in third} <= {"tabulate", "wcwidth"}


@pytest.fixture
def git_calls(campaign: Path, hostile: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Counts from now on: returns the git calls since the last question."""
    shim, log = hostile / "shim", hostile / "calls"
    shim.mkdir()
    found = subprocess.run(["bash", "-c", "type -P git"], capture_output=True, text=True, check=True).stdout.strip()
    (shim / "git").write_text(SHIM.format(log=str(log).replace("$", "\\$").replace('"', '\\"'), git=found))
    (shim / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{shim}:{os.environ['PATH']}")

    def since() -> list[str]:
        lines = log.read_text().splitlines() if log.exists() else []
        log.write_text("")
        return lines

    return since


def test_reading_starts_no_git(git_calls: Callable[[], list[str]]) -> None:
    git_calls()
    for verb in ("status", "show-env"):
        run(verb)
        assert git_calls() == [], verb


def test_an_experiment_starts_few_git_processes_however_many_there_were(git_calls: Callable[[], list[str]]) -> None:
    counts = []
    for number in range(4):
        git_calls()
        run("experiment", f"NAME=e{number}", f"OVERRIDES=0.6{number}")
        counts.append(len(git_calls()))
    assert max(counts) <= 12, counts
    assert counts[-1] <= counts[0], counts
    Path("train.sh").write_text("#!/bin/sh\necho 'val_accuracy: 0.9'\n")
    run("experiment", "NAME=files", "FILES=train.sh")
    assert len(git_calls()) <= 16


def test_the_core_is_started_once(campaign: Path, hostile: Path) -> None:
    script = hostile / "count.sh"
    script.write_text(f'exec bash -x "{BIN}/status" 2>&1 >/dev/null\n'.replace("$", "\\$"))
    traced = subprocess.run(["bash", str(script)], capture_output=True, text=True).stdout
    assert traced.count(".venv/bin/python") == 1
    assert sys.version_info >= (3, 11)
