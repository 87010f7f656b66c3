"""Coming back: what `resume` finds when notes, git, ledger, files and attempts disagree, and what `show` tells."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from autoresearch import attempts, campaign, plan, showing
from autoresearch.campaign import Campaign
from autoresearch.errors import Refused, Usage
from autoresearch.sessions import resuming, session, session_files, situation
from autoresearch.verbs import goal, handoff, install_skill, note, resume, show
from autoresearch.verbs import session as session_verb
from tests import session_campaigns as campaigns
from tests.conftest import git, snapshot


@pytest.fixture
def opened(repo: Path, hostile: Path, monkeypatch: pytest.MonkeyPatch) -> Campaign:
    """A campaign with notes, a baseline and one idea."""
    monkeypatch.setenv("AR_REPO", str(repo))
    made = campaigns.make(repo, hostile / "scratch")
    session.checkpoint(made.where, "plan made")
    campaigns.row(made, "baseline", 0.5)
    session.checkpoint(made.where, "baseline: keep, ok", "baseline")
    campaigns.row(made, "warmup", 0.6, parent_metric="0.5")
    session.checkpoint(made.where, "warmup: keep, ok", "better than baseline by 0.1")
    return made


def found(opened: Campaign) -> list[str]:
    return resuming.mismatches(situation.look(opened.where), session_files.current(opened.where))


def answer(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.setenv("AR_JSON", "1")
    assert resume.run() == 0
    monkeypatch.delenv("AR_JSON")
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def test_resume_prints_everything_in_order_and_ends_with_the_next_step(
    opened: Campaign, repo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(repo)
    assert resume.run() == 0
    lines = capsys.readouterr().out.rstrip("\n").split("\n")
    order = ["objective", "stop rule", "branch", "latest", "running", "next", "skill", "mismatches"]
    places = [next(n for n, line in enumerate(lines) if line.startswith(word)) for word in order]
    assert places == sorted(places)
    assert lines[0] == "objective   raise val_accuracy of the toy"
    assert "stop condition not yet met: 2/5 attempted" in lines[1]
    assert lines[-1].startswith("next: make experiment CAMPAIGN=camp")
    assert "agree" in lines[places[-1]]
    assert len(lines) <= 60
    assert snapshot(repo) == before


def test_all_is_well_means_no_mismatch(opened: Campaign) -> None:
    assert found(opened) == []


def test_a_missing_branch_a_missing_commit_and_a_lost_commit_are_told_apart(opened: Campaign, repo: Path) -> None:
    git(repo, "update-ref", "-d", "refs/heads/autoresearch/camp/warmup")
    assert any("branch autoresearch/camp/warmup of the ledger is not in git" in text for text in found(opened))
    assert any("row 2 (warmup): its commit" in text and "on no branch" in text for text in found(opened))
    campaigns.row(opened, "ghost", 0.7, commit="1" * 40)
    assert any("row 3 (ghost): its commit 111111111111 is not in git" in text for text in found(opened))


def test_verdicts_of_the_notes_and_rows_of_the_ledger_are_compared_both_ways(opened: Campaign) -> None:
    session.checkpoint(opened.where, "phantom: keep, ok", "never happened")
    session.checkpoint(opened.where, "launching lost on autoresearch/camp/lost")
    session.checkpoint(opened.where, "launching gone on autoresearch/camp/gone")
    session.checkpoint(opened.where, "withdrawn gone", "the stop rule was met while it waited")
    texts = found(opened)
    assert not any(" gone " in text for text in texts)
    assert "the notes record phantom as keep, the ledger has no row of it" in texts
    assert "the notes say lost was launched: it neither runs nor has a row" in texts
    text = Path(opened.ledger_path).read_text().replace("\tkeep\tarea: warmup", "\tdiscard\tarea: warmup")
    Path(opened.ledger_path).write_text(text)
    assert "the notes record warmup as keep, the ledger says discard" in found(opened)


def test_a_row_that_the_notes_miss_is_named(opened: Campaign) -> None:
    campaigns.row(opened, "silent", 0.55, finished_at="2099-01-01T00:00:00Z")
    assert "the notes miss 1 rows of the ledger: silent" in found(opened)


def test_a_marked_verdict_is_no_mismatch(opened: Campaign) -> None:
    session.checkpoint(opened.where, "warmup marked discard instead of keep", "unstable")
    text = Path(opened.ledger_path).read_text().replace("\tkeep\tarea: warmup", "\tdiscard\tarea: warmup")
    Path(opened.ledger_path).write_text(text)
    assert found(opened) == []


def test_torn_and_edited_ledgers_are_named(opened: Campaign) -> None:
    lines = Path(opened.ledger_path).read_text().split("\n")
    Path(opened.ledger_path).write_text("\n".join([lines[0], lines[2], "torn\tline", ""]))
    texts = found(opened)
    assert any("torn lines, skipped: 3" in text for text in texts)
    assert any("does not count from 1" in text for text in texts)
    assert "the notes record baseline as keep, the ledger has no row of it" in texts


def test_removed_logs_and_a_removed_scratch_are_named(opened: Campaign) -> None:
    shutil.rmtree(opened.where.experiment("warmup"))
    assert any("the logs of 1 rows are gone (cleaned up?): warmup" in text for text in found(opened))
    shutil.rmtree(opened.where.root)
    assert any("is gone: logs and checkpoints with it" in text for text in found(opened))


def test_an_orphan_is_named_and_a_stop_request_too(opened: Campaign) -> None:
    made = campaigns.state(opened, "orphan")
    Path(attempts.stop_file(opened.where, made.id)).touch()
    texts = found(opened)
    assert any("orphan has lost its supervisor" in text for text in texts)
    assert any("orphan was asked to stop" in text for text in texts)


def test_a_plan_that_changed_needs_a_new_approval(opened: Campaign) -> None:
    with open(opened.where.plan, "a") as file:
        file.write("# by hand\n")
    assert any("differs from the text that was approved" in text for text in found(opened))
    assert situation.next_action(situation.look(opened.where))[0] == "approve"


def test_a_goal_or_stop_rule_that_was_edited_in_the_notes_does_not_count(
    opened: Campaign, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = session_files.current(opened.where)
    assert notes
    text = Path(notes.state).read_text()
    Path(notes.state).write_text(
        text.replace("raise val_accuracy of the toy", "do whatever").replace("- stop rule: 5", "- stop rule: 500")
    )
    texts = found(opened)
    assert any("the Goal in the notes is not the campaign's objective" in text for text in texts)
    assert any("the stop rule in the notes is not the approved one" in text for text in texts)
    facts = answer(capsys, monkeypatch)
    assert facts["objective"] == "raise val_accuracy of the toy"
    assert facts["stop_rule"] == "5 experiments, 1h each"


def test_a_section_that_was_removed_is_named(opened: Campaign) -> None:
    notes = session_files.current(opened.where)
    assert notes
    Path(notes.state).write_text(Path(notes.state).read_text().replace("## Blockers", "Blockers"))
    assert any("no section 'Blockers'" in text for text in found(opened))


def test_resume_before_the_approval_and_without_notes(
    repo: Path, hostile: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AR_REPO", str(repo))
    monkeypatch.setenv("AR_CAMPAIGN", "camp")
    campaigns.make(repo, hostile / "scratch", approved=False)
    facts = answer(capsys, monkeypatch)
    assert facts["action"] == "approve"
    assert facts["approval"] == "missing"
    assert any("a session is started" in text for text in facts["mismatches"])  # type: ignore[attr-defined]
    assert facts["session"]


@pytest.mark.parametrize(
    ("make", "action"),
    [
        (lambda opened: None, "experiment"),
        (lambda opened: campaigns.state(opened, "busy"), "wait"),
        (lambda opened: [campaigns.row(opened, f"idea-{n}", 0.5) for n in range(3)], "summarize"),
    ],
)
def test_the_next_action_is_a_keyword_with_a_line(opened: Campaign, make: object, action: str) -> None:
    make(opened)  # type: ignore[operator]
    keyword, line = situation.next_action(situation.look(opened.where))
    assert keyword == action
    assert "CAMPAIGN=camp" in line


def test_after_the_summary_of_a_campaign_that_is_over_comes_the_report(opened: Campaign) -> None:
    for number in range(3):
        campaigns.row(opened, f"idea-{number}", 0.5)
    Path(opened.where.summary).write_text("# summary\n")
    assert situation.next_action(situation.look(opened.where))[0] == "report"


def test_a_baseline_comes_first_and_a_crashed_one_again(
    repo: Path, hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AR_REPO", str(repo))
    made = campaigns.make(repo, hostile / "scratch")
    assert situation.next_action(situation.look(made.where))[0] == "baseline"
    campaigns.row(made, "baseline", None, "crash")
    assert situation.next_action(situation.look(made.where))[0] == "baseline"


def test_what_has_not_run_yet_is_listed(opened: Campaign, repo: Path) -> None:
    tip = campaigns.commit(opened, "started")
    fix = git(repo, "commit-tree", f"{tip}^{{tree}}", "-p", "refs/heads/autoresearch/camp/warmup", "-m", "fix: warmup")
    git(repo, "update-ref", "refs/heads/autoresearch/camp/warmup", fix)
    listed = {item["experiment"]: item["why"] for item in resuming.unrun(situation.look(opened.where))}
    assert listed == {"started": "never ran", "warmup": "has a newer commit than its last row"}


def test_steering_goal_and_skills_come_back(
    opened: Campaign, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(10):
        monkeypatch.setenv("AR_TEXT", f"steer {number}")
        assert note.run() == 0
    monkeypatch.setenv("AR_KIND", "skill")
    monkeypatch.setenv("AR_TEXT", "launch-nemo-rl")
    assert note.run() == 0
    printed = capsys.readouterr().out
    assert printed.count("objective, unchanged: raise val_accuracy of the toy") == 11
    facts = answer(capsys, monkeypatch)
    assert facts["objective"] == "raise val_accuracy of the toy"
    assert facts["stop_rule"] == "5 experiments, 1h each"
    assert len(facts["steering"]) == 10  # type: ignore[arg-type]
    assert "launch-nemo-rl" in facts["skills"]  # type: ignore[operator]
    assert resume.run() == 0
    assert len(capsys.readouterr().out.split("\n")) <= 61
    monkeypatch.delenv("AR_KIND")
    monkeypatch.setenv("AR_TEXT", "lower latency")
    assert goal.run() == 0
    assert "before: raise val_accuracy of the toy" in capsys.readouterr().out
    facts = answer(capsys, monkeypatch)
    assert facts["objective"] == "lower latency"
    assert len(facts["steering"]) == 10  # type: ignore[arg-type]
    assert facts["mismatches"] == []


def test_handoff_writes_and_prints_the_same(
    opened: Campaign, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    session.note(opened.where, "blocker", "no GPU until noon")
    session.checkpoint(opened.where, "phantom: keep, ok")
    assert handoff.run() == 0
    printed = capsys.readouterr().out
    notes = session_files.current(opened.where)
    assert notes
    assert Path(notes.handoff).read_text() in printed
    assert "- mismatch: the notes record phantom" in printed
    assert "no GPU until noon" in printed
    assert printed.rstrip().split("\n")[-1].startswith("written: ")
    monkeypatch.setenv("AR_JSON", "1")
    assert handoff.run() == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["next"].startswith("make experiment")
    assert any("objective: raise" in line for line in facts["resume_from_here"])


def test_session_shows_and_starts_anew(
    opened: Campaign, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert session_verb.run() == 0
    first = capsys.readouterr().out.split("\n")[0]
    assert session_verb.run() == 0
    assert capsys.readouterr().out.split("\n")[0] == first
    monkeypatch.setenv("AR_NEW", "1")
    assert session_verb.run() == 0
    out = capsys.readouterr().out
    assert out.split("\n")[0] != first
    assert "2/5 attempted" in out
    assert len(out.split("\n")) <= 60


def test_show_tells_one_attempt_in_at_most_60_lines(
    opened: Campaign, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sha = campaigns.commit(opened, "wide", files={f"file {n}.py": "x\n" * n for n in range(1, 31)})
    log = "\x1b[31mred\x1b[0m\n# Heading\n" + "\n".join(f"line {n} {'y' * 300}" for n in range(200))
    campaigns.row(opened, "wide", 0.7, commit=sha, parent_metric="0.5", log=log)
    session.checkpoint(opened.where, "wide: keep, ok", "better")
    monkeypatch.setenv("AR_NAME", "wide")
    assert show.run() == 0
    lines = capsys.readouterr().out.rstrip("\n").split("\n")
    assert len(lines) <= 60
    text = "\n".join(lines)
    for part in (
        "experiment   wide: area: wide",
        "changes      30 files, +465 -0",
        "  ... and 20 more",
        "command      python3 train.py",
        "end cause    ok",
        "metric       val_accuracy 0.7, parent 0.5 (+0.2) from console run.log:2",
        "memory",
        "log tail",
        '| wide: keep, ok | "better"',
    ):
        assert part in text, part
    assert "\x1b" not in text
    assert not any(line.startswith("#") for line in lines)
    assert lines[-1].startswith("next: ")


def test_show_masks_secrets_in_the_log_tail(
    opened: Campaign, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AR_DOTENV_KEYS", "API_TOKEN")
    monkeypatch.setenv("API_TOKEN", "s3cr3t-of-the-user")
    campaigns.row(opened, "leaky", 0.4, "discard", log="token s3cr3t-of-the-user\n", reason="saw s3cr3t-of-the-user")
    monkeypatch.setenv("AR_NAME", "leaky")
    assert show.run() == 0
    monkeypatch.setenv("AR_JSON", "1")
    assert show.run() == 0
    out = capsys.readouterr().out
    assert "s3cr3t-of-the-user" not in out
    assert "[secret]" in out


def test_show_finds_attempts_by_number_by_id_running_and_smoke(opened: Campaign) -> None:
    campaigns.row(opened, "warmup", 0.65, attempt="2")
    assert showing.find(opened, "warmup", 0)[0].attempt == "2"  # type: ignore[union-attr]
    assert showing.find(opened, "warmup", 1)[0].attempt == "1"  # type: ignore[union-attr]
    assert showing.find(opened, "warmup.2", 0)[0].attempt == "2"  # type: ignore[union-attr]
    campaigns.state(opened, "busy")
    row, state = showing.find(opened, "busy", 0)
    assert row is None
    assert state is not None
    facts = showing.data(opened, row, state)
    assert facts["status"] == "running"
    assert facts["next"] == "make wait CAMPAIGN=camp NAME=busy"
    assert showing.lines(facts)[-1] == "next: make wait CAMPAIGN=camp NAME=busy"
    with pytest.raises(Refused, match="the experiments: baseline, warmup"):
        showing.find(opened, "nothing", 0)


def test_show_of_a_crash_says_what_to_do(
    opened: Campaign, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    campaigns.row(opened, "broken", None, "crash", log="Traceback\nNameError: x\n")
    monkeypatch.setenv("AR_NAME", "broken")
    assert show.run() == 0
    out = capsys.readouterr().out
    assert "  | NameError: x" in out
    assert "no valid value" in out
    assert out.rstrip().split("\n")[-1].startswith("next: a trivial mistake: correct it on the same branch")


def test_install_skill_links_and_replaces_nothing(
    hostile: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AR_DIR", str(hostile / "skills"))
    assert install_skill.run() == 0
    link = hostile / "skills" / "autoresearch"
    assert (link / "SKILL.md").is_file()
    assert install_skill.run() == 0
    assert "there already" in capsys.readouterr().out
    link.unlink()
    link.mkdir()
    with pytest.raises(Refused):
        install_skill.run()
    assert link.is_dir()
    assert not os.listdir(link)
    monkeypatch.delenv("AR_DIR")
    with pytest.raises(Usage):
        install_skill.run()


def test_an_objective_planned_anew_and_approved_replaces_a_goal(opened: Campaign) -> None:
    session.set_goal(opened.where, "lower latency")
    made = opened.plan._replace(objective="fewer tokens")
    plan.approve(opened.where, made, plan.save(opened.where, made), "tester")
    assert session.objective(opened.where) == "fewer tokens"
    assert campaign.open_any().plan.objective == "fewer tokens"
