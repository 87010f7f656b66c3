"""docs/launchers.md: the fifth launcher works as printed, and every setting it names is read."""

from __future__ import annotations

import re
import stat
import sys
import types
from pathlib import Path

import pytest

from autoresearch.launchers._waiting import Limits
from tests.launching import SECRET, Run, make_job, marked

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "docs" / "launchers.md").read_text()
JOBQ = r"""#!/bin/bash
cd "$(dirname "$0")" || exit 1
case $1 in
  ping) echo here ;;
  add)
    id=$RANDOM
    ( setsid bash -c 'bash "$1"; echo "$?" >"$2.code"' - "$2" "$id" >/dev/null 2>&1 </dev/null & echo "$!" >"$id.pid" )
    printf '%s' "$2" >"$id.script"; echo "$id" ;;
  state)
    if [[ ! -e $2.pid ]]; then echo unknown >&2; exit 1; fi
    if [[ -e $2.code ]]; then echo "over $(<"$2.code")"; else echo running; fi ;;
  kill) read -r pid <"$2.pid"; pkill -TERM -P "$pid" ;;
  find) basename -s .script "$(grep -lF -- "$2" ./*.script)" ;;
  *) exit 9 ;;
esac
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "jobq").write_text(JOBQ)
    (folder / "jobq").chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    code = re.search(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert code
    module = types.ModuleType("mine")
    exec(compile(code[1], "docs/launchers.md", "exec"), module.__dict__)
    return module


def test_the_fifth_launcher_as_printed(mine: types.ModuleType, hostile: Path) -> None:
    launcher = mine.launcher()
    launcher.limits = Limits(first_poll_s=0.1, last_poll_s=0.3)
    assert [finding.level for finding in launcher.check({}, 0, 1)] == ["ok"]
    run = Run(launcher, make_job(hostile, ["sh", "-c", "echo out; exit 3"]))
    assert run.result().end_cause == "exit 3"
    assert Path(run.job.log_path).read_text() == "out\n"
    assert SECRET not in Path(launcher.script(run.job)).read_text()
    assert launcher.describe(run.job_id, {}) == "over 3"
    again = launcher.collect(run.job, "")
    assert again is not None
    assert again.end_cause == "exit 3"
    capped = Run(launcher, make_job(hostile, [sys.executable, "-c", "import time;time.sleep(61.5)"], "two", cap_s=0.5))
    assert capped.result().end_cause == "timeout"
    assert not marked("sleep(61.5)")


def test_every_setting_is_read() -> None:
    source = "".join(path.read_text() for path in (ROOT / "autoresearch" / "launchers").glob("*.py"))
    named = set(re.findall(r"^\| `([A-Z0-9_]+)`", TEXT, re.MULTILINE))
    named |= set(re.findall(r"^\| `[A-Z0-9_]+`, `([A-Z0-9_]+)`", TEXT, re.MULTILINE))
    assert {"SLURM_ARGS", "RAY_ADDRESS", "K8S_INFRA"} <= named
    assert {name for name in named if f'"{name}"' not in source} == set()
