"""kill -9 of anything at any moment: one row for every launch that began, and nothing left behind."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from autoresearch import attempts, paths
from autoresearch.running import processes, runfile
from tests.conftest import git, snapshot
from tests.faults import Lab, ended, idea, kill_all, train_repo, until

pytestmark = pytest.mark.slow
KILLS = 12


def victims(lab: Lab, draw: random.Random, group: int) -> str:
    """Kill -9 something of a launch that goes on; returns what."""
    kind = draw.choice(["group", "ours", "everything", "one", "one", "half"])
    if kind == "group":
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            pass
        return kind
    for _ in range(2 if kind == "everything" else 1):  # what was forked meanwhile
        lines = lab.processes()
        found = [p for line in lines if (p := processes.identify(int(line.partition(":")[0])))]
        if kind == "ours":
            trainings = {line.partition(":")[0] for line in lines if "train.py" in line and "bin/" not in line}
            found = [p for p in found if str(p.pid) not in trainings]
        draw.shuffle(found)
        kill_all(found[: {"one": 1, "half": (len(found) + 1) // 2}.get(kind, len(found))])
    return kind


@pytest.mark.parametrize("seed", range(5))
def test_killed_at_a_random_moment(make_repo: Callable[..., Path], tmp_path: Path, hermetic: Path, seed: int) -> None:
    """After each kill a reader or the next verb brings all back; the stop rule holds to the last."""
    draw = random.Random(seed)
    lab = Lab(
        train_repo(make_repo), tmp_path / "s", hermetic, stop=f"{KILLS - 2} experiments", SLOTS=draw.choice(["", "2"])
    )
    lab.ok("baseline")
    told = []
    for n in range(KILLS):
        names = [f"e{k}" for k in range(99) if f"e{k}" not in {row.experiment for row in lab.rows()}]
        words = draw.choice(["", "sleep=0.2", "sleep=0.2", "sleep=20", "family=1 sleep=0.1", "exit=1", "value=0.6"])
        more = draw.choice([{}, {}, {"REPEATS": "3"}, {"DETACH": "1"}, {"SMOKE": "1"}])
        launched = lab.spawn("experiment", make=draw.random() < 0.5, **idea(names[0], words), **more)
        time.sleep(draw.choice([0.1, 0.3, 0.6]) * draw.random())
        told.append((n, words, more, victims(lab, draw, launched.pid)))
        if words == "sleep=20":
            time.sleep(0.3)
            victims(lab, random.Random(2), launched.pid)
            if lab.processes():
                lab.call("stop", NAME=names[0])
        ended(launched)
        how = draw.choice(["status", "wait", "baseline", "start"])
        done = lab.call(how, **({"NAME": names[0]} if how in ("wait", "start") else {}))
        assert done.returncode in (0, 3, 4), (told, done)
        if how == "start" and not done.returncode:
            lab.ok("release", NAME=names[0])
        rows = lab.check()
        if len({row.experiment for row in rows}) >= KILLS - 2:
            break
    while lab.idea(f"last{len(lab.rows())}").returncode != 3:
        assert len(lab.rows()) < 2 * KILLS, told
    assert len({row.experiment for row in lab.check()}) == KILLS - 2, told


def killed_in_mid_run(lab: Lab) -> None:
    """Launch `y` and kill everything of it while its training goes on."""
    lab.ok("baseline")
    call = lab.spawn("experiment", **idea("y", "sleep=30"))
    until(lambda: any("/y/" in path for path in lab.began()))
    for _ in range(2):
        kill_all([p for line in lab.processes() if (p := processes.identify(int(line.partition(":")[0])))])
    ended(call)
    assert lab.states() == ["y.json"]


@pytest.mark.parametrize("reader", ["status", "resume"])
def test_scratch_is_wiped_after_a_kill(
    make_repo: Callable[..., Path], tmp_path: Path, hermetic: Path, reader: str
) -> None:
    """A stopped machine comes back with an empty /ephemeral: the row is written, and the campaign goes on."""
    lab = Lab(train_repo(make_repo), tmp_path / "s", hermetic, stop="3 experiments")
    killed_in_mid_run(lab)
    shutil.rmtree(lab.scratch)
    lab.scratch.mkdir()
    assert "y" in lab.ok(reader)
    until(lambda: not lab.states())
    assert lab.row("y").end_cause == "lost"
    assert lab.idea("z").returncode == 0
    assert lab.idea("more").returncode == 3
    lab.check(wiped=True)


def test_a_reboot_in_mid_run(make_repo: Callable[..., Path], tmp_path: Path, hermetic: Path) -> None:
    """After it the numbers of processes mean nothing: none is signalled, and the run is lost."""
    lab = Lab(train_repo(make_repo), tmp_path / "s", hermetic, stop="3 experiments")
    killed_in_mid_run(lab)
    boot, other = processes.boot_id(), "0" * len(processes.boot_id())
    stranger = subprocess.Popen(["sleep", "60"])
    where = paths.Campaign(str(lab.repo), str(lab.scratch), lab.name)
    (state,) = attempts.every(where)
    attempts.update(where, state._replace(mark=state.mark.replace(boot, other), client=f"{stranger.pid}:1:{other}"))
    record = lab.root / "y" / "logs" / runfile.NAME
    record.write_text(record.read_text().replace(boot, other))
    assert lab.idea("z").returncode == 0
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()
    row = lab.row("y")
    assert (row.status, row.end_cause) == ("crash", "lost")
    assert lab.status()["attempted"] == 3
    lab.check()


@pytest.mark.parametrize("verb", ["summarize", "extend", "ledger", "mark", "share", "release", "clean-campaign"])
def test_every_verb_that_writes_finishes_the_recovery_first(
    make_repo: Callable[..., Path], tmp_path: Path, hermetic: Path, verb: str
) -> None:
    lab = Lab(train_repo(make_repo), tmp_path / "s", hermetic, stop="3 experiments")
    killed_in_mid_run(lab)
    knobs = {
        "extend": {"STOP": "4 experiments", "YES": "1"},
        "mark": {"NAME": "y", "STATUS": "discard", "REASON": "gone"},
        "release": {"NAME": "y"},
        "share": {"REMOTE": "origin"},
        "clean-campaign": {"NAME": "y"},
    }
    lab.call(verb, **knobs.get(verb, {}))
    assert lab.states() == []
    assert lab.row("y").end_cause == "lost"
    lab.check()


@pytest.mark.parametrize("verb", ["show", "tail", "compare", "handoff"])
def test_every_verb_that_reads_starts_the_recovery(
    make_repo: Callable[..., Path], tmp_path: Path, hermetic: Path, verb: str
) -> None:
    lab = Lab(train_repo(make_repo), tmp_path / "s", hermetic, stop="3 experiments")
    killed_in_mid_run(lab)
    knobs = {"show": {"NAME": "y"}, "tail": {"NAME": "y"}, "compare": {"NAME": "y", "WITH": "baseline"}}
    lab.call(verb, make=True, **knobs.get(verb, {}))
    until(lambda: not lab.states())
    assert lab.row("y").end_cause == "lost"
    lab.check()


@pytest.mark.parametrize("offset", [0.0, 0.004, 0.008])
def test_all_killed_at_every_step_of_a_short_run(
    make_repo: Callable[..., Path], tmp_path: Path, hermetic: Path, offset: float
) -> None:
    """A run of no length: most of the moments lie in its preparation and in its conclusion."""
    lab = Lab(train_repo(make_repo), tmp_path / "s", hermetic, stop="100 experiments")
    lab.ok("baseline")
    for n in range(16):
        launched = lab.spawn("experiment", **idea(f"e{n}", f"value=0.{n + 10}"))
        time.sleep(0.06 + n * 0.012 + offset)
        for _ in range(2):
            kill_all([p for line in lab.processes() if (p := processes.identify(int(line.partition(":")[0])))])
        ended(launched)
        if n % 4 == 3:
            lab.ok("status")
            lab.check()
    assert lab.idea("last", "value=0.99").returncode == 0
    assert lab.check()[-1].status == "keep"


def test_no_secret_comes_out_by_a_verb_without_the_env_file(
    make_repo: Callable[..., Path], tmp_path: Path, hermetic: Path
) -> None:
    """`wait`, and a recovery by a reader, mask what the training printed though their wrapper reads no .env."""
    lab = Lab(train_repo(make_repo), tmp_path / "s", hermetic)
    (lab.repo / ".env").write_text("API_TOKEN=tok-very-secret\n")
    (lab.repo / ".env").chmod(0o600)
    lab.before = snapshot(lab.repo)
    lab.ok("baseline")
    code = "import os; print('torch.OutOfMemoryError: CUDA out of memory. ' + os.environ['API_TOKEN'], flush=True)"
    assert lab.idea("y", f'"code={code}; sys.exit(1)"').returncode == 4
    waited = lab.call("wait", make=True, NAME="y")
    assert "[secret]" in waited.stdout
    call = lab.spawn("experiment", **idea("z", f'"code={code}; time.sleep(30)"'))
    until(lambda: any("/z/" in path for path in lab.began()))
    time.sleep(0.1)
    for _ in range(2):
        kill_all([p for line in lab.processes() if (p := processes.identify(int(line.partition(":")[0])))])
    told = waited.stdout + waited.stderr + "".join(ended(call).stdout) + lab.ok("status")
    until(lambda: not lab.states())
    told += lab.call("wait", NAME="z").stdout + git(lab.repo, "log", "--all", "--notes=autoresearch")
    for kept in (*lab.records.rglob("*"), *(lab.repo / "session").rglob("*")):
        told += kept.read_text(errors="replace") if kept.is_file() else ""
    assert "tok-very-secret" not in told
    lab.check()


@pytest.mark.parametrize("moment", [0.25, 0.5, 0.9])
def test_all_killed_while_eight_are_under_way(
    make_repo: Callable[..., Path], tmp_path: Path, hermetic: Path, moment: float
) -> None:
    """And three recoveries start in the same instant."""
    lab = Lab(train_repo(make_repo), tmp_path / "s", hermetic, stop="9 experiments", SLOTS="8")
    lab.ok("baseline")
    calls = [lab.spawn("experiment", **idea(f"e{n}", "family=1 sleep=0.3")) for n in range(8)]
    time.sleep(moment)
    for _ in range(3):
        kill_all([p for line in lab.processes() if (p := processes.identify(int(line.partition(":")[0])))])
    for call in calls:
        ended(call)
    for call in [lab.spawn(verb) for verb in ("status", "baseline", "summarize")]:
        assert ended(call).returncode in (0, 3)
    rows = lab.check()
    left = 9 - len({row.experiment for row in rows})
    done = [ended(call).returncode for call in [lab.spawn("experiment", **idea(f"more{n}")) for n in range(left + 2)]]
    assert sorted(done) == [0] * left + [3, 3]
    assert len(lab.check()) == 9


@pytest.mark.parametrize("offset", [0.0, 0.006])
def test_killed_while_the_edits_of_a_tree_are_committed(
    make_repo: Callable[..., Path], tmp_path: Path, hermetic: Path, offset: float
) -> None:
    """The idea goes on from where it stands: the edits are in its tree and, once, in its commit."""
    lab = Lab(train_repo(make_repo), tmp_path / "s", hermetic, stop="100 experiments")
    lab.ok("baseline")
    for n in range(10):
        tree = Path(lab.ok("start", NAME=f"e{n}").strip())
        edited = tree / "train.py"
        edited.write_text(edited.read_text() + f"# {n}\n")
        text = edited.read_text()
        launched = lab.spawn("experiment", NAME=f"e{n}", HYPOTHESIS=f"train: {n}")
        time.sleep(0.06 + n * 0.012 + offset)
        for _ in range(2):
            kill_all([p for line in lab.processes() if (p := processes.identify(int(line.partition(":")[0])))])
        ended(launched)
        assert edited.read_text() == text
        again = lab.call("experiment", NAME=f"e{n}", REPEAT="1")
        assert again.returncode in (0, 4), again
        assert git(lab.repo, "show", f"ar/c/e{n}:train.py") + "\n" == text
        assert edited.read_text() == text
        lab.ok("release", NAME=f"e{n}")
    lab.check()
