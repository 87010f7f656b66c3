"""All recipes of a real NeMo-RL checkout, against what its own loader made of them.

`NEMO_RL_SRC` is the checkout, or a folder with its `examples/`; `NEMO_RL_EXPECTED` the table, by default
`expected.tsv` in that folder.
"""

from __future__ import annotations

import csv
import os
import warnings
from pathlib import Path

import pytest

from autoresearch.errors import Usage
from autoresearch.nemo_rl import entrypoint
from autoresearch.nemo_rl.describe import describe
from autoresearch.nemo_rl.facts import RecipeFacts, inspect
from autoresearch.nemo_rl.grammar import must_save_by
from autoresearch.nemo_rl.resolve import resolve

SOURCE = os.environ.get("NEMO_RL_SRC", "")
EXPECTED = os.environ.get("NEMO_RL_EXPECTED") or os.path.join(SOURCE, "expected.tsv")
WHOLE = os.path.exists(os.path.join(SOURCE, "nemo_rl/utils/config.py"))
ENVIRONMENT = {"HF_HOME": "/hf", "PERSISTENT_CACHE": "/cache"}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not SOURCE, reason="NEMO_RL_SRC does not name a NeMo-RL checkout"),
    pytest.mark.skipif(bool(SOURCE) and not os.path.exists(EXPECTED), reason=f"no table at {EXPECTED}"),
]


def expected() -> list[dict[str, str]]:
    """The rows of the table."""
    with open(EXPECTED, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def is_whole(recipe: str) -> bool:
    """Tell whether a recipe's parents are all in the source; a folder of samples may lack some, a checkout none."""
    try:
        resolve(SOURCE, recipe, env=ENVIRONMENT, use_checkout=False)
    except Usage as error:
        if WHOLE or "No such file" not in error.why:
            raise
        warnings.warn(str(error), stacklevel=1)
        return False
    return True


def as_row(facts: RecipeFacts) -> dict[str, str]:
    """A recipe's facts in the words of the table."""
    get = facts.resolved.get

    def text(key: str) -> str:
        value = get(key)
        return "" if value is None else str(value)

    return {
        "recipe": facts.recipe,
        "parents": str(len(facts.parents)),
        "algorithm": facts.algorithm,
        "metric_name": facts.metric,
        "higher_is_better": {"max": "True", "min": "False", "": ""}[facts.direction],
        "checkpoint_must_save_by": "" if facts.own_timeout_s is None else must_save_by(facts.own_timeout_s),
        "checkpointing_enabled": text("checkpointing.enabled"),
        "checkpoint_dir": facts.checkpoint_dir,
        "log_dir": facts.log_dir,
        "tensorboard": text("logger.tensorboard_enabled"),
        "wandb": str(facts.wandb),
        "monitor_gpus": text("logger.monitor_gpus"),
        "num_nodes": "" if facts.num_nodes is None else str(facts.num_nodes),
        "gpus_per_node": "" if facts.gpus_per_node is None else str(facts.gpus_per_node),
        "model_name": facts.model,
    }


def test_every_recipe_resolves_to_what_its_own_loader_says() -> None:
    rows = [row for row in expected() if is_whole(row["recipe"])]
    wrong: list[str] = []
    for row in rows:
        facts = inspect(SOURCE, row["recipe"], env=ENVIRONMENT, use_checkout=False)
        found = as_row(facts)
        wrong += [
            f"{row['recipe']}: {key} is {found[key]!r}, not {row[key]!r}" for key in found if found[key] != row[key]
        ]
        program = row["entry_point_of_twin"]
        if program == "delegates":
            program = "examples/nemo_gym/run_grpo_nemo_gym.py" if facts.gym else "examples/run_grpo.py"
        by_rule = entrypoint.rule(facts.recipe, facts.resolved.values)
        by_script = facts.entry_point if facts.twin else program
        if {by_rule, by_script} != {program}:
            wrong.append(f"{row['recipe']}: program by rule {by_rule}, by script {by_script}, not {program}")
        if facts.missing_env or facts.resolved.unresolved or len(describe(facts)) > 60:
            wrong.append(f"{row['recipe']}: {facts.missing_env} {facts.resolved.unresolved}")
    assert wrong == []
    assert len(rows) == 250 or not WHOLE


def test_without_the_two_variables_the_recipes_that_need_them_are_named() -> None:
    names = [row["recipe"] for row in expected() if is_whole(row["recipe"])]
    found = {name: inspect(SOURCE, name, env={}, use_checkout=False) for name in names}
    short = {name: facts.missing_env for name, facts in found.items() if facts.missing_env}
    assert {name for names in short.values() for name in names} <= set(ENVIRONMENT)
    for name in short:
        assert any("is not set, which the recipe reads" in line for line in found[name].warnings)


def test_every_other_config_resolves_too() -> None:
    recipes = {row["recipe"] for row in expected()}
    for path in sorted(Path(SOURCE, "examples").rglob("*.yaml")):
        name = str(path.relative_to(SOURCE))
        if name not in recipes:
            facts = inspect(SOURCE, name, env=ENVIRONMENT, use_checkout=False)
            assert facts.resolved.unresolved == {}, name
            assert all(":" in place for place in facts.where.values() if place), name


@pytest.mark.skipif(not WHOLE, reason="not a whole checkout")
def test_the_checkouts_own_loader_agrees() -> None:
    for row in expected()[::40]:
        own = inspect(SOURCE, row["recipe"], env=ENVIRONMENT)
        rules = inspect(SOURCE, row["recipe"], env=ENVIRONMENT, use_checkout=False)
        assert (own.loader, own.notes) == ("checkout", ())
        assert own.resolved.values == rules.resolved.values
