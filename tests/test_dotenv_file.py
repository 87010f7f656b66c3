"""dotenv_file.py: a .env is data; what it says wrongly is named by line, what it holds is never shown."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoresearch import dotenv_file
from autoresearch.errors import Refused

READ = {
    "K = v": "v",
    "K=two words": "two words",
    'K="a b"': "a b",
    "K='a b'": "a b",
    "K=val # c": "val",
    "K=val#c": "val#c",
    "K=$(touch pwned)": "$(touch pwned)",
    "K=`touch pwned`": "`touch pwned`",
    "K=pa$$word": "pa$$word",
    "K=${HOME}/y": "${HOME}/y",
    "export K=v": "v",
    'K={"a": "b"}': '{"a": "b"}',
    "K=C:\\new": "C:\\new",
    'K="first\nsecond"': "first\nsecond",
    "K=v\r": "v",
    "\ufeffK=v": "v",
    "K=": "",
    "# comment\n\nK=v": "v",
    "K=old\nK=new": "new",
    "K=日本語 é": "日本語 é",
}


@pytest.mark.parametrize("line", READ, ids=repr)
def test_a_line_is_read_as_data(hostile: Path, line: str) -> None:
    file = hostile / ".env"
    file.write_bytes(line.encode() + b"\n")
    assert dotenv_file.load(str(file)) == {"K": READ[line]}
    assert os.listdir(hostile) == [".env"]


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"A=1\nK\n", 2),
        (b"A=1\nK='open\nB=2\n", 2),
        (b"A=1\nB=s3cr3t\xff\n", 2),
        (b"a=s3cr3t\n", 1),
        (b"A-B=s3cr3t\n", 1),
        (b"1A=s3cr3t\n", 1),
        (b"'A B'=s3cr3t\n", 1),
        (b"K=1\n\nPATH=/s3cr3t\n", 3),
        (b"a[$(touch x)]=s3cr3t\n", 1),
        (b"K=a\0b\n", 1),
        (b"K=" + b"x" * 140000 + b"\n", 1),
    ],
)
def test_a_wrong_line_is_named_and_its_value_is_not(hostile: Path, data: bytes, line: int) -> None:
    file = hostile / ".env"
    file.write_bytes(data)
    with pytest.raises(Refused) as caught:
        dotenv_file.load(str(file))
    assert f"line {line} " in str(caught.value)
    assert "s3cr3t" not in str(caught.value)
    assert "xxxxx" not in str(caught.value)


STEERING = (
    "PATH IFS PS4 BASH_ENV ENV SHELLOPTS LD_PRELOAD PYTHONPATH PYTHONSTARTUP GIT_SSH_COMMAND MAKEFLAGS HOME AR_NAME"
)


@pytest.mark.parametrize("key", STEERING.split())
def test_a_key_that_steers_programs_is_refused(hostile: Path, key: str) -> None:
    file = hostile / ".env"
    file.write_text(f"{key}=x\n")
    with pytest.raises(Refused) as caught:
        dotenv_file.load(str(file))
    assert key in str(caught.value)


EXPORTING = 'set -Eeuo pipefail; for key; do (export "${key}=HOME[\\$(touch pwned)]"; env -0); done'


def test_a_key_that_passes_is_nothing_to_bash(hostile: Path) -> None:
    """bash knows some variables as numbers, and reads their value as arithmetic, which runs what is in brackets."""
    listed = subprocess.run(["bash", "-c", "compgen -v"], capture_output=True, text=True, check=True).stdout.split()
    special = "RANDOM SRANDOM HISTCMD OPTIND LINENO SECONDS EPOCHSECONDS EPOCHREALTIME BASHPID SHLVL UID BASH_ARGV0"
    passing = []
    for key in sorted({*listed, *special.split()}):
        file = hostile / ".env"
        file.write_text(f"{key}='HOME[$(touch pwned)]'\n")
        with contextlib.suppress(Refused):
            passing += dotenv_file.load(str(file))
    assert passing
    done = subprocess.run(["bash", "-c", EXPORTING, "-", *passing], cwd=hostile, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for key in passing:
        assert f"{key}=HOME[$(touch pwned)]\0" in done.stdout
    assert not (hostile / "pwned").exists()


def test_what_is_no_file_is_refused(hostile: Path) -> None:
    os.mkfifo(hostile / "pipe")
    (hostile / "dangling").symlink_to("nowhere")
    for name in ("missing", "pipe", "dangling", "."):
        with pytest.raises(Refused):
            dotenv_file.load(str(hostile / name))


def test_only_the_given_file_is_read(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below = hostile / "below"
    below.mkdir()
    (hostile / ".env").write_text("K=parent\n")
    (below / ".env").write_text("X=1\n")
    monkeypatch.chdir(below)
    monkeypatch.setenv("PYTHON_DOTENV_DISABLED", "1")
    assert dotenv_file.load(str(below / ".env")) == {"X": "1"}


def test_owner_and_mode_are_worth_a_warning(hostile: Path) -> None:
    file = hostile / ".env"
    file.write_text("K=v\n")
    file.chmod(0o600)
    assert dotenv_file.warnings(str(file)) == []
    for mode in (0o640, 0o604):
        file.chmod(mode)
        [found] = dotenv_file.warnings(str(file))
        assert "chmod 600" in found
    assert dotenv_file.warnings(str(hostile / "none")) == []
    if os.geteuid() == 0:
        file.chmod(0o600)
        os.chown(file, 65534, 65534)
        assert "not yours" in dotenv_file.warnings(str(file))[0]


# Within double quotes the parser knows \\ and \" and newlines as they are.
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r", exclude_categories=("Cs",)), max_size=40)


@given(st.dictionaries(st.from_regex(r"K[A-Z0-9_]{0,8}", fullmatch=True), TEXTS, max_size=5))
@settings(max_examples=60)
def test_single_quoted_values_come_back(pairs: dict[str, str]) -> None:
    import tempfile

    text = "".join(f"{key}='" + value.replace("\\", "\\\\").replace("'", "\\'") + "'\n" for key, value in pairs.items())
    with tempfile.NamedTemporaryFile("wb") as file:
        file.write(text.encode())
        file.flush()
        assert dotenv_file.load(file.name) == pairs


def test_the_hand_over_is_nul_separated_and_fails_loudly(hostile: Path) -> None:
    file = hostile / ".env"
    file.write_text("A='x\ny'\nB=\n")
    words = [sys.executable, "-I", "-m", "autoresearch.dotenv_file"]
    done = subprocess.run([*words, str(file)], capture_output=True)
    assert (done.returncode, done.stdout) == (0, b"A\0x\ny\0B\0\0")
    file.write_text("A=s3cr3t\nB\n")
    done = subprocess.run([*words, str(file)], capture_output=True)
    assert (done.returncode, done.stdout) == (3, b"")
    assert b"line 2" in done.stderr
    assert b"s3cr3t" not in done.stderr
