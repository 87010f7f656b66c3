"""What a recipe says: program, metric, limits, inputs, outputs, secrets, and what is wrong with it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from autoresearch.nemo_rl import entrypoint
from autoresearch.nemo_rl.describe import describe
from autoresearch.nemo_rl.facts import RecipeFacts, inspect, metric_tag
from autoresearch.nemo_rl.grammar import fill, quick
from autoresearch.nemo_rl.overrides import check

SHAPE = Path(__file__).parent / "data" / "nemo_rl" / "shape"
TINY = "examples/configs/recipes/llm/grpo-tiny-2n8g.v1.yaml"
Look = Callable[..., RecipeFacts]


@pytest.fixture
def shape(hostile: Path) -> Path:
    """A copy of the small checkout in NeMo-RL's shape."""
    shutil.copytree(SHAPE, hostile / "shape")
    return hostile / "shape"


@pytest.fixture
def look(shape: Path) -> Look:
    """Inspect a recipe of it: `look(text)` writes one on top of the tiny recipe first; `look(path=...)` takes one."""

    def inspected(text: str = "", path: str = "", env: dict[str, str] | None = None, **more: object) -> RecipeFacts:
        if not path:
            path = "examples/configs/recipes/llm/mine.yaml"
            (shape / path).write_text(f"defaults: grpo-tiny-2n8g.v1.yaml\n{text}")
        return inspect(str(shape), path, env=env or {}, use_checkout=False, **more)  # type: ignore[arg-type]

    return inspected


def test_the_facts_of_a_recipe_each_with_its_line(look: Look) -> None:
    facts = look(path=TINY)
    assert facts.parents == ("examples/configs/base.yaml",)
    assert (facts.algorithm, facts.entry_point, facts.nemo_rl, facts.gym) == (
        "grpo",
        "examples/run_grpo.py",
        True,
        False,
    )
    assert (facts.metric, facts.metric_tag, facts.direction) == ("val:accuracy", "validation/accuracy", "max")
    assert (facts.log_dir, facts.checkpoint_dir, facts.own_timeout_s) == ("logs/tiny", "results/tiny", 13500.0)
    assert (facts.num_nodes, facts.gpus_per_node, facts.max_steps, facts.max_epochs) == (2, 8, 200, 1)
    assert (facts.val_period, facts.save_period) == (10, 10)
    assert facts.model == facts.tokenizer == "tiny/other"
    assert facts.must_save_by_key == "checkpointing.checkpoint_must_save_by"
    assert facts.where["metric"] == "examples/configs/base.yaml:16"
    assert facts.where["log_dir"] == f"{TINY}:9"
    assert facts.where["entry_point"] == "tests/test_suites/llm/grpo-tiny-2n8g.v1.sh:7"


def test_the_command_carries_what_every_attempt_needs(look: Look) -> None:
    facts = look(path=TINY)
    assert facts.argv == (
        "uv",
        "run",
        "examples/run_grpo.py",
        "--config",
        "{recipe}",
        "logger.log_dir={log_dir}",
        "checkpointing.checkpoint_dir={checkpoint_dir}",
        "logger.tensorboard_enabled=true",
        "logger.wandb.name={run_name}",
        "grpo.val_at_end=true",
        "{overrides}",
    )
    given = {"recipe": TINY, "log_dir": "/s/a 'b\"", "checkpoint_dir": "/s/c", "run_name": "night-1e5"}
    words = fill(facts.argv, given, ["grpo.seed=3"])
    assert check(facts.resolved.config, words[5:]) == []
    assert facts.set_keys[0] == "logger.log_dir"


@pytest.mark.parametrize(
    ("name", "program", "where"),
    [
        ("llm/grpo-tiny-2n8g.v1", "examples/run_grpo.py", "grpo-tiny-2n8g.v1.sh:7"),
        ("llm/grpo-tiny-2n8g.v1-long", "examples/run_grpo.py", "grpo-tiny-2n8g.v1.sh:7"),
        ("llm/grpo-tiny-2n8g.v1-tq_simple", "examples/run_grpo.py", "grpo-tiny-2n8g.v1.sh:7"),
        ("vlm/vlm_grpo-tiny", "examples/run_vlm_grpo.py", "rule: section `grpo`"),
    ],
)
def test_the_program_comes_from_the_test_script_else_from_the_rule(
    look: Look, name: str, program: str, where: str
) -> None:
    facts = look(path=f"examples/configs/recipes/{name}.yaml")
    assert facts.entry_point == program
    assert facts.where["entry_point"].endswith(where)


def test_what_the_test_script_sets_is_shown_with_its_numbers(look: Look) -> None:
    assert look(path=TINY).twin_words == ("grpo.max_num_steps=30",)


