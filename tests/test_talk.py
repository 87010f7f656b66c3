"""talk.py: no control character, no secret, no silent yes."""

from __future__ import annotations

import base64
import io
import json
import os
import pty
import subprocess
import sys
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch import talk


@given(st.text())
def test_nothing_can_move_the_cursor(text: str) -> None:
    for shown in (talk.plain(text), talk.one_line(text)):
        assert not any((ord(c) < 32 and c not in "\t\n") or 127 <= ord(c) < 160 for c in shown)
    assert "\n" not in talk.one_line(text)


@given(st.text(), st.integers(1, 30))
def test_a_line_is_cut_to_its_limit(text: str, limit: int) -> None:
    assert len(talk.one_line(text, limit)) <= limit


def test_escape_sequences_go_whole() -> None:
    assert talk.plain("a\x1b[31mred\x1b[0m\x1b]0;title\x07b\x1b]8;;u\x1b\\c\x9b1mX") == "aredbc1mX"
    assert talk.one_line("a\r\nb\tc  d ") == "a b c d"


@given(st.text(st.characters(codec="ascii", categories=("L", "N", "P")), min_size=6, max_size=30), st.text(max_size=10))
def test_a_secret_is_masked_in_every_form(secret: str, around: str) -> None:
    encoded = base64.b64encode(secret.encode()).decode()
    text = f"{around}{secret}{around} {quote(secret, safe='')} {encoded} {encoded.rstrip('=')}"
    shown = talk.masked(text, [secret, ""])
    if secret not in "[secret] " + around * 2:
        assert secret not in shown
    assert encoded not in shown
    assert "[secret]" in shown


def test_the_longer_secret_is_masked_first() -> None:
    assert talk.masked("abcdefghij", ["abcdef", "abcdefghij"]) == "[secret]"
    assert talk.masked("plain", []) == "plain"
    assert talk.masked("plain", [""]) == "plain"


def test_no_terminal_means_no(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert not talk.confirmed("Go?")


@pytest.mark.parametrize(
    ("answer", "yes"), [("y", True), ("YES", True), ("n", False), ("", False), ("yesterday", False)]
)
def test_a_terminal_is_asked(answer: str, yes: bool) -> None:
    code = "from autoresearch import talk; print('answer', talk.confirmed('Go?'))"
    master, slave = pty.openpty()
    child = subprocess.Popen([sys.executable, "-c", code], stdin=slave, stderr=slave, stdout=subprocess.PIPE)
    os.close(slave)
    os.write(master, answer.encode() + b"\n")
    out, _ = child.communicate(timeout=20)
    os.close(master)
    assert out == f"answer {yes}\n".encode()


def test_a_table_leaves_numbers_as_they_are_written() -> None:
    shown = talk.table([["1234e56", "0.90", "007"]], ["commit", "metric", "n"])
    assert shown.splitlines()[-1].split() == ["1234e56", "0.90", "007"]
    assert talk.pairs([]) == ""
    assert talk.pairs([("a", "1"), ("long", "2")]) == "a     1\nlong  2"


def test_each_line_of_a_private_key_is_masked_and_its_form_in_json() -> None:
    key = '-----BEGIN KEY-----\nMIIEv"QIBADAN\n==\n-----END KEY-----\n'
    log = f'loaded {{"key": {json.dumps(key)}}}\r\n' + key.replace("\n", "\r\n")
    for line in talk.masked(log, [key]).splitlines():
        assert "MII" not in line
        assert "KEY" not in line


def test_a_secret_in_which_a_line_was_cut_is_masked() -> None:
    secret = "s3cr3t-0123456789"
    for mark in ("...", "…"):
        for kept in range(6, len(secret) + 1):
            cut = talk.masked(f"step 1... my key is {secret[:kept]}{mark}\nnext {secret[:kept]}{mark} more", [secret])
            assert cut == f"step 1... my key is [secret]{mark}\nnext [secret]{mark} more"
    assert talk.masked("loading s3cr3t things ... done", [secret]) == "loading s3cr3t things ... done"


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=6, max_size=20))
def test_every_form_that_urllib_and_base64_make_is_masked(secret: str) -> None:
    encoded = base64.b64encode(secret.encode()).decode()
    for form in (secret, quote(secret, safe=""), encoded, encoded.rstrip("=")):
        assert talk.masked(f"<{form}>", [secret]) in ("<[secret]>", "<[secret]=>", "<[secret]==>")
