"""Ideas: what fits the recipe, the machine and the last runs comes first; what was tried is left out."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from autoresearch import names
from autoresearch.campaign import Campaign
from autoresearch.suggestions import ideas
from autoresearch.suggestions.idea_catalog import CATALOG
from autoresearch.suggestions.idea_entry import AREAS
from autoresearch.verbs import ideas as verb
from tests import session_campaigns as campaigns

RECIPE = """\
grpo:
  num_prompts_per_step: 32
  num_generations_per_prompt: 16
  max_num_steps: 100
  normalize_rewards: true
  use_dynamic_sampling: false
  overlong_filtering: false
  async_grpo:
    enabled: false
    in_flight_weight_updates: false
loss_fn:
  reference_policy_kl_penalty: 0.01
  ratio_clip_max: 0.2
  use_importance_sampling_correction: false
policy:
  max_total_sequence_length: 512
  train_global_batch_size: 512
  train_micro_batch_size: 4
  max_grad_norm: 1.0
  dtensor_cfg:
    enabled: true
    activation_checkpointing: false
    tensor_parallel_size: 1
  megatron_cfg:
    enabled: false
    optimizer:
      lr: 5.0e-6
  optimizer:
    kwargs:
      lr: 5.0e-6
  sequence_packing:
    enabled: false
  generation:
    temperature: 1.0
    max_new_tokens: ${policy.max_total_sequence_length}
    colocated:
      enabled: true
    vllm_cfg:
      gpu_memory_utilization: 0.6
