"""recipes.py: what a campaign takes from its recipe, and override words against the recipe that is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoresearch import recipes
from autoresearch.errors import Usage
from tests.campaigns import approved
from tests.conftest import git

RECIPE = "configs/a.yaml"


def test_words_may_name_what_the_idea_or_its_parent_brought(repo: Path, tmp_path: Path) -> None:
    (repo / "configs").mkdir()
    (repo / "examples").mkdir()
    (repo / "examples" / "run_grpo.py").write_text("")
    (repo / RECIPE).write_text("grpo: {steps: 5}\nlogger: {log_dir: logs}\n")
    git(repo, "add", RECIPE)
    git(repo, "commit", "-qm", "recipe")
    opened = approved(repo, tmp_path / "scratch", recipe=RECIPE, recipe_overrides=["logger.log_dir={log_dir}"])
    recipes.into(opened.plan, guess_command=False)
    recipes.check_overrides(opened, ["grpo.steps=6"])
    recipes.into(opened.plan._replace(smoke_overrides="grpo.steps=1"), guess_command=False)
    with pytest.raises(Usage, match="did you mean"):
        recipes.into(opened.plan._replace(smoke_overrides="grpo.step=1"), guess_command=False)

    git(repo, "checkout", "-qb", "side")
    (repo / RECIPE).write_text("grpo: {steps: 5, clip: 1}\nlogger: {log_dir: logs}\n")
    git(repo, "commit", "-qam", "clip")
    side = git(repo, "rev-parse", "HEAD")
    git(repo, "checkout", "-q", "-")
    tree = tmp_path / "tree"
    (tree / "configs").mkdir(parents=True)
    (tree / RECIPE).write_text("grpo: {steps: 5, beta: 1}\nlogger: {log_dir: logs}\n")

    recipes.check_overrides(opened, ["grpo.clip=2"], commit=side)
    recipes.check_overrides(opened, ["grpo.beta=2"], commit=side, tree=str(tree))
    for word, commit in (("grpo.clip=2", ""), ("grpo.clip=2", "HEAD"), ("grpo.beta=2", side)):
        with pytest.raises(Usage, match="the recipe has no key"):
            recipes.check_overrides(opened, [word], commit=commit)
    with pytest.raises(Usage, match="is set by autoresearch"):
        recipes.check_overrides(opened, ["logger.log_dir=/x"], commit=side)


def test_words_of_a_command_line_are_values_beside_those_of_the_recipe(repo: Path, tmp_path: Path) -> None:
    (repo / "a.yaml").write_text("model: {depth: 4}\n")
    git(repo, "add", "a.yaml")
    git(repo, "commit", "-qm", "recipe")
    opened = approved(repo, tmp_path / "scratch", recipe="a.yaml")
    commit = git(repo, "rev-parse", "HEAD")
    assert recipes.values_at(opened, commit, ["model.depth=5"]) == {"model.depth": "5"}
    words = ["--lr", "-1e-4", "--amp", "--sizes", "1", "2", "--out=x"]
    options = {"--lr": "-1e-4", "--amp": "", "--sizes": "1 2", "--out": "x"}
    assert recipes.values_at(opened, commit, words) == {"model.depth": "4"} | options
