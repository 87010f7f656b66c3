"""Large libraries that some tests run beside ours: in virtual environments of their own, made once and kept."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from autoresearch import files

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "autoresearch-tests")


def python_with(name: str, *packages: str) -> Path:
    """Return the python of the environment `name`, which holds `packages`; skips when it cannot be made.

    The packages are part of the marker that says it is whole, so a set-up that was cut off, or is of an older list,
    is done again.
    """
    where = CACHE / name
    python, done = where / "bin" / "python", where / "complete"
    wanted = "\n".join(packages)
    with files.locked(str(CACHE / f"{name}.lock"), wait_s=900.0):
        if done.exists() and done.read_text() == wanted:
            return python
        shutil.rmtree(where, ignore_errors=True)
        for command in _set_up(where, python, packages):
            if not shutil.which(command[0]):
                pytest.skip(f"{command[0]} is not there to install {name}")
            tried = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
            if tried.returncode != 0:
                last = (tried.stderr.strip() or tried.stdout.strip()).splitlines()[-1:]
                pytest.skip(f"{name} cannot be installed: {' '.join(last)}")
        done.write_text(wanted)
    return python


def _set_up(where: Path, python: Path, packages: tuple[str, ...]) -> list[list[str]]:
    """The commands that make the environment: by uv where it is, else by venv and the pip that this Python has."""
    beside = Path(sys.executable).parent / "uv"
    uv = shutil.which("uv") or (str(beside) if beside.exists() else "")
    if uv:
        make = [uv, "venv", "-q", "--python", sys.executable, str(where)]
        return [make, [uv, "pip", "install", "-q", "--python", str(python), *packages]]
    pips = ([sys.executable, "-I", "-m", "pip"], ["python3", "-I", "-m", "pip"])
    has_pip = [
        pip for pip in pips if subprocess.run([*pip, "--version"], capture_output=True, check=False).returncode == 0
    ]
    pip = has_pip[0] if has_pip else ["pip3"]
    return [
        [sys.executable, "-I", "-m", "venv", "--without-pip", str(where)],
        [*pip, "--python", str(python), "install", "-q", "--disable-pip-version-check", *packages],
    ]
