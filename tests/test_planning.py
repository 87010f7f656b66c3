"""planning.py: the knobs over what an earlier plan said, and a refusal before anything is made."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autoresearch import paths, planning
from autoresearch.errors import AutoresearchError, Refused, Usage
from autoresearch.plan import Plan
from tests.conftest import git, snapshot

Make = Callable[..., Plan]
BASICS = {"CMD": "python3 train.py {overrides}", "METRIC": "val_accuracy", "STOP": "4 experiments"}


@pytest.fixture
def make(repo: Path, hostile: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """A factory: `make(old, KNOB=value, ...)` returns the plan of such a call; None takes a basic knob away."""
    (hostile / "scratch").mkdir()

    def build(old: Plan | None = None, **knobs: str | None) -> Plan:
        given = {**({} if old else {**BASICS, "SCRATCH": str(hostile / "scratch")}), **knobs}
        with monkeypatch.context() as patch:
            for key, value in given.items():
                if value is not None:
                    patch.setenv(f"AR_{key}", value)
            return planning.make(paths.Campaign(str(repo), "", "c"), old)

    return build


def test_the_defaults(make: Make, repo: Path, hostile: Path) -> None:
    made = make()
    assert made.base == git(repo, "rev-parse", "HEAD")
    assert made.prefix.startswith("autoresearch/20")
    assert made.prefix.endswith("-c")
    assert (made.launcher, made.direction, made.scratch) == ("local", "max", str(hostile / "scratch"))
    assert "guessed" in made.direction_source
    assert made.rules["experiments"] == 4


def test_a_second_call_changes_only_what_it_names(make: Make) -> None:
    first = make(OBJECTIVE="it's 'good'", SECRETS="A B", WAIT="2h", SLOTS="2", DIRECTION="min")
    second = make(first, STOP="10h total", SLOTS="")
    assert second.stop == "10h total"
    assert second.settings == {"WAIT": "2h"}
    keep = {"stop": "", "rules": {}, "understood": {}, "settings": {}, "created_at": ""}
    assert second._replace(**keep) == first._replace(**keep)  # type: ignore[arg-type]


def test_values_stay_as_they_were_given(make: Make) -> None:
    text = 'a\'b "c" $(touch pwned) `id` #x\nsecond é'
    made = make(OBJECTIVE=text, CMD=f"python3 train.py {shlex.quote(text)}", METRIC="log:val acc", DIRECTION="max")
    assert made.objective == text
    assert shlex.split(made.command)[2] == text
    assert made.metric == "log:val acc"


WRONG = [
    {"CMD": None},
    {"CMD": "python3 'train.py"},
    {"CMD": "  "},
    {"CMD": "python3 a{overrides}"},
    {"METRIC": None},
    {"METRIC": "quux"},  # neither DIRECTION nor its name says what is better
    {"DIRECTION": "up"},
    {"STOP": "when it is good"},
    {"LAUNCHER": "pbs"},
    {"PREFIX": "a b"},
    {"PREFIX": "-x"},
    {"PREFIX": "a..b"},
    {"SLOTS": "many"},
    {"GRACE_S": "-1"},
    {"DISK_RESERVE_GB": "nan"},
    {"WAIT": "soon"},
    {"CONFIRM": "-1"},
    {"NOISE": "little"},
    {"LEDGER": "elsewhere"},
    {"UV_CACHE": "mine"},
    {"REQUIRE": "/etc/passwd"},
    {"REQUIRE": "../x"},
    {"PROTECT": "../x"},
    {"GUARD": "memory_gb < "},
    {"METRIC_AT": "somewhere"},
    {"SECRETS": "'open"},
    {"SMOKE_OVERRIDES": "steps='2"},
]


@pytest.mark.parametrize("knobs", WRONG, ids=str)
def test_nonsense_is_wrong_use(make: Make, repo: Path, knobs: dict[str, str | None]) -> None:
    before = snapshot(repo)
    with pytest.raises(Usage):
        make(**knobs)
    assert snapshot(repo) == before
    assert not (repo / "reports").exists()


def test_a_recipe_that_does_not_fit_says_what_it_lacks(make: Make, repo: Path) -> None:
    (repo / "a.yaml").write_text("cluster: {num_nodes: 1, gpus_per_node: 1000}\ngrpo: {max_num_steps: 1}\n")
    with pytest.raises(Refused, match=r"does not fit this machine \(GPUs: the recipe needs 1000, "):
        make(RECIPE="a.yaml")


def test_a_script_that_is_nowhere_is_named(make: Make) -> None:
    assert make(CMD="python3 ./train.py --to=out.py --save {log_dir}/x.sh {overrides}").notes == []
    assert make(CMD="env LR=1 python3 trian.py {overrides}").notes == [
        "CMD: there is no file trian.py, neither in BASE nor in the checkout"
    ]


def test_words_that_no_shell_reads_are_pointed_out(make: Make) -> None:
    told = make(CMD="python3 train.py --lr $LR --out={checkpoints_dir} {overrides} 2>&1 | tee >log").notes
    named = [note.split("`")[1] for note in told]
    assert named == ["$LR", "{checkpoints_dir}", "2>&1", "|", ">log"]
    assert (
        make(CMD="""python3 train.py --out={log_dir}/x.{seed} --pad '<pad>' '{"a": 1}' 'a|b' '$5' {overrides}""").notes
        == []
    )


def test_gpu_hours_need_the_number_of_gpus(make: Make) -> None:
    with pytest.raises(Usage, match="GPU-hours") as caught:
        make(STOP="10 GPU-hours")
    assert "GPUS=0,1" in caught.value.fix
    assert make(STOP="10 GPU-hours", LAUNCHER="local", GPUS="0,1").rules == {"gpu_hours": 10.0}
    assert make(STOP="10 GPU-hours", LAUNCHER="ray", RAY_GPUS="8").rules == {"gpu_hours": 10.0}


EDITED: list[tuple[dict[str, Any], str]] = [
    ({"stop": "9 experiments"}, "by hand"),
    ({"rules": {"experiments": 9}}, "by hand"),
    ({"stop": "4 experiments or 10h total"}, "by hand"),
    ({"stop": "4 experimens"}, "not understood"),
    ({"direction": "up"}, "up"),
    ({"guard": "memory_gb <"}, "not understood"),
    ({"noise": "little"}, "little"),
    ({"protect": ["../x"]}, "inside"),
]


@pytest.mark.parametrize(("changes", "word"), EDITED, ids=str)
def test_what_a_hand_has_put_out_of_step_is_not_approved(make: Make, changes: dict[str, Any], word: str) -> None:
    made = make(GUARD="memory_gb <= 70", NOISE="0.1", PROTECT="eval/ 'a b'")
    planning.check_by_hand(made)
    planning.check_by_hand(make(made, STOP="until 23:59 or target 0.8, 1h each"))
    with pytest.raises((Usage, Refused), match=word):
        planning.check_by_hand(made._replace(**changes))


def test_paths_that_protect_nothing_are_pointed_out(make: Make, repo: Path) -> None:
    (repo / "eval é").mkdir()
    (repo / "eval é" / "t\txt").write_text("x")
    (repo / "link").symlink_to("eval é")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "more")
    assert make(PROTECT="'eval é/' 'eval é/t*'").notes == []
    told = make(PROTECT="evals/ link/ *").notes
    assert [note.split(":")[1].split(",")[0] for note in told] == [
        " BASE has no file evals/",
        " link is a link",
        " link is a link",
    ]


def test_repeats_with_one_seed_are_pointed_out(make: Make) -> None:
    assert make(REPEATS="1").notes == []
    assert "no {seed}" in make(REPEATS="3").notes[0]
    assert "no {seed}" in make(CONFIRM="1").notes[0]
    assert make(CONFIRM="3", CMD="python3 train.py seed={seed} {overrides}").notes == []


MISSING = [
    {"BASE": "nothing"},
    {"BASE": "--output=pwned"},
    {"RECIPE": "none.yaml"},
    {"CMD": "no-such-program-anywhere x"},
    {"REQUIRE": "data/none.jsonl"},
    {"SCRATCH": "/nonexistent/dir"},
    {"PREFIX": "main/x"},
]


@pytest.mark.parametrize("knobs", MISSING, ids=str)
def test_what_is_not_there_is_a_refusal(make: Make, repo: Path, knobs: dict[str, str | None]) -> None:
    before = snapshot(repo)
    with pytest.raises(Refused) as caught:
        make(**knobs)
    assert caught.value.fix
    assert snapshot(repo) == before


def test_scratch_inside_the_checkout_is_refused(make: Make, repo: Path, hostile: Path) -> None:
    (repo / "out").mkdir()
    (hostile / "link").symlink_to(repo / "out")
    for scratch in (repo, repo / "out", hostile / "link"):
        with pytest.raises(Refused):
            make(SCRATCH=str(scratch))


def test_a_recipe_is_found_from_where_the_caller_stands(
    make: Make, repo: Path, hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repo / "conf").mkdir()
    (repo / "conf" / "a b.txt").write_text("x")
    assert make(RECIPE="conf/a b.txt").recipe == "conf/a b.txt"
    assert make(RECIPE=str(repo / "conf" / "a b.txt")).recipe == "conf/a b.txt"
    monkeypatch.chdir(repo / "conf")
    assert make(RECIPE="a b.txt").recipe == "conf/a b.txt"
    (hostile / "out.txt").write_text("x")
    with pytest.raises(AutoresearchError):
        make(RECIPE=str(hostile / "out.txt"))
    with pytest.raises(Usage):
        make(RECIPE="conf/a b.txt", CMD=None)


def test_another_recipe_brings_its_own_metric(make: Make, repo: Path) -> None:
    text = "checkpointing: {{metric_name: '{}', higher_is_better: {}}}\nlogger: {{wandb_enabled: {}}}\n"
    (repo / "configs").mkdir()
    (repo / "configs" / "reward.yaml").write_text(text.format("val:reward", "true", "true"))
    (repo / "configs" / "loss.yaml").write_text(text.format("val:loss", "false", "false"))
    first = make(RECIPE="reward", METRIC=None)  # a bare name will do
    assert (first.recipe, first.metric, first.direction) == ("configs/reward.yaml", "val:reward", "max")
    assert first.secrets == ["WANDB_API_KEY"]
    second = make(first, RECIPE="configs/loss.yaml")
    assert (second.metric, second.direction, second.secrets) == ("val:loss", "min", [])
    own = make(first, METRIC="accuracy", DIRECTION="max")
    assert make(own, RECIPE="configs/loss.yaml").metric == "accuracy"
    with pytest.raises(Refused, match="did you mean configs/reward"):
        make(RECIPE="rewrd")


def test_what_is_required_may_be_a_file_or_a_directory(make: Make, repo: Path) -> None:
    (repo / "data").mkdir()
    (repo / "a b").write_text("")
    assert make(REQUIRE="data/ 'a b' train.py").require == ["data/", "a b", "train.py"]


def test_the_base_is_a_commit_from_then_on(make: Make, repo: Path) -> None:
    first = make()
    git(repo, "commit", "-q", "--allow-empty", "-m", "second")
    assert make(first).base == first.base
    assert make(first, BASE="HEAD").base == git(repo, "rev-parse", "HEAD")
    assert make(BASE="HEAD~1").base == first.base


def test_a_direction_that_was_given_outlives_another_metric(make: Make) -> None:
    given = make(DIRECTION="min")
    assert make(given, METRIC="reward").direction == "min"
    guessed = make()
    assert make(guessed, METRIC="loss").direction == "min"
    with pytest.raises(Usage):
        make(guessed, METRIC="quux")


def test_what_would_change_under_rows_is_named(make: Make) -> None:
    first = make()
    assert planning.changed_under_rows(first, first._replace(stop="x", objective="y", confirm=3)) == []
    assert planning.changed_under_rows(first, first._replace(metric="x", base="y")) == ["base", "metric"]


def test_git_s_own_variables_of_a_caller_s_hook_lead_nowhere(
    make: Make, repo: Path, hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = hostile / "other"
    other.mkdir()
    git(other, "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / "index"))
    made = make()
    monkeypatch.delenv("GIT_DIR")
    monkeypatch.delenv("GIT_INDEX_FILE")
    assert made.base == git(repo, "rev-parse", "HEAD")
    assert not os.path.exists(other / "index")


def test_a_program_of_the_checkout_alone_is_refused_with_its_full_path(make: Make, repo: Path) -> None:
    own = repo / ".venv" / "bin" / "python"
    own.parent.mkdir(parents=True)
    own.symlink_to("/usr/bin/env")
    with pytest.raises(Refused, match="no tree of a run has it") as refused:
        make(CMD=".venv/bin/python train.py 'a b'")
    (advised,) = shlex.split(refused.value.fix.removeprefix("name it in full: CMD="))
    assert shlex.split(advised) == [str(own), "train.py", "a b"]
    assert make(CMD=advised).command == advised
    assert make(CMD=".venv/bin/python train.py", REQUIRE=".venv").require == [".venv"]


def test_another_python_than_the_checkouts_is_pointed_out(
    make: Make, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    own = repo / ".venv" / "bin" / "python3"
    own.parent.mkdir(parents=True)
    own.symlink_to("/usr/bin/env")
    assert [note for note in make().notes if f"not the one in {own.parent}: activate" in note]
    assert not make(CMD=shlex.join([str(own), "train.py"])).notes
    with monkeypatch.context() as active:
        active.setenv("PATH", f"{own.parent}:{os.environ['PATH']}")
        assert not make().notes
    with monkeypatch.context() as active:
        active.setenv("PATH", f":{os.environ['PATH']}")
        active.chdir(own.parent)
        assert not make().notes
    with monkeypatch.context() as active:
        active.setenv("VIRTUAL_ENV", "/another")
        assert not make().notes
