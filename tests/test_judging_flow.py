"""judging.py and conclude.py: from an attempt's log to its row."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autoresearch import (
    attempts,
    campaign,
    conclude,
    confirming,
    launch,
    ledger,
    plan,
    progress,
    recovery,
    series_of_runs,
    waiting,
)
from autoresearch.campaign import Campaign
from autoresearch.errors import AutoresearchError, Refused
from autoresearch.launchers import Outcome
from autoresearch.rows import Row
from autoresearch.rules import judging
from autoresearch.rules.judging import Result
from autoresearch.running import devices
from tests.campaigns import approved, row, state, under_way
from tests.conftest import git

Make = Callable[..., Campaign]
BASE = row("baseline", 0.5, commit="p" * 40)


@pytest.fixture
def make(make_repo: Callable[..., Path], hostile: Path) -> Make:
    """A factory of campaigns: `make(**fields of the plan)`."""
    return lambda **fields: approved(make_repo(), hostile / "scratch", **fields)


def judged(opened: Campaign, rows: list[Row], value: float | None, cause: str = "ok", **more: Any) -> judging.Judged:
    """Judge an attempt of `y` whose parent is the baseline."""
    reason = "" if value is not None else "no line of the log holds val_accuracy"
    return judging.judge(opened, rows, state("y", **more), Result(value, cause, reason, {"memory_gb": 80.0}))


@pytest.mark.parametrize(
    ("direction", "value", "status"),
    [
        ("max", 0.6, "keep"),
        ("max", 0.4, "discard"),
        ("min", 0.4, "keep"),
        ("min", 0.6, "discard"),
        ("max", 0.5, "discard"),
    ],
)
def test_better_is_kept(make: Make, direction: str, value: float, status: str) -> None:
    found = judged(make(direction=direction), [BASE], value)
    assert found.verdict.status == status
    assert found.parent_metric == 0.5


@pytest.mark.parametrize(
    "cause", ["exit 1", "signal 9", "timeout", "disk", "stopped", "stalled", "lost", "oom", "launcher"]
)
def test_a_number_of_a_run_that_did_not_end_well_is_a_crash(make: Make, cause: str) -> None:
    assert judged(make(), [BASE], 0.9, cause).verdict.status == "crash"


def test_a_recipe_s_own_limit_is_a_good_end(make: Make) -> None:
    assert judged(make(), [BASE], 0.9, "recipe-timeout").verdict.status == "keep"


def test_no_number_is_a_crash_that_says_so(make: Make) -> None:
    found = judged(make(), [BASE], None)
    assert found.verdict.status == "crash"
    assert "val_accuracy" in found.verdict.reason


def test_an_unknown_noise_is_said_and_a_known_one_counts(make: Make) -> None:
    opened = make()
    assert judged(opened, [BASE], 0.51).verdict.reason.startswith("unverified")
    opened.plan = opened.plan._replace(noise="0.1")
    found = judged(opened, [BASE], 0.51).verdict
    assert (found.status, found.reason[:12]) == ("discard", "within noise")
    repeats = [BASE, *(row("baseline", v, commit="p" * 40, attempt=n) for n, v in ((2, 0.4), (3, 0.6)))]
    opened.plan = opened.plan._replace(noise="")
    assert judged(opened, repeats, 0.51).verdict.status == "discard"


def test_a_parent_without_a_value_is_replaced_by_the_baseline(make: Make) -> None:
    rows = [row("baseline", 0.5, commit="b" * 40), row("a", None, commit="p" * 40)]
    found = judged(make(), rows, 0.6, parent="a")
    assert (found.verdict.status, found.parent_metric) == ("keep", 0.5)


def test_without_any_value_to_compare_with_it_is_kept_unverified(make: Make) -> None:
    found = judged(make(), [row("baseline", None)], 0.6)
    assert (found.verdict.status, found.parent_metric) == ("keep", None)
    assert found.verdict.reason.startswith("unverified")


def test_simpler_and_equal_is_kept(make: Make) -> None:
    found = judged(make(), [BASE], 0.5, lines_delta=-12).verdict
    assert (found.status, found.reason[:22]) == ("keep", "simpler: 12 fewer line")


def test_a_baseline_that_misses_a_guard_says_so(make: Make) -> None:
    made = state("baseline", role="baseline")
    known = Result(0.9, "ok", "", {"memory_gb": 80.0})
    found = judging.judge(make(guard="memory <= 70"), [], made, known).verdict
    assert (found.status, found.reason) == ("keep", "baseline; it misses the guard: memory unknown, not <= 70")


def test_a_guard_holds_a_keep_back(make: Make) -> None:
    found = judged(make(guard="memory_gb <= 70"), [BASE], 0.9).verdict
    assert found.status == "discard"
    assert found.reason.startswith("guard: ")


H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"


@pytest.mark.parametrize(
    ("there", "here", "status"),
    [(A100, H100, "discard"), (A100, A100, "keep"), ("", H100, "keep"), (A100, "", "keep"), ("none", H100, "discard")],
)
def test_another_type_of_gpu_is_not_kept(make: Make, there: str, here: str, status: str) -> None:
    result = Result(0.9, "ok", "", {}, device=here)
    found = judging.judge(make(), [BASE._replace(device=there)], state("y"), result).verdict
    assert found.status == status
    assert (f"not comparable: baseline ran on {there}, this ran on {here}" in found.reason) == (status == "discard")


def test_another_launcher_is_not_kept(make: Make) -> None:
    found = judging.judge(make(), [BASE._replace(launcher="slurm")], state("y"), Result(0.9, "ok", "", {})).verdict
    assert found.status == "discard"
    assert "not comparable: baseline ran on slurm, this ran on local" in found.reason


def test_a_measured_baseline_is_a_keep(make: Make) -> None:
    opened = make()
    base = state("baseline", commit="p" * 40)
    assert judging.judge(opened, [], base, Result(0.5, "ok", "", {})).verdict.status == "keep"
    assert judging.judge(opened, [], base, Result(None, "ok", "", {})).verdict.status == "crash"


def finished(opened: Campaign, log: str, outcome: Outcome | None = None, **more: Any) -> Row:
    """Conclude an attempt of `y` with such a log, as its supervisor does; return its row."""
    commit = git(Path(opened.where.repository), "rev-parse", "HEAD")
    one = under_way(opened, state("y", phase="ended", commit=commit, parent_commit=commit, **more))
    at = opened.where.attempt("y", one.attempt)
    at.make()
    Path(at.log).write_text(log)
    return conclude.finish(opened, one, outcome or Outcome("ok", 0, 1_800_000_000.0, 1_800_000_090.0, 90.0))


def test_a_run_becomes_one_row_one_note_and_no_state(make: Make) -> None:
    opened = make()
    made = finished(opened, "val_accuracy: 0.25\nval_accuracy: 0.7421\n", description="optim: it's\tnew")
    assert ledger.read(opened.ledger_path).rows == [made]
    assert (made.metric_value, made.elapsed_min, made.index) == ("0.7421", "1.50", "1")
    assert (made.started_at, made.finished_at) == ("2027-01-15T08:00:00Z", "2027-01-15T08:01:30Z")
    assert attempts.every(opened.where) == []
    noted = git(Path(opened.where.repository), "notes", "--ref=autoresearch", "show", made.commit)
    assert json.loads(noted) == {"campaign": "c", **made._asdict()}


@pytest.mark.parametrize(
    ("here", "there", "small"),
    [
        ("--batch-size 4", "--batch-size 64", "batch_size 4 against the baseline's 64"),
        ("--batch-size 32", "--batch-size 64", ""),
        ("data.batch_size=4 data.val_batch_size=1", "data.batch_size=64", "batch_size 4"),
        ("--batch-size 4", "", ""),
    ],
)
def test_a_batch_far_below_the_baseline_s_is_plumbing(make: Make, here: str, there: str, small: str) -> None:
    opened = make()
    ledger.append(opened.ledger_path, BASE._replace(command=f"python train.py {there}", metric_step="10"))
    made = finished(opened, "val_accuracy: 0.4\n", command=f"python train.py {here}")
    book = opened.where.smoke_ledger if small else opened.ledger_path
    assert ledger.read(book).rows[-1] == made
    assert (made.status, small in made.reason) == ("keep" if small else "discard", True)


def test_the_type_of_the_gpu_is_in_the_row(make: Make) -> None:
    outcome = Outcome("ok", 0, 1_800_000_000.0, 1_800_000_090.0, 90.0, device=H100)
    opened = make()
    assert finished(opened, "val_accuracy: 0.5\n", outcome).device == H100
    assert ledger.read(opened.ledger_path).rows[0].device == H100


def test_what_a_launcher_has_to_say_of_a_good_end_is_in_the_row(make: Make) -> None:
    outcome = Outcome("ok", 0, 1_800_000_000.0, 1_800_000_090.0, 90.0, reason="STILL THERE: raycluster/x")
    assert finished(make(), "val_accuracy: 0.6\n", outcome).reason.endswith("; STILL THERE: raycluster/x")


def test_concluding_twice_writes_one_row(make: Make) -> None:
    opened = make()
    first = finished(opened, "val_accuracy: 0.5\n")
    again = finished(opened, "val_accuracy: 0.9\n")
    assert again == first
    assert len(ledger.read(opened.ledger_path).rows) == 1


def test_a_crash_carries_zeros_and_no_source(make: Make) -> None:
    made = finished(make(), "val_accuracy: 0.9\n", Outcome("exit 3", 3, None, None, 60.0))
    assert (made.status, made.metric_value, made.memory_gb, made.metric_source) == ("crash", "0.000000", "0.0", "")
    assert (made.end_cause, made.exit_code, made.value) == ("exit 3", "3", None)
    assert "0.9" in made.reason


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999", "0.5x", "None", ""])
def test_what_is_no_finite_number_is_a_crash(make: Make, text: str) -> None:
    made = finished(make(), f"val_accuracy: {text}\n")
    assert made.status == "crash"
    assert made.value is None


def test_no_secret_gets_into_a_row(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "s3cr3t-value")
    monkeypatch.setenv("AR_DOTENV_KEYS", "OWN_KEY")
    monkeypatch.setenv("OWN_KEY", "own-s3cr3t")
    opened = make()
    made = finished(opened, "x\n", description="a: s3cr3t-value own-s3cr3t", notes=["own-s3cr3t"])
    assert "s3cr3t" not in str(made)
    for folder, _, names in os.walk(opened.where.repository):
        for name in names:
            assert b"s3cr3t" not in Path(folder, name).read_bytes()


def test_control_characters_of_a_log_do_not_reach_a_row(make: Make) -> None:
    made = finished(make(), "val_accuracy: 0.5\n", description="a\x1b[31m\x00b\nc")
    assert made.description == "ab c"


def test_a_row_without_room_is_kept_in_the_state_and_written_later(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    opened = make()
    real = ledger.append

    def full(path: str, one: Row) -> Row:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ledger, "append", full)
    with pytest.raises(OSError, match="No space"):
        finished(opened, "val_accuracy: 0.5\n")
    [left] = attempts.every(opened.where)
    assert left.phase == "concluded"
    monkeypatch.setattr(ledger, "append", real)
    outcome = conclude.outcome_of(left) or Outcome("lost", None, None, None, 0.0)
    made = conclude.finish(opened, left, outcome)
    assert (made.metric_value, made.end_cause) == ("0.5", "ok")
    assert attempts.every(opened.where) == []


def test_what_hinders_a_run_before_it_begins_is_told(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    def full(**given: object) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded", "/scratch/lock")

    opened = make()
    one = under_way(opened, state())
    monkeypatch.setattr(devices, "acquire", full)
    assert not launch.run_one(opened, one)
    assert attempts.every(opened.where) == []
    with pytest.raises(AutoresearchError, match=r"Disk quota exceeded: '/scratch/lock': check disk space"):
        waiting.answer(opened, one)


def test_a_confirming_run_that_is_withdrawn_leaves_the_row_of_its_idea(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = make(confirm=3)
    idea = row("y", 0.9, "discard", reason="unconfirmed: better than baseline by 0.4", verdict_by="rule")
    ledger.append(opened.ledger_path, idea)
    one = state("baseline", 4, role="confirm", confirms="y", lock="y.lock", pairs=3)
    launch.withdraw(opened, under_way(opened, one), Refused("stop rule", "deadline reached", "make summarize"))
    assert attempts.every(opened.where) == []
    assert waiting.answer(opened, one) == 0
    said = capsys.readouterr().out
    assert said.startswith("y: val_accuracy 0.9: discard: unconfirmed")
    assert "make experiment NAME=y REPEAT=1 goes on with it" in said


def test_a_kill_between_the_last_confirming_row_and_the_verdict_loses_none(make: Make) -> None:
    opened = make()
    repo = Path(opened.where.repository)
    git(repo, "commit", "-q", "--allow-empty", "-m", "y")
    parent, commit = git(repo, "rev-parse", "HEAD^", "HEAD").split()
    why, made_for = "unconfirmed: better than baseline by 0.4", judging.confirming("y")
    base = row("baseline", 0.5, commit=parent, verdict_by="rule")
    fields = {"commit": commit, "parent_commit": parent, "verdict_by": "rule"}
    for one in (
        base,
        row("y", 0.9, "discard", reason=why, **fields),
        base._replace(attempt="2", reason=made_for, metric_value="0.52"),
    ):
        ledger.append(opened.ledger_path, one)
    last = row("y", 0.8, "discard", attempt=2, reason=made_for, **fields)
    one = state("y", 2, phase="concluded", commit=commit, role="confirm", confirms="y", pairs=1, row=list(last))
    ended = Outcome("ok", 0, None, None, 1.0)._asdict()
    under_way(opened, one._replace(book=opened.ledger_path, measured={"reading": []}, outcome=ended))
    cut_off = Path(opened.where.records) / "results.tsv.77.tmp"
    cut_off.write_text("x")
    os.utime(cut_off, (1, 1))
    assert [found.id for found in recovery.finish(opened)] == ["y.2"]
    assert not cut_off.exists()
    rows = opened.rows()
    assert [(found.id, found.status) for found in rows] == [(i, "keep") for i in ("baseline", "y", "baseline.2", "y.2")]
    assert rows[1].reason.startswith("confirmed: better than baseline by 0.28 in 1 fresh pairs")


def test_simpler_is_kept_also_where_the_fresh_pairs_show_no_gain(make: Make) -> None:
    opened = make(noise="0.01")
    repo = Path(opened.where.repository)
    (repo / "train.py").write_text("")
    git(repo, "commit", "-qam", "less")
    commits = {"baseline": git(repo, "rev-parse", "HEAD^"), "y": git(repo, "rev-parse", "HEAD")}
    fields = {"commit": commits["y"], "parent_commit": commits["baseline"], "verdict_by": "rule"}
    idea = row("y", 0.9, "discard", reason="unconfirmed: better than baseline by 0.4", **fields)
    fresh = {"attempt": 2, "reason": judging.confirming("y")}
    rows = [
        row("baseline", 0.5, commit=commits["baseline"]),
        idea,
        row("baseline", 0.5, commit=commits["baseline"], **fresh),
        row("y", 0.5, "discard", **fields, **fresh),
    ]
    found = confirming.decide(opened, rows, idea, 1)
    assert (found.status, found.reason.partition(",")[0]) == ("keep", "simpler: 1 fewer lines")


@pytest.mark.parametrize("cause", ["stopped", "lost", "launcher", "disk"])
def test_a_confirming_run_that_its_machine_failed_says_nothing_of_the_idea(make: Make, cause: str) -> None:
    opened = make(confirm=1)
    made_for = judging.confirming("y")
    idea = row("y", 0.9, "discard", reason="unconfirmed: better than baseline by 0.4", verdict_by="rule")
    cut = row("y", None, attempt=2, reason=f"{made_for}: {cause}", end_cause=cause)
    rows = [row("baseline", 0.5), idea, cut, cut._replace(attempt="3")]
    for one in rows:
        ledger.append(opened.ledger_path, one)
    assert confirming.confirmation(rows, idea, 1).needed() == ["parent", "candidate"]
    last = state("y", 3, role="confirm", confirms="y", lock="y.lock", pairs=1)
    assert series_of_runs.next_one(opened, last) is None  # it would be made again for ever
    assert confirming.next_run(opened, rows, idea, 1).experiment == "baseline"


def test_what_is_said_after_a_run_goes_by_the_rule_as_it_was_changed_meanwhile(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = make(rules="2 experiments")
    for one in (row("baseline", 0.5), row("y", 0.6)):
        ledger.append(opened.ledger_path, one)
    longer = opened.plan._replace(stop="9 experiments", rules={"experiments": 9})
    with opened.locked():
        campaign.approve(opened.where, longer, plan.save(opened.where, longer), "me")
    assert "2/9 attempted" in progress.line(opened, state("z"))
    opened.plan = opened.plan._replace(rules={"experiments": 2})
    waiting.closing(opened)
    assert "stop condition not yet met: 2/9 attempted" in capsys.readouterr().out
