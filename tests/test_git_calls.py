"""git.py: what surrounds a call can neither steer it, see secrets through it, nor hang it."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from autoresearch import git as owner
from autoresearch.errors import AutoresearchError, Refused, TryAgain
from autoresearch.git import Git, hypothesis
from tests.conftest import git


def test_inherited_git_variables_do_not_steer(repo: Path, make_repo, monkeypatch: pytest.MonkeyPatch) -> None:
    other = make_repo(name="other")
    git(other, "checkout", "-q", "-b", "elsewhere")
    for key, value in {
        "GIT_DIR": str(other / ".git"),
        "GIT_WORK_TREE": str(other),
        "GIT_INDEX_FILE": str(other / ".git/index"),
        "GIT_CONFIG_PARAMETERS": "'core.bare=true'",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.bare",
        "GIT_CONFIG_VALUE_0": "true",
        "GIT_TRACE": "1",
    }.items():
        monkeypatch.setenv(key, value)
    assert Git(str(repo)).run("rev-parse", "--show-toplevel", "--abbrev-ref", "HEAD").decode() == f"{repo}\nmain\n"


def test_every_local_variable_is_dropped(repo: Path) -> None:
    names = Git(str(repo)).run("rev-parse", "--local-env-vars").decode().split()
    kept = owner.environment(base=dict.fromkeys(names, "x") | {"PATH": "/bin"})
    assert not set(names) & set(kept)


def test_secrets_never_reach_git(repo: Path) -> None:
    base = dict(os.environ, WANDB_API_KEY="abcdef123456", OTHER="kept")
    out = Git(str(repo), drop_env_keys=("WANDB_API_KEY",), base=base).run("-c", "alias.e=!env", "e").decode()
    assert "abcdef123456" not in out
    assert "OTHER=kept" in out


def test_messages_are_english_whatever_the_locale(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGUAGE", "de")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    with pytest.raises(AutoresearchError, match=r"bad revision"):
        Git(str(repo)).run("log", "nothing-of-that-name", "--")


def test_hooks_do_not_run_unless_asked_for(repo: Path, tmp_path: Path) -> None:
    for hook in ("reference-transaction", "post-checkout", "pre-commit"):
        path = repo / ".git/hooks" / hook
        path.write_text(f"#!/bin/sh\necho {hook} >> '{tmp_path}/ran'; exit 1\n")
        path.chmod(0o755)
    one = Git(str(repo))
    one.run("update-ref", "refs/heads/x", "HEAD", owner.ZEROS)
    assert not (tmp_path / "ran").exists()
    assert one.call("commit", "--allow-empty", "-q", "-m", "x", hooks=True).code == 1
    assert (tmp_path / "ran").read_text() == "pre-commit\n"


def test_large_input_and_output_do_not_block(repo: Path) -> None:
    data = b"0123456789abcdef\n" * 400_000
    sha = Git(str(repo)).run("hash-object", "-w", "--stdin", input=data).decode().strip()
    assert Git(str(repo)).run("cat-file", "blob", sha) == data


def test_the_time_limit_ends_the_whole_group(repo: Path, tmp_path: Path) -> None:
    before = time.monotonic()
    with pytest.raises(TryAgain, match="no answer within"):
        Git(str(repo)).run("-c", "alias.s=!sleep 91.77 & sleep 91.77", "s", timeout=0.3)
    assert time.monotonic() - before < 60
    assert "sleep 91.77" not in subprocess.run(["ps", "axo", "args"], capture_output=True, text=True, check=True).stdout


def test_two_run_side_by_side(repo: Path) -> None:
    one = Git(str(repo))
    first, second = one.start("rev-parse", "HEAD"), one.start("write-tree")
    assert second.finish().code == 0
    assert first.finish().out.strip().decode() == git(repo, "rev-parse", "HEAD")
    assert one.count == 2
    assert one.at("/").count == 2


@pytest.mark.parametrize(
    ("message", "kind", "part"),
    [
        (b"fatal: Unable to create '/r/.git/index.lock': File exists.\n\nAnother git", TryAgain, "/r/.git/index.lock"),
        (b"fatal: detected dubious ownership in repository at '/'\nTo add", Refused, "sudo -u root"),
        (b"error: unable to write file: No space left on device\nfatal: x", Refused, "free disk space"),
        (b"fatal: update_ref failed for ref 'x': couldn't write '/r/.git/x.lock'", Refused, "df -h"),
        (b"fatal: could not read https://me:tok-en@host/x\nhint: nothing", AutoresearchError, "https://host/x"),
        (b"\x1b[31mfatal\x1b: odd", AutoresearchError, "odd"),
        (b"", AutoresearchError, "no message"),
        (b"fatal: empty ident name not allowed", Refused, "user.name"),
    ],
)
def test_errors_say_what_git_said(message: bytes, kind: type, part: str) -> None:
    error = owner.failure(("git", "-C", "/r", "add"), owner.Done(128, b"", message))
    assert type(error) is kind
    assert part in str(error)
    assert "tok-en" not in str(error)
    assert "\x1b" not in str(error)


def test_a_missing_git_is_said(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(Refused, match="no git program"):
        Git(str(repo)).run("--version")


def test_a_commit_name_is_resolved_and_never_an_option(repo: Path, tmp_path: Path) -> None:
    one = Git(str(repo))
    assert one.commit("main") == git(repo, "rev-parse", "HEAD")
    for name in ("nothing", f"--output={tmp_path}/written", "", "HEAD:train.py"):
        with pytest.raises(Refused, match="is not a commit"):
            one.commit(name)
    assert not (tmp_path / "written").exists()


def test_what_a_commit_records_is_read_again_whatever_git_is_set_to(repo: Path, hermetic: Path) -> None:
    """Words of the command that got lost would be another experiment; the encoding is that of the message."""
    with open(hermetic / ".gitconfig", "a", encoding="utf-8") as file:
        file.write(
            '[trailer]\n\tseparators = "%"\n[i18n]\n\tcommitEncoding = ISO-8859-1\n\tlogOutputEncoding = UTF-16\n'
        )
    text = hypothesis.message("lr: höher", [("Overrides", '["lr=1"]')], "A <a@b>").encode()
    commit = Git(str(repo)).run("commit-tree", "-p", "HEAD", "HEAD^{tree}", input=text).decode().strip()
    form = "--format=%s|%(trailers:key=Overrides,valueonly)"
    assert Git(str(repo)).run("show", "-s", form, commit).decode().strip() == 'lr: höher|["lr=1"]'
    assert b"encoding" not in Git(str(repo)).run("cat-file", "commit", commit)


def test_reading_never_writes_the_index(repo: Path) -> None:
    os.utime(repo / "train.py", (1, 1))
    before = ((repo / ".git/index").read_bytes(), (repo / ".git/index").stat().st_mtime_ns)
    Git(str(repo)).run("status", "--porcelain")
    assert ((repo / ".git/index").read_bytes(), (repo / ".git/index").stat().st_mtime_ns) == before
