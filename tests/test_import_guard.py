"""What the way of an experiment may cost, counted instead of timed: modules, and bytes of a log."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from autoresearch import metrics
from tests.conftest import ROOT

PYTHON = str(ROOT / ".venv" / "bin" / "python")
AFTER = "\nimport sys\nprint(*sorted(sys.modules))"
# Each of these was found on the way of an experiment, for a trifle, at 1 to 25 ms a start.
DEAR = {
    "_hashlib",
    "argparse",
    "base64",
    "calendar",
    "dataclasses",
    "datetime",
    "inspect",
    "ipaddress",
    "locale",
    "logging",
    "pathlib",
    "random",
    "shutil",
    "subprocess",
    "tempfile",
    "tomllib",
    "urllib.parse",
}


def modules(code: str, *words: str) -> set[str]:
    """Return what is loaded after some code ran in a Python as the verbs have it."""
    done = subprocess.run([PYTHON, "-I", "-c", code + AFTER, *words], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_the_way_of_an_experiment_loads_no_dear_module() -> None:
    names = (
        "verbs.experiment",
        "idea",
        "git.hypothesis",
        "git.carried",
        "git.trees",
        "git.repository",
        "running.disk",
        "waiting",
        "git.notes",
    )
    loaded = modules("".join(f"import autoresearch.{name}\n" for name in (*names, "series_of_runs", "launchers.local")))
    assert loaded & DEAR == set()
    assert not any(name.partition(".")[0] in ("dotenv", "git", "sh", "tabulate", "tomli_w") for name in loaded)


def test_masking_and_digests_load_no_dear_module() -> None:
    code = "from autoresearch import files, talk\ntalk.masked('a secret here', ['secret'])\nfiles.digest(b'')"
    assert modules(code) & DEAR == set()


def test_the_hand_over_of_dotenv_loads_its_parser_alone(hostile: Path) -> None:
    file = hostile / ".env"
    file.write_text("A_KEY='a value'\n")
    code = (
        "import sys\nfrom autoresearch import dotenv_file\nassert dotenv_file.load(sys.argv[1]) == {'A_KEY': 'a value'}"
    )
    loaded = modules(code, str(file))
    assert loaded & DEAR == set()
    assert "dotenv" not in loaded


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what is read from files by `os.pread` from now on."""
    sizes: list[int] = []
    real = os.pread

    def counted(fd: int, count: int, offset: int) -> bytes:
        data = real(fd, count, offset)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", counted)
    return sizes


def test_the_last_value_near_the_end_of_a_big_log_reads_its_end_only(hostile: Path, bytes_read: list[int]) -> None:
    log = hostile / "run.log"
    with log.open("wb") as file:
        file.write(b"val_bpb: 0.9\n")
        file.truncate(1 << 30)  # a hole of 1 GiB: it costs no disk, and would take a second to read
        file.seek(0, os.SEEK_END)
        file.write(b"\nval_bpb: 0.7\nstep 9 done\n")
    spec, where = metrics.Spec("log:val_bpb", "min"), metrics.Where(str(log), str(hostile), "", "", "")
    assert metrics.read(spec, where, whole=False).value == 0.7
    assert 0 < sum(bytes_read) < 1 << 20
