"""The code that runs is the tree's, also where the user's environment has the checkout installed as editable."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, git


def bin_(repo: Path, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program of bin/ in the repository; its output is kept for the failure message."""
    done = subprocess.run(
        [str(ROOT / "bin" / program), *words], cwd=repo, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_an_editable_install_does_not_hide_the_tree(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = hostile / "repo"
    package = repo / "src" / "trainer"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("VALUE = 0.5\n")
    (repo / "train.py").write_text(
        "import trainer\nprint('val_accuracy:', trainer.VALUE)\nprint('file', trainer.__file__)\n"
    )
    git(repo, "init", "-q")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "first")
    # What `pip install -e .` leaves: a .pth in the environment that names the checkout's src/.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(repo / ".venv")], check=True)
    site = next((repo / ".venv" / "lib").glob("python*/site-packages"))
    (site / "editable.pth").write_text(f"{repo / 'src'}\n")
    python = str(repo / ".venv" / "bin" / "python")
    scratch = hostile / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("AUTORESEARCH_DEVICES", str(hostile / "devices"))

    command = shlex.join([python, "train.py"])
    bin_(repo, "plan", "CAMPAIGN=c", f"CMD={command}", "METRIC=val_accuracy", f"SCRATCH={scratch}", "DIRECTION=max")
    bin_(repo, "approve", "YES=1")
    bin_(repo, "baseline")
    tree = Path(bin_(repo, "start", "NAME=better").stdout.strip())
    (tree / "src" / "trainer" / "__init__.py").write_text("VALUE = 0.75\n")
    said = bin_(repo, "experiment", "NAME=better", "HYPOTHESIS=trainer: better").stdout

    assert "val_accuracy 0.75" in said
    log = next(scratch.rglob("better/logs/run.log")).read_text()
    assert ".trees" in log
    assert (package / "__init__.py").read_text() == "VALUE = 0.5\n"
