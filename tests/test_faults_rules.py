"""Stop rules, clocks and devices under faults: no launch too many or too few, the time that really passed."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from autoresearch.running import processes
from tests.faults import Lab, ended, idea, kill_all, train_repo, until

pytestmark = pytest.mark.slow

LIBFAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
FAKE = {"LD_PRELOAD": str(LIBFAKETIME), "DONT_FAKE_MONOTONIC": "1"}


def of_lab(lab: Lab) -> list[processes.Process]:
    found = [processes.identify(int(line.partition(":")[0])) for line in lab.processes()]
    return [process for process in found if process]


@pytest.mark.parametrize("phase", ["reserved", "launched", "ended"])
def test_limit_five_run_three_kill_go_on(
    make_repo: Callable[..., Path], tmp_path: Path, hermetic: Path, phase: str
) -> None:
    """Exactly two more, whatever the kill met."""
    lab = Lab(train_repo(make_repo), tmp_path / "s", hermetic, stop="5 experiments")
    lab.ok("baseline")
    assert lab.idea("a").returncode == 0
    call = lab.spawn("experiment", **idea("b", "sleep=0.3"))
    if phase == "reserved":
        until(lambda: "b.json" in lab.states())
    else:
        until(lambda: any("/b/" in path for path in lab.began()))
        time.sleep(0.35 if phase == "ended" else 0.1)
    kill_all(of_lab(lab))
    kill_all(of_lab(lab))
    ended(call)
    lab.status()
    rows = lab.check()
    left = 5 - len({row.experiment for row in rows})
    assert left == (2 if any(row.experiment == "b" for row in rows) else 3)
    for n in range(left):
        assert lab.idea(f"more{n}").returncode == 0
    refused = lab.idea("toomany")
    assert refused.returncode == 3
    assert "5" in refused.stderr
    assert len(lab.check()) == 5


def test_the_fresh_runs_of_a_keep_can_be_made_after_a_kill(
    make_repo: Callable[..., Path], tmp_path: Path, hermetic: Path
) -> None:
    """Nothing is launched that nobody asks for; what is asked for are fresh runs of that keep, and no row is twice."""
    lab = Lab(train_repo(make_repo), tmp_path / "s", hermetic, stop="5 experiments", REPEATS="3")
    lab.ok("baseline")
    second_lasts = """ "code=time.sleep(60 * given['log_dir'].endswith('/2'))" """
    call = lab.spawn("experiment", **idea("b", f"value=0.7 {second_lasts}"))
    until(lambda: any(path.endswith("/b/logs/2") for path in lab.began()))
    kill_all(of_lab(lab))
    kill_all(of_lab(lab))
    ended(call)
    lab.status()
    assert [(row.attempt, row.status) for row in lab.check() if row.experiment == "b"] == [
        ("1", "keep"),
        ("2", "crash"),
    ]
    lab.ok("experiment", NAME="b", REPEATS="2")
    rows = [row for row in lab.check() if row.experiment == "b"]
    assert [(row.attempt, row.status) for row in rows[2:]] == [("3", "keep"), ("4", "keep")]
    assert all("fresh run of b" in row.reason for row in rows[2:])


def test_the_deadline_outlives_a_kill(make_repo: Callable[..., Path], tmp_path: Path, hermetic: Path) -> None:
    lab = Lab(train_repo(make_repo), tmp_path / "s", hermetic, stop="16s total, 4s each")
    began = time.monotonic()
    lab.ok("baseline")
    call = lab.spawn("experiment", **idea("a", "sleep=3"))
    until(lambda: any("/a/" in path for path in lab.began()))
    kill_all(of_lab(lab))
    ended(call)
    left = lab.status()["remaining_s"]
    assert left <= 16.0
    while lab.idea(f"e{len(lab.rows())}").returncode == 0:
        assert time.monotonic() - began < 60
    assert time.monotonic() - began > 8.0
    last = max(lab.check(), key=lambda row: row.finished_at)
    assert last.end_cause != "lost"
    assert lab.status()["remaining_s"] < 4.0


def test_a_busy_device(make_repo: Callable[..., Path], tmp_path: Path, hermetic: Path) -> None:
    """Without SLOTS one run at a time on the machine; WAIT bounds the waiting, and nothing is changed by it."""
    first = Lab(train_repo(make_repo, "one"), tmp_path / "s", hermetic)
    second = Lab(train_repo(make_repo, "two"), tmp_path / "s", hermetic, name="d")
    first.ok("baseline")
    second.ok("baseline")
    first.ok("experiment", DETACH="1", **idea("y", "sleep=600"))
    until(lambda: any("/y/" in path for path in first.began()))
    late = second.idea("z", WAIT="1s")
    assert late.returncode == 75, late
    assert "c/y" in late.stderr
    assert second.states() == []
    assert [row.experiment for row in second.rows()] == ["baseline"]
    assert second.ok("experiment", DETACH="1", WAIT="0.2s", **idea("w")).strip() == "w"
    told = until(lambda: second.status()["withdrawn"])
    assert told[0]["id"] == "w"
    where = second.status()
    assert (where["attempted"], where["running"], where["orphans"]) == (1, [], [])
    assert second.idea("x", WAIT="0s").returncode == 75
    told = second.call("wait", NAME="w")
    assert told.returncode == 75
    assert "c/y" in told.stderr
    assert second.status()["withdrawn"] == []
    waiting = second.spawn("experiment", **idea("z"))
    until(lambda: "waiting" in str(second.status()["running"]))
    assert second.ok("status").count("waiting for the device") == 1
    given_up = second.spawn("experiment", **idea("v"))
    until(lambda: len(second.status()["running"]) == 2)
    assert "before it ran" in second.call("stop", NAME="v").stderr
    assert ended(given_up).returncode == 75
    first.ok("stop", NAME="y")
    assert ended(waiting).returncode == 0
    assert first.row("y").finished_at <= second.row("z").started_at
    first.check()
    second.check()


def test_a_new_rule_reaches_what_waits_for_a_device(
    make_repo: Callable[..., Path], tmp_path: Path, hermetic: Path
) -> None:
    """An extension lets it wait longer, a rule that is met by then ends the waiting at once."""
    holder = Lab(train_repo(make_repo, "one"), tmp_path / "s", hermetic)
    lab = Lab(train_repo(make_repo, "two"), tmp_path / "s", hermetic, name="d", stop="12s total")
    holder.ok("baseline")
    lab.ok("baseline")
    began = time.monotonic()
    holder.ok("experiment", DETACH="1", **idea("y", "sleep=600"))
    until(lambda: any("/y/" in path for path in holder.began()))
    waiting = lab.spawn("experiment", **idea("z"))
    until(lambda: "waiting" in str(lab.status()["running"]))
    lab.ok("extend", STOP="1h total", YES="1")
    until(lambda: time.monotonic() - began > 13)
    assert waiting.poll() is None
    late = lab.spawn("experiment", **idea("w"))
    until(lambda: len(lab.status()["running"]) == 2)
    lab.ok("extend", STOP="1h total or 2 experiments", YES="1")
    told = ended(late)
    assert told.returncode == 3, told
    assert "2/2 attempted" in told.stderr
    assert waiting.poll() is None
    holder.ok("stop", NAME="y")
    assert ended(waiting).returncode == 0
    assert [row.experiment for row in lab.check()] == ["baseline", "z"]
    holder.check()


@pytest.mark.skipif(not LIBFAKETIME.exists(), reason="libfaketime is not installed")
@pytest.mark.parametrize(("before", "after"), [("+2h", "+0"), ("+0", "+2h"), ("+0", "-2h")])
def test_the_clock_is_set_during_a_run(
    make_repo: Callable[..., Path], tmp_path: Path, hermetic: Path, before: str, after: str
) -> None:
    """The cap, the elapsed time and what is left of a total time are those that passed; its log is not taken as old."""
    lab = Lab(train_repo(make_repo), tmp_path / "s", hermetic, stop="1h total, 5s each")
    clock = tmp_path / "clock"
    clock.write_text("+0\n")
    lab.env |= {**FAKE, "FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_NO_CACHE": "1"}
    lab.ok("baseline")
    clock.write_text(f"{before}\n")
    for name, words, cause in (("y", "sleep=300", "timeout"), ("z", "sleep=0.7 value=0.9", "ok")):
        call = lab.spawn("experiment", **idea(name, words))
        until(lambda name=name: any(f"/{name}/" in path for path in lab.began()))
        clock.write_text(f"{after}\n")
        lab.ok("status")
        done = ended(call)
        row = lab.row(name)
        assert row.end_cause == cause, done
        assert (row.metric_value, row.status) == (("0.000000", "crash") if name == "y" else ("0.9", "keep")), row
        assert (5 if name == "y" else 0.7) / 60 - 0.01 <= float(row.elapsed_min) < 1  # the clock was set by hours
        assert 3400 < lab.status()["remaining_s"] <= 3600
        clock.write_text(f"{before}\n")
    lab.check()


@pytest.mark.skipif(not LIBFAKETIME.exists(), reason="libfaketime is not installed")
@pytest.mark.parametrize("rule", ["30m total", "until 2026-10-25T02:30+01:00"])
def test_summer_time_ends_during_a_run(
    make_repo: Callable[..., Path], tmp_path: Path, hermetic: Path, rule: str
) -> None:
    """Local time falls back an hour; the time left and the elapsed time do not notice."""
    ends = datetime.fromisoformat("2026-10-25T01:00:00+00:00").timestamp()
    there = time.time() + 12  # the hour is over by then, and a run goes on
    ahead = {"FAKETIME": f"{ends - there:+.0f}", "TZ": "Europe/Berlin"}
    lab = Lab(train_repo(make_repo), tmp_path / "s", hermetic, stop=rule, env={**FAKE, **ahead})
    lab.ok("baseline")
    length = there - time.time() + 2
    assert lab.idea("y", f"sleep={length}").returncode == 0
    row = lab.row("y")
    assert row.started_at.startswith("2026-10-25T00:59:"), row.started_at
    assert row.finished_at.startswith("2026-10-25T01:00:"), row.finished_at
    assert length / 60 - 0.01 <= float(row.elapsed_min) < 1
    assert 1700 < lab.status()["remaining_s"] <= 1800
    lab.check()