@pytest.mark.parametrize(
    ("values", "program"),
    [
        ({"sft": {}}, "run_sft.py"),
        ({"dpo": {}}, "run_dpo.py"),
        ({"rm": {}}, "run_rm.py"),
        ({"ppo": {}, "grpo": {}}, "run_ppo.py"),
        ({"grpo": {}}, "run_grpo.py"),
        ({"grpo": {}, "data": {"default": {"processor": "vlm_hf_data_processor"}}}, "run_vlm_grpo.py"),
        ({"grpo": {}, "data": {"train": [{"processor": "vlm_x"}]}}, "run_vlm_grpo.py"),
        ({"grpo": {}, "async_rl": {}}, "run_grpo_single_controller.py"),
        ({"grpo": {}, "async_rl": {}, "env": {"should_use_nemo_gym": True}}, "nemo_gym/run_grpo_nemo_gym.py"),
        ({"grpo": {}, "env": {"should_use_nemo_gym": False}}, "run_grpo.py"),
        ({"distillation": {}, "grpo": {}}, "run_distillation.py"),
        ({"distillation": {}, "teachers": [{}]}, "run_xtoken_off_policy_distillation.py"),
        ({"distillation": {}, "env": {"should_use_nemo_gym": True}}, "nemo_gym/run_distillation_nemo_gym.py"),
        ({"eval": {}}, "run_eval.py"),
    ],
)
def test_the_rule_for_the_program(values: dict[str, object], program: str) -> None:
    assert entrypoint.rule("examples/configs/x.yaml", values) == f"examples/{program}"


def test_a_program_whose_default_is_the_recipe_or_its_parent(tmp_path: Path) -> None:
    examples = tmp_path / "examples"
    examples.mkdir()
    text = 'import os\nCONFIG = os.path.join(\n    os.path.dirname(__file__), "configs", "{}.yaml"\n)\n'
    for program, config in (("grpo", "base"), ("grpo_puzzle", "puzzle"), ("vlm_sft", "none"), ("sft", "sft")):
        (examples / f"run_{program}.py").write_text(text.format(config))

    def program(section: str, *chain: str) -> str | None:
        files = [f"examples/configs/{name}.yaml" for name in chain]
        return entrypoint.find(str(tmp_path), files[0], {section: {}}, files).path

    assert program("grpo", "mine", "puzzle", "base") == "examples/run_grpo_puzzle.py"
    assert program("grpo", "mine", "base") == "examples/run_grpo.py"
    assert program("grpo", "base", "puzzle") == "examples/run_grpo.py"
    assert program("sft", "sft_avlm", "sft_vlm_3B", "sft") == "examples/run_vlm_sft.py"
    assert program("sft", "sft_vllm", "sft") == "examples/run_sft.py"
    assert program("dpo", "puzzle") is None  # examples/run_dpo.py is not there


def test_no_rule_gives_no_program() -> None:
    assert entrypoint.rule("x.yaml", {"model": {}}) is None
    assert entrypoint.twin_of("examples/configs/base.yaml") == ""


def test_a_gym_recipe(look: Look) -> None:
    facts = look(path="examples/nemo_gym/gym.yaml", env={"DATA_ROOT": "/none"})
    assert (facts.gym, facts.entry_point) == (True, "examples/nemo_gym/run_grpo_nemo_gym.py")
    assert "env.nemo_gym.nemo_gym_log_dir={log_dir}/nemo_gym" in facts.base_overrides
    assert facts.missing_env == ("CACHE_ROOT",)
    assert "examples/nemo_gym/launch_gym.sh" in facts.code_paths
    states = {item.role: (item.kind, item.present) for item in facts.datasets}
    assert states == {"train": ("path", False), "validation": ("placeholder", False)}
    told = "\n".join(facts.warnings)
    assert "CACHE_ROOT is not set" in told
    assert "gym.yaml:14" in told
    assert "missing: /none/train.jsonl" in told


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("grpo: {val_period: 3}\n", "do not meet"),
        ("grpo: {val_period: 0}\n", "validation, which is off"),
        ("grpo: {max_val_samples: 16}\n", "no batch"),
        ("checkpointing: {metric_name: null}\n", "names no metric"),
        ("checkpointing: {metric_name: accuracy}\n", "val: or train:"),
        ("checkpointing: {higher_is_better: null}\n", "DIRECTION"),
        ("checkpointing:\n  checkpoint_must_save_by: 10:00:00:00\n", "in quotes"),
        ("checkpointing: {checkpoint_must_save_by: 3h}\n", "not DD:HH:MM:SS"),
        ("grpo: {stop_at_validation_metric: accuracy}\n", "both or neither"),
        (
            "grpo: {stop_at_validation_metric: a, stop_at_validation_threshold: 1}\n"
            "checkpointing: {higher_is_better: false}\n",
            "early stop",
        ),
        ("logger: {num_val_samples_to_print: 2}\n", "text that the model wrote"),
        ("policy: {model_name: /path/to/model}\n", "placeholder"),
        ("policy: {model_name: /nowhere/model}\n", "missing: /nowhere/model"),
        ("policy:\n  model_name: ???\n  new: ???\n", "policy.new must be given"),
        ("grpo: {deep: {_override_: true}}\n", "no effect"),
        ("logger: {mlflow_enabled: true}\n", "server must run"),
    ],
)
def test_what_is_wrong_with_a_recipe_is_said_with_its_line(look: Look, text: str, said: str) -> None:
    found = [line for line in look(text).warnings if said in line]
    assert found, look(text).warnings
    assert "mine.yaml:" in found[0] or "base.yaml:" in found[0]


