"""notes.py: one line a row, nothing lost beside other writers, and the ledger back from git alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autoresearch import conclude, ledger
from autoresearch.errors import Refused
from autoresearch.git import Git, notes
from autoresearch.verbs import ledger as ledger_verb
from tests.campaigns import approved
from tests.campaigns import row as ledger_row
from tests.conftest import git, snapshot


def row(index: int, experiment: str = "x", attempt: int = 1, **more: str) -> dict[str, str]:
    """Return a row's fields."""
    return {"campaign": "c", "index": str(index), "experiment": experiment, "attempt": str(attempt), **more}


def test_rows_come_back_in_the_order_of_their_index(repo: Path) -> None:
    one, head = Git(str(repo)), git(repo, "rev-parse", "HEAD")
    other = git(repo, "commit-tree", "-m", "other", "HEAD^{tree}")
    before = snapshot(repo)
    rows = [row(n, f"e{n}", description=f"tab\t 'quote' {n} é \u2028 ${{x}}\nline") for n in (3, 11, 1, 2)]
    for number, fields in enumerate(rows):
        notes.append(one, head if number % 2 else other, json.dumps(fields, ensure_ascii=False))
    assert notes.rebuild(one, "c") == sorted(rows, key=lambda fields: int(fields["index"]))
    assert notes.rebuild(one, "another") == []
    assert snapshot(repo) == before


def test_a_changed_verdict_is_the_one_that_counts(repo: Path) -> None:
    one, head = Git(str(repo)), git(repo, "rev-parse", "HEAD")
    notes.append(one, head, json.dumps(row(1, status="keep")))
    notes.append(one, head, json.dumps(row(2, attempt=2, status="keep")))
    notes.append(one, head, json.dumps(row(1, status="discard")))
    assert [found["status"] for found in notes.rebuild(one, "c")] == ["discard", "keep"]


def test_a_recorded_commit_outlives_its_branch_and_its_reflogs(repo: Path) -> None:
    git(repo, "checkout", "-q", "-b", "ar/c/y")
    git(repo, "commit", "-q", "--allow-empty", "-m", "the recorded one")
    recorded = git(repo, "rev-parse", "HEAD")
    for index in (1, 2):
        notes.append(Git(str(repo)), recorded, json.dumps(row(index)))
    git(repo, "commit", "-q", "--allow-empty", "--amend", "-m", "amended")
    git(repo, "reflog", "expire", "--expire=now", "--all")
    git(repo, "gc", "-q", "--prune=now")
    assert git(repo, "cat-file", "-t", recorded) == "commit"
    assert git(repo, "for-each-ref", "--format=%(refname)", "--contains", recorded) == notes.kept(recorded)


def test_a_lock_that_a_killed_git_has_left_on_the_ref_of_a_commit_is_removed(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, head = Git(str(repo)), git(repo, "rev-parse", "HEAD")
    notes.append(one, head, json.dumps(row(1)))
    git(repo, "update-ref", "-d", notes.kept(head))
    lock = repo / ".git" / f"{notes.kept(head)}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()
    os.utime(lock, (1, 1))
    monkeypatch.setattr(one, "_env", {**one.variables, "GIT_CONFIG_COUNT": "0"})  # its wait for a lock
    assert not notes.append_once(one, head, json.dumps(row(1)))
    assert git(repo, "rev-parse", notes.kept(head)) == head


def test_once_is_once(repo: Path) -> None:
    one, head = Git(str(repo)), git(repo, "rev-parse", "HEAD")
    line = json.dumps(row(1)) + "\n"
    assert notes.append_once(one, head, line)
    assert not notes.append_once(one, head, line)
    assert notes.append_once(one, head, json.dumps(row(2)))
    assert len(list(notes.read_all(one))) == 2


def test_bytes_that_are_no_text_come_back_as_the_ledger_has_them(repo: Path, tmp_path: Path) -> None:
    """A run has left a file of such a name in its tree, and the row names it."""
    opened, commit = approved(repo, tmp_path / "scratch"), git(repo, "rev-parse", "HEAD")
    left = ledger.append(opened.ledger_path, ledger_row("y", 0.5, commit=commit, reason="left in its tree: \udcff x"))
    notes.append(opened.git, commit, conclude.note_line(opened, left))
    assert ledger_verb.rebuilt(opened) == ledger.read(opened.ledger_path).rows


def test_the_log_reads_well(repo: Path) -> None:
    notes.append(Git(str(repo)), git(repo, "rev-parse", "HEAD"), json.dumps(row(1)))
    assert '{"campaign": "c"' in git(repo, "log", "-1", "--notes=autoresearch")
    assert "campaign" not in git(repo, "log", "-1")


def test_foreign_notes_are_skipped_and_kept(repo: Path) -> None:
    one, head = Git(str(repo)), git(repo, "rev-parse", "HEAD")
    git(repo, "notes", "--ref=autoresearch", "add", "-m", "by hand\n{broken\n[1]", head)
    notes.append(one, head, json.dumps(row(1)))
    assert [found["index"] for found in notes.read_all(one)] == ["1"]
    assert "by hand" in git(repo, "notes", "--ref=autoresearch", "show", head)


def test_no_notes_are_no_rows(repo: Path) -> None:
    assert notes.rebuild(Git(str(repo)), "c") == []


def test_a_missing_identity_is_said(repo: Path, hermetic: Path) -> None:
    (hermetic / ".gitconfig").write_text("[user]\n\tuseConfigOnly = true\n")
    with pytest.raises(Refused, match=r"user\.name"):
        notes.append(Git(str(repo)), git(repo, "rev-parse", "HEAD"), "{}")


def test_eight_writers_lose_none_of_forty(repo: Path) -> None:
    head = git(repo, "rev-parse", "HEAD")
    commits = [head, *(git(repo, "commit-tree", "-m", str(n), "HEAD^{tree}") for n in range(9))]
    code = (
        "import json, sys; from autoresearch.git import notes; from autoresearch.git import Git\n"
        "one = Git(sys.argv[1])\n"
        "for n, commit in enumerate(sys.argv[3:]):\n"
        "    notes.append_once(one, commit, json.dumps({'campaign': 'c', 'experiment': sys.argv[2], 'attempt': n}))\n"
    )
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(repo), f"w{n}", *(commits[(n + k) % 10] for k in range(5))],
            cwd=Path(__file__).parent.parent,
        )
        for n in range(8)
    ]
    assert [writer.wait() for writer in writers] == [0] * 8
    assert len(notes.rebuild(Git(str(repo)), "c")) == 40
