"""names.py: nothing passes that git, a disk, a scheduler or a shell would stumble over."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoresearch import names
from autoresearch.errors import Usage

HOSTILE = [
    *("", ".", "..", "...", "-x", "--help", "a b", " a", "a ", "a\n", "a\tb", "a/b", "/a", "a/", "../a", "a..b", "a."),
    *("a.lock", "A", "Foo", "é", "１", "a\0b", "a:b", "a~b", "a^b", "a?b", "a*b", "a[b", "a\\b", "a@{b", "@", "`id`"),
    *("$(id)", "a;b", "a'b", 'a"b', "a|b", "a&b", "{x}", "%n", "~", "_a", ".a", "x" * 65, "x" * 300, "refs/heads/x"),
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_wrong_use(name: str) -> None:
    for check in (lambda: names.check("CAMPAIGN", name), lambda: names.check_experiment(name)):
        with pytest.raises(Usage) as caught:
            check()
        assert "\n" not in str(caught.value)
    if "/" not in name:
        folded = name.lower()
        if not re.fullmatch(r"[a-z]+", folded):
            with pytest.raises(Usage):
                names.check_prefix(f"ar/{name}")


@pytest.mark.parametrize("name", ["a", "0", "lr-1e-4", "warm_up.v2a", "deadbeef", "head", "x" * 64])
def test_a_plain_name_passes(name: str) -> None:
    assert names.check_experiment(name) == name


@pytest.mark.parametrize("name", ["baseline", "best", "lr.2", "lr.10", "lr.smoke-1", "results.tsv"])
def test_a_name_with_a_meaning_is_refused(name: str) -> None:
    with pytest.raises(Usage):
        names.check_experiment(name)


ODD = st.text(st.sampled_from("ab0..--__/ ~^:?*[\\@{\0\n\u0130é１"), max_size=6)
ENDS = st.sampled_from(["", "", ".", ".lock", "..", "\n", "-", "x" * 60])


@given(st.builds(lambda *parts: "".join(parts), st.sampled_from(["a", "0", "-", ""]), ODD, ENDS))
@settings(max_examples=200)
def test_what_passes_is_taken_by_git_and_by_a_disk(name: str) -> None:
    try:
        names.check("NAME", name)
    except Usage:
        return
    assert name == name.lower() == name.strip()
    assert name.isascii()
    done = subprocess.run(["git", "check-ref-format", "--branch", f"p/{name}"], capture_output=True)
    assert done.returncode == 0
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name).mkdir()
        assert os.listdir(folder) == [name]


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}(/[A-Za-z0-9][A-Za-z0-9._-]{0,20}){0,3}", fullmatch=True))
@settings(max_examples=100)
def test_a_prefix_that_passes_is_taken_by_git(prefix: str) -> None:
    try:
        names.check_prefix(prefix)
    except Usage:
        return
    done = subprocess.run(["git", "check-ref-format", "--branch", f"{prefix}/baseline"], capture_output=True)
    assert done.returncode == 0


@pytest.mark.parametrize("prefix", ["", "/a", "a/", "a//b", "-a", "a/.b", "a/b.lock", "a/b.LOCK", "a..b", "a b", "a\n"])
def test_a_prefix_git_would_refuse_is_wrong_use(prefix: str) -> None:
    with pytest.raises(Usage):
        names.check_prefix(prefix)
    with pytest.raises(Usage):
        names.check_prefix("/".join(["x" * 60] * 3))


def test_ids_of_attempts_never_meet() -> None:
    ids = [names.attempt_id(name, n, smoke) for name in ("a", "b") for n in (1, 2, 3) for smoke in (False, True)]
    assert len(set(ids)) == len(ids)
    assert names.attempt_id("a", 1) == "a"
    assert names.attempt_id("a", 2) == "a.2"