def test_a_sound_recipe_has_no_warning_but_that_of_wandb(look: Look, hermetic: Path) -> None:
    (hermetic / "uv").write_text("#!/bin/sh\n")
    (hermetic / "uv").chmod(0o755)
    facts = look("logger: {wandb_enabled: false}\n", env={"PATH": str(hermetic)})
    assert facts.warnings == ()
    assert [line for line in look(env={"PATH": str(hermetic)}).warnings if "W&B" not in line] == []
    assert any("uv" in line for line in look(env={"PATH": "/nowhere"}).warnings)


def test_the_test_script_may_think_of_another_cluster(look: Look, shape: Path) -> None:
    script = shape / "tests/test_suites/llm/grpo-tiny-2n8g.v1.sh"
    script.write_text(script.read_text().replace("NUM_NODES=2", "NUM_NODES=4"))
    assert any("4 nodes" in line for line in look(path=TINY).warnings)


def test_outputs_below_the_checkout_are_moved(look: Look) -> None:
    text = (
        "data: {train: {download_dir: results/made/}}\nlogger: {mlflow_enabled: true, mlflow: {tracking_uri: mlruns}}\n"
    )
    facts = look(text)
    assert "data.train.download_dir={artifacts_dir}/made" in facts.base_overrides
    assert "logger.mlflow.tracking_uri=sqlite:///{log_dir}/mlflow.db" in facts.base_overrides
    assert {write.path for write in facts.writes} >= {"logs/tiny", "results/tiny", "results/made/", "venvs"}
    assert "data.train.download_dir" not in " ".join(look("data: {train: {download_dir: /big/made}}\n").base_overrides)


def test_validation_at_the_end_is_asked_for_only_where_it_can_be(look: Look) -> None:
    assert "grpo.val_at_end=true" in look().base_overrides
    assert "grpo.val_at_end=true" not in look("grpo: {val_period: 0}\n").base_overrides
    assert "grpo.val_at_end=true" not in look("checkpointing: {metric_name: 'train:loss'}\n").base_overrides


def test_secrets_are_inferred(look: Look) -> None:
    assert look().secret_keys() == ["WANDB_API_KEY"]
    assert look(env={"WANDB_MODE": "offline"}).secret_keys() == []
    assert look("logger: {wandb_enabled: false}\n").secret_keys() == []
    assert [secret.key for secret in look().secrets] == ["WANDB_API_KEY", "HF_TOKEN"]
    gated = look("policy: {model_name: meta-llama/Llama-3.2-1B}\n")
    assert gated.secret_keys() == ["WANDB_API_KEY", "HF_TOKEN"]
    read = look("policy: {key: '${oc.env:OTHER_API_KEY}'}\n", env={"OTHER_API_KEY": "planted"})
    assert "OTHER_API_KEY" in read.secret_keys()
    assert "planted" not in repr(read)


def test_the_shared_cache_is_looked_into(look: Look, tmp_path: Path) -> None:
    hub = tmp_path / "cache/huggingface/hub"
    model = hub / "models--tiny--other/snapshots/abc"
    model.mkdir(parents=True)
    assert look(cache_root=str(tmp_path / "cache")).models[0].present is False
    (model / "config.json").write_text("{}")
    (hub / "datasets--openai--gsm8k/snapshots/def").mkdir(parents=True)
    (hub / "datasets--openai--gsm8k/snapshots/def/data").write_text("x")
    facts = look(cache_root=str(tmp_path / "cache"))
    assert facts.models[0].present is True
    assert (facts.datasets[0].source, facts.datasets[0].present) == ("openai/gsm8k", True)
    assert look(env={"HF_HOME": str(tmp_path / "cache/huggingface")}).models[0].present is True
    assert [secret.key for secret in facts.secrets] == ["WANDB_API_KEY"]


def test_data_from_the_network_is_not_called_missing(look: Look) -> None:
    facts = look("data: {train: {data_path: 'https://example.org/x.csv'}}\n")
    assert (facts.datasets[0].kind, facts.datasets[0].present) == ("url", None)
    assert not any("example.org" in line for line in facts.warnings)


