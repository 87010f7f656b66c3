"""command.py: a line becomes words without a shell, placeholders become paths, overrides go where they belong."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoresearch import command, paths
from autoresearch.errors import Refused, Usage

AT = paths.Attempt("/e", "/e/my logs", "/e/c", "/e/a", "/e/r", "/e/t", "/e/w")
VALUES = command.values("conf/x y.yaml", AT, 3, "c-name")
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)


def test_placeholders_are_replaced_inside_words() -> None:
    line = "python train.py --config={recipe} log={log_dir}/x {checkpoint_dir} {artifacts_dir} {seed} {run_name}"
    assert command.build(line, VALUES, [], []) == [
        *("python", "train.py", "--config=conf/x y.yaml", "log=/e/my logs/x", "/e/c", "/e/a", "3", "c-name")
    ]


def test_what_is_no_placeholder_stays() -> None:
    line = "python {} {other} ${HOME} '{\"a\": 1}' {recipe}"
    assert command.build(line, VALUES, [], []) == ["python", "{}", "{other}", "${HOME}", '{"a": 1}', "conf/x y.yaml"]


def test_overrides_take_their_place_else_the_end() -> None:
    assert command.build("a {overrides} z", VALUES, ["o=1"], ["lr={seed}"]) == ["a", "o=1", "lr=3", "z"]
    assert command.build("a z", VALUES, ["o=1"], ["lr=2"]) == ["a", "z", "o=1", "lr=2"]
    assert command.build("a {overrides} z", VALUES, [], []) == ["a", "z"]


def test_a_value_is_not_looked_at_for_placeholders() -> None:
    odd = command.values("{log_dir}", AT, 1, "{seed}")
    assert command.build("a {recipe} {run_name}", odd, [], []) == ["a", "{log_dir}", "{seed}"]
    assert command.build("a", VALUES, ["own={seed}"], []) == ["a", "own={seed}"]


@pytest.mark.parametrize("line", ["", "   ", "a 'b", "a x{overrides}", "a '{overrides} b'"])
def test_a_line_that_is_no_command_is_wrong_use(line: str) -> None:
    with pytest.raises(Usage):
        command.check(line)


@given(st.lists(TEXT, min_size=1))
def test_what_is_shown_splits_into_the_same_words(argv: list[str]) -> None:
    assert shlex.split(command.show(argv)) == argv


@given(st.lists(TEXT, max_size=4), TEXT)
@settings(max_examples=25)
def test_the_script_repeats_the_run_byte_for_byte(words: list[str], value: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory(prefix="it's a ") as folder:
        argv = ["printf", "%s\\0", value, *words]
        file = Path(folder) / "command.sh"
        file.write_text(command.script(argv, folder, {"EXPORTED": value}), encoding="utf-8")
        done = subprocess.run(["bash", str(file)], capture_output=True, check=True)
        assert done.stdout.decode().split("\0")[:-1] == [value, *words]
        shown = command.script(["printenv", "EXPORTED"], folder, {"EXPORTED": value})
        file.write_text(shown, encoding="utf-8")
        assert subprocess.run(["bash", str(file)], capture_output=True).stdout.decode() == value + "\n"


def test_a_program_is_found_from_the_tree_or_the_path(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere:/usr/bin")
    (hostile / "run me").write_text("#!/bin/sh\n")
    with pytest.raises(Refused, match="is not executable: chmod"):
        command.program(["./run me"], str(hostile))
    with pytest.raises(Refused, match="there is no program"):
        command.program(["./run you"], str(hostile))
    for word in ("cd", "LR=1"):
        with pytest.raises(Refused, match="no shell reads CMD"):
            command.program([word, "x"], str(hostile))
    (hostile / "run me").chmod(0o755)
    assert command.program(["./run me"], str(hostile)) == f"{hostile}/./run me"
    with pytest.raises(Refused, match=r"on PATH .*/nowhere:/usr/bin"):
        command.program(["run me"], str(hostile))
    assert command.program(["env"], str(hostile)) == "/usr/bin/env"
    assert command.program(["/usr/bin/env"]) == "/usr/bin/env"
    assert command.program(["./made/by/the/idea"]) == "./made/by/the/idea"