"""


@pytest.fixture
def repo_with_recipe(make_repo: object, monkeypatch: pytest.MonkeyPatch) -> Path:
    repo = make_repo({"recipe.yaml": RECIPE, "train.py": "print(1)\n"})  # type: ignore[operator]
    monkeypatch.setenv("AR_REPO", str(repo))
    return repo  # type: ignore[no-any-return]


def make(repo: Path, **more: object) -> Campaign:
    return campaigns.make(repo, repo.parent / "scratch", recipe="recipe.yaml", **more)


def found(opened: Campaign) -> dict[str, dict[str, object]]:
    return {idea["name"]: idea for idea in ideas.find(opened)["ideas"]}


def test_values_come_from_the_recipe_and_lines_are_ready_to_run(repo_with_recipe: Path) -> None:
    opened = make(repo_with_recipe)
    all_of_them = found(opened)
    assert all_of_them["lr-up-1e-05"]["overrides"] == ["policy.optimizer.kwargs.lr=1e-05"]
    assert all_of_them["more-answers-32"]["overrides"] == ["grpo.num_generations_per_prompt=32"]
    assert all_of_them["clip-higher-0p28"]["overrides"] == ["loss_fn.ratio_clip_max=0.28"]
    assert all_of_them["longer-answers-1024"]["overrides"] == ["policy.max_total_sequence_length=1024"]
    assert all_of_them["more-prompts-64"]["overrides"] == [
        "grpo.num_prompts_per_step=64",
        "policy.train_global_batch_size=1024",
    ]
    for idea in all_of_them.values():
        words = shlex.split(str(idea["line"]))
        assert words[:3] == ["make", "experiment", "CAMPAIGN=camp"]
        assert re.fullmatch(r"HYPOTHESIS=[a-z]+: .+", words[4])
        names.check_experiment(words[3].removeprefix("NAME="))


def test_the_back_end_that_is_on_is_meant(repo_with_recipe: Path) -> None:
    text = RECIPE.replace("megatron_cfg:\n    enabled: false", "megatron_cfg:\n    enabled: true")
    (repo_with_recipe / "recipe.yaml").write_text(
        text.replace("dtensor_cfg:\n    enabled: true", "dtensor_cfg:\n    enabled: false")
    )
    assert found(make(repo_with_recipe))["lr-up-1e-05"]["overrides"] == ["policy.megatron_cfg.optimizer.lr=1e-05"]


def test_what_the_recipe_has_already_is_no_idea(repo_with_recipe: Path) -> None:
    opened = make(repo_with_recipe)
    assert "pack-sequences" in found(opened)
    assert verb.lines(ideas.find(opened))[0].endswith("next idea starts from the baseline")
    text = RECIPE.replace("sequence_packing:\n    enabled: false", "sequence_packing:\n    enabled: true")
    (repo_with_recipe / "recipe.yaml").write_text(text)
    assert "pack-sequences" not in found(opened)


def test_ideas_are_pruned_by_gpus_and_algorithm(repo_with_recipe: Path) -> None:
    small, large = found(make(repo_with_recipe, gpus=1)), found(make(repo_with_recipe, gpus=8))
    assert "async" not in small
    assert large["async"]["overrides"] == [
        "grpo.async_grpo.enabled=true",
        "policy.generation.colocated.enabled=false",
        "loss_fn.use_importance_sampling_correction=true",
    ]
    (repo_with_recipe / "recipe.yaml").write_text("sft:\n  max_num_steps: 60\npolicy:\n  train_global_batch_size: 32\n")
    other = ideas.find(make(repo_with_recipe, gpus=8))
    assert other["algorithm"] == "sft"
    assert not {"more-answers-32", "prompt-format", "async"} & {idea["name"] for idea in other["ideas"]}
    assert any(idea["overrides"] == ["policy.train_global_batch_size=16"] for idea in other["ideas"])


def test_what_was_tried_is_left_out_by_name_by_words_and_by_hypothesis(repo_with_recipe: Path) -> None:
    opened = make(repo_with_recipe)
    before = found(opened)
    campaigns.row(opened, "baseline", 0.5)
    campaigns.row(opened, "my-own-name", 0.5, "discard", command="python t.py grpo.normalize_rewards=false x='a b'")
    campaigns.row(opened, "prompt-format", 0.5, "discard")
    campaigns.row(opened, "other", 0.5, "discard", description=str(before["lr-up-1e-05"]["hypothesis"]))
    campaigns.state(opened, "drop-easy")
    after = found(opened)
    assert set(before) - set(after) >= {"no-std-normalisation", "prompt-format", "lr-up-1e-05", "drop-easy"}
    assert ideas.find(opened)["left_out"]["tried"] == 4


def test_values_build_on_the_best_result(repo_with_recipe: Path) -> None:
    from tests.conftest import git

    opened = make(repo_with_recipe)
    campaigns.row(opened, "baseline", 0.5)
    tree = git(repo_with_recipe, "rev-parse", "HEAD^{tree}")
    words = json.dumps(["policy.optimizer.kwargs.lr=1e-05"])
    message = f"optim: twice the rate\n\nOverrides: {words}"
    sha = git(repo_with_recipe, "commit-tree", tree, "-p", opened.plan.base, "-m", message)
    said = "optim: twice the learning rate (lr=1e-05)"
    command = "python t.py policy.optimizer.kwargs.lr=1e-05"
    campaigns.row(opened, "lr-up-1e-05", 0.7, commit=sha, command=command, description=said)
    assert found(opened)["lr-up-2e-05"]["overrides"] == ["policy.optimizer.kwargs.lr=2e-05"]


@pytest.mark.parametrize(
    ("row", "symptom", "first"),
    [
        ({"value": None, "status": "crash", "end_cause": "oom"}, "oom", {"recompute", "micro-batch-down-2"}),
        ({"value": 0.4, "metric_best": "0.7", "metric_step": "9"}, "peaks-early", {"lr-down-2p5e-06", "more-kl-0p03"}),
        ({"value": None, "status": "crash", "reason": "diverged: nan at step 3"}, "unstable", {"lr-down-2p5e-06"}),
        ({"value": 0.4, "end_cause": "recipe-timeout"}, "slow", {"micro-batch-up-8", "pack-sequences"}),
        ({"value": 0.4, "metric_best": "0.4", "metric_step": "9"}, "still-improving", {"lr-up-1e-05"}),
    ],
)
def test_symptoms_move_their_answers_to_the_front(
    repo_with_recipe: Path, row: dict[str, object], symptom: str, first: set[str]
) -> None:
    opened = make(repo_with_recipe)
    campaigns.row(opened, "baseline", 0.5)
    campaigns.row(opened, "idea", row.pop("value"), str(row.pop("status", "discard")), **row)  # type: ignore[arg-type]
    answer = ideas.find(opened)
    assert symptom in [one["symptom"] for one in answer["seen"]]
    assert first <= {idea["name"] for idea in answer["ideas"][:6]}


def test_side_signals_of_the_last_log_are_symptoms(repo_with_recipe: Path) -> None:
    opened = make(repo_with_recipe)
    log = "▶ step\n• Avg Trajectory Age: 3.5 steps\n  - Generation KL Error: 0.25\nval_accuracy: 0.5\n"
    campaigns.row(opened, "baseline", 0.5, log=log)
    seen = {one["symptom"]: one["detail"] for one in ideas.find(opened)["seen"]}
    assert "baseline: 3.5 steps old" in seen.get("stale", "") or "mismatch" in seen


def test_a_plateau_is_seen(repo_with_recipe: Path) -> None:
    opened = make(repo_with_recipe, stop="50 experiments")
    campaigns.row(opened, "baseline", 0.5)
    for number in range(5):
        campaigns.row(opened, f"idea-{number}", 0.4, "discard")
    answer = ideas.find(opened)
    assert "plateau" in [one["symptom"] for one in answer["seen"]]


def test_speed_is_preferred_where_speed_is_measured(repo_with_recipe: Path) -> None:
    opened = make(repo_with_recipe, metric="tokens_per_sec")
    assert next(iter(found(opened))) in ("micro-batch-up-8", "pack-sequences")


def test_a_project_without_a_recipe_gets_lines_with_places_to_fill(
    repo: Path, hostile: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AR_REPO", str(repo))
    opened = campaigns.make(repo, hostile / "scratch")
    assert "OVERRIDES='<key>=<value>'" in str(found(opened)["lr-up"]["line"])
    assert "more-answers" not in found(opened)
    assert verb.run() == 0
    out = capsys.readouterr().out.rstrip("\n").split("\n")
    assert len(out) <= 60
    assert out[-1] == "next: make baseline CAMPAIGN=camp, then an idea"


def test_a_recipe_that_cannot_be_read_is_said_and_stops_nothing(
    repo_with_recipe: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = make(repo_with_recipe)
    campaigns.row(opened, "baseline", 0.5)
    (repo_with_recipe / "recipe.yaml").write_text("grpo: [unclosed\n")
    assert ideas.find(opened)["recipe_trouble"]
    assert verb.run() == 0
    assert "could not be read" in capsys.readouterr().out
    monkeypatch.setenv("AR_JSON", "1")
    assert verb.run() == 0
    assert json.loads(capsys.readouterr().out)["ideas"]


def test_the_catalog_is_sound() -> None:
    keys = [entry.key for entry in CATALOG]
    assert len(keys) == len(set(keys))
    for entry in CATALOG:
        assert entry.area in AREAS
        assert 1 <= entry.gain <= 5
        assert 1 <= entry.cost <= 5
        assert names.check_experiment(entry.key) == entry.key
        assert entry.symptoms or not entry.only_seen
        assert all(change.op[0] in "*+=" for change in entry.changes)