def test_a_local_model_and_a_list_of_data_sets(look: Look, shape: Path) -> None:
    (shape / "weights").mkdir()
    text = "policy: {model_name: ./weights}\ndata:\n  _override_: true\n"
    text += "  train: [{dataset_name: gsm8k}, {data_path: gone.jsonl}]\n"
    facts = look(text)
    assert (facts.models[0].kind, facts.models[0].present) == ("path", True)
    assert [(item.kind, item.present) for item in facts.datasets[:2]] == [("hub", False), ("path", False)]
    assert facts.datasets[1].where.endswith("mine.yaml:5")


@pytest.mark.parametrize(
    ("metric", "section", "tag"),
    [
        ("val:accuracy", "grpo", "validation/accuracy"),
        ("val:total_reward/mean", "grpo", "validation/total_reward/mean"),
        ("val:validation-default_loss", "dpo", "validation-default/loss"),
        ("val:validation-default_rewards_chosen_mean", "rm", "validation-default/rewards_chosen_mean"),
        ("val:val_loss", "sft", "validation/val_loss"),
        ("train:loss", "distillation", "train/loss"),
        ("accuracy", "grpo", ""),
        ("val:", "grpo", ""),
    ],
)
def test_a_metric_has_a_tag_in_tensorboard(metric: str, section: str, tag: str) -> None:
    assert metric_tag(metric, section) == tag


def test_override_words_of_the_plan_count(look: Look) -> None:
    facts = look(overrides=["policy.model_name=tiny/third", "checkpointing.metric_name='train:loss'"])
    assert (facts.model, facts.metric, facts.where["model"]) == ("tiny/third", "train:loss", "override")


def test_the_python_of_a_project_without_uv(look: Look, shape: Path, tmp_path: Path) -> None:
    os.unlink(shape / "pyproject.toml")
    assert look().argv[0] == "python3"
    for place in (shape / ".venv", tmp_path / "theirs"):
        (place / "bin").mkdir(parents=True)
        (place / "bin/python").write_text("#!/bin/sh\n")
        (place / "bin/python").chmod(0o755)
    assert look().argv[0] == f"{os.path.realpath(shape)}/.venv/bin/python"
    assert look(env={"VIRTUAL_ENV": str(tmp_path / "theirs")}).argv[0] == str(tmp_path / "theirs/bin/python")


def test_another_project_gets_only_keys_it_has(hostile: Path) -> None:
    (hostile / "examples").mkdir()
    (hostile / "examples/run_grpo.py").write_text("")
    (hostile / "r.yaml").write_text(
        "grpo: {val_period: 5}\nlogger: {log_dir: logs}\ncheckpointing: {metric_name: 'val:x'}\n"
    )
    (hostile / "plain.yaml").write_text("model: {width: 3}\nlr: 0.1\n")
    facts = inspect(str(hostile), "r.yaml", env={})
    assert facts.argv[:5] == ("python3", "examples/run_grpo.py", "--config", "{recipe}", "logger.log_dir={log_dir}")
    assert facts.base_overrides == ("logger.log_dir={log_dir}",)
    plain = inspect(str(hostile), "plain.yaml", env={})
    assert (plain.argv, plain.metric, plain.warnings, plain.entry_point) == ((), "", (), None)
    assert describe(plain)


def test_an_unknown_program_is_said(look: Look, shape: Path) -> None:
    os.unlink(shape / "examples/run_grpo.py")
    facts = look()
    assert facts.argv == ()
    assert any("give CMD" in line and "run_grpo.py" in line for line in facts.warnings)


def test_the_code_worth_reading_exists(look: Look, shape: Path) -> None:
    facts = look(path=TINY)
    assert facts.code_paths[:3] == (TINY, "examples/configs/base.yaml", "examples/run_grpo.py")
    assert {"nemo_rl/algorithms/grpo.py", "docs/guides/grpo.md", "examples/prompts/short.txt"} <= set(facts.code_paths)
    assert all((shape / path).exists() for path in facts.code_paths)


def test_the_description_fits_a_terminal_and_names_every_origin(look: Look) -> None:
    lines = describe(look(path=TINY))
    assert len(lines) <= 60
    text = "\n".join(lines)
    for part in ("val:accuracy", "base.yaml:16", "13500 s", "logger.log_dir={log_dir}", "WANDB_API_KEY", "uv run"):
        assert part in text
    many = "".join(f"  k{index}: ???\n" for index in range(99))
    crowded = describe(look(f"policy:\n{many}"))
    assert len(crowded) <= 60
    assert "more" in crowded[-1]
    assert any("WANDB_API_KEY" in line for line in crowded)


def test_the_facts_feed_the_quick_check(look: Look) -> None:
    assert quick(["grpo.max_num_steps=3"], look(path=TINY).kinds)
