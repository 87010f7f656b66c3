"""The bundled project: its recipes, its algorithm, its console and checkpoints, and the ideas that ship with it."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, git

EXAMPLE = ROOT / "examples" / "digits_grpo"
RECIPES = EXAMPLE / "examples" / "configs"
SMOKE = RECIPES / "grpo-mlp256-1n0g-smoke.yaml"

np = pytest.importorskip("numpy")
pytest.importorskip("yaml")
sys.path.append(str(EXAMPLE))

from nemo_digits.config import ConfigError, load_config, load_recipe  # noqa: E402
from nemo_digits.data import batches, load_prompts  # noqa: E402
from nemo_digits.loss import advantages, clipped_loss  # noqa: E402
from nemo_digits.policy import Policy, pick  # noqa: E402
from nemo_digits.timer import TimeLimit  # noqa: E402

STEP_BLOCK = r"""
========================= Step 2/4 =========================
▶ Preparing batch\.\.\.
▶ Processing rewards\.\.\.,
▶ Computing advantages\.\.\.
▶ Preparing for logprob inference\.\.\.
▶ Computing logprobs\.\.\.
▶ Preparing for training\.\.\.
▶ Training policy\.\.\.
▶ Starting validation at step 2\.\.\.

📊 Validation Results:
    • Accuracy: \d\.\d{4}
    • Average response length: 2\.0 tokens
    • Samples processed: 64

  ⏱️  Validation Timing:
    • Total validation time: \d+\.\d\ds
Saving checkpoint for step 2\.\.\.

📊 Training Results:
  • Loss: -?\d+\.\d{4}
  • Generation KL Error: \d\.\d{4}
  • Avg Reward: \d\.\d{4}
  • Mean Generation Length: 2\.0000

⏱️  Timing:
  • Total step time: \d+\.\d\ds
(  • [a-z_]+: \d+\.\d\ds \(\d+\.\d%\)
){6}
🔍 Performance Metrics:
  • Throughputs \(per Group\):
    - E2E \(Samples/sec\): \d+\.\d\d
    - E2E \(Tokens/sec\): \d+\.\d\d

========================= Step 3/4 =========================
"""


def train(cwd: Path, *words: str, project: Path = EXAMPLE, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the smoke recipe in `cwd` with more words, and check the exit code."""
    recipe = project / SMOKE.relative_to(EXAMPLE)
    command = [sys.executable, str(project / "examples" / "run_grpo.py"), "--config", str(recipe), *words]
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, encoding="utf-8", stdin=subprocess.DEVNULL, timeout=60, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def outputs(name: str) -> tuple[str, str]:
    """The overrides that send a run's output to `name`/l and `name`/c below its working directory."""
    return f"logger.log_dir={name}/l", f"checkpointing.checkpoint_dir={name}/c"


def info(checkpoint: Path) -> dict[str, object]:
    return json.loads((checkpoint / "training_info.json").read_text())


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the example as a git repository of its own."""
    copy = tmp_path / "project"
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("__pycache__", "logs", "results"))
    git(copy, "init", "-q")
    git(copy, "add", "-A")
    git(copy, "commit", "-q", "-m", "first")
    return copy


# Recipes and overrides


def test_a_recipe_inherits_through_every_level_and_overrides_the_values_it_names() -> None:
    config = load_config(SMOKE)
    assert config.grpo.max_num_steps == 4
    assert config.grpo.seed == 42  # two levels up
    assert config.checkpointing.metric_name == "val:accuracy"
    assert config.checkpointing.higher_is_better is True
    assert (config.cluster.num_nodes, config.cluster.gpus_per_node) == (1, 0)


def test_parents_are_relative_to_the_file_mappings_merge_and_lists_are_replaced(hostile: Path) -> None:
    (hostile / "a").mkdir()
    (hostile / "root.yaml").write_text("s: {x: 1, y: [1, 2], deep: {k: 1, l: 1}}\nt: 1\n")
    (hostile / "a" / "second.yaml").write_text("defaults: ../root.yaml\ns: {deep: {l: 2}}\n")
    (hostile / "a" / "child.yaml").write_text("defaults: [second.yaml, third.yaml]\ns: {y: [3]}\nu: 1e-4\n")
    (hostile / "a" / "third.yaml").write_text("t: 3\n")
    assert load_recipe(hostile / "a" / "child.yaml") == {
        "s": {"x": 1, "y": [3], "deep": {"k": 1, "l": 2}},
        "t": 3,
        "u": 0.0001,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("defaults: own.yaml\n", "inherits from itself"),
        ("defaults: nowhere.yaml\n", "nowhere.yaml: No such file"),
        ("defaults: 3\n", "expected a file or a list of files, got 3"),
        ("- 1\n", "expected sections"),
        ("a: [\n", "not valid YAML"),
        (f"defaults: '{SMOKE}'\ngrpo: 3\n", "grpo: expected a section, got 3"),
        ("{}\n", "grpo: missing"),
    ],
)
def test_a_broken_recipe_is_refused_with_its_reason(hostile: Path, text: str, message: str) -> None:
    (hostile / "own.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_config(hostile / "own.yaml")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("bogus", "'bogus': an override has the form key=value"),
        ("=1", "'=1': an override has the form key=value"),
        ("grpo.max_num_step=3", "grpo.max_num_step: unknown key; did you mean max_num_steps"),
        ("grpo.seed.deeper=3", "grpo.seed.deeper: unknown key"),
        ("grpo=1", "grpo: is a section"),
        ("grpo.seed=abc", "grpo.seed: expected a whole number, got 'abc'"),
        ("grpo.seed=[", "grpo.seed: cannot read the value"),
        ("grpo.seed=-1", "grpo.seed: must be at least 0"),
        ("grpo.val_at_end=1", "grpo.val_at_end: expected true or false, got 1"),
        ("grpo.num_generations_per_prompt=1", "must be at least 2"),
        ("policy.optimizer.kwargs.lr=.nan", "policy.optimizer.kwargs.lr: must be at least 0"),
        ("policy.optimizer.kwargs.betas=[0.9]", "expected a list of 2 numbers"),
        ("policy.optimizer.kwargs.betas=[0.9,1]", "less than 1"),
        ("policy.optimizer.name=sgd", "only adam"),
        ("checkpointing.metric_name=accuracy", "must start with val: or train:"),
        ("checkpointing.checkpoint_must_save_by=1h", "expected DD:HH:MM:SS, got '1h'"),
        ("data.num_validation_images=1797", "must be less than 1797"),
    ],
)
def test_an_override_that_cannot_be_used_is_refused(word: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        load_config(SMOKE, [word])


def test_overrides_keep_text_as_text_and_read_numbers_as_numbers() -> None:
    config = load_config(
        SMOKE,
        [
            "policy.optimizer.kwargs.lr=3e-4",
            "policy.optimizer.kwargs.betas=[0.8, 0.99]",
            "++grpo.seed=1",
            "grpo.seed=2",
            "checkpointing.metric_name=null",
            "checkpointing.checkpoint_must_save_by=10:00:00:00",
            'logger.log_dir=/a b/it\'s "x"=$y',
            "checkpointing.checkpoint_dir='/it\\'s'",
        ],
    )
    assert config.policy.optimizer.kwargs.lr == 0.0003
    assert config.policy.optimizer.kwargs.betas == (0.8, 0.99)
    assert config.grpo.seed == 2
    assert config.checkpointing.metric_name is None
    assert config.checkpointing.checkpoint_must_save_by == "10:00:00:00"
    assert config.logger.log_dir == '/a b/it\'s "x"=$y'
    assert config.checkpointing.checkpoint_dir == "/it's"


@pytest.mark.parametrize(
    ("quoted", "value"),
    [
        (r"'it\'s'", "it's"),
        (r'"a \"b\" c=d"', 'a "b" c=d'),
        (r'"C:\new"', r"C:\new"),
        (r'"ends with \\"', "ends with \\"),
        (r'"\${HOME}"', "${HOME}"),
        ("'1e5'", "1e5"),
        ('"null"', "null"),
    ],
)
def test_a_quoted_value_is_read_as_hydra_reads_it(quoted: str, value: str) -> None:
    assert load_config(SMOKE, [f"logger.log_dir={quoted}"]).logger.log_dir == value


def test_the_program_names_the_wrong_key_and_writes_nothing(tmp_path: Path) -> None:
    done = train(tmp_path, "grpo.sed=1", code=2)
    assert "run_grpo.py: error: grpo.sed: unknown key; did you mean seed?" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


# Data and algorithm


def test_the_data_is_the_file_that_its_note_describes() -> None:
    note = (EXAMPLE / "data" / "DATA.md").read_text()
    assert hashlib.sha256((EXAMPLE / "data" / "digits.csv.gz").read_bytes()).hexdigest() in note
    train_prompts, validation = load_prompts(load_config(RECIPES / "grpo-mlp256-1n0g.yaml").data)
    assert train_prompts.images.shape == (6400, 2, 64)
    assert validation.answers.shape == (1024, 2)
    assert (train_prompts.images.min(), train_prompts.images.max()) == (0, 1)
    assert set(validation.answers.ravel().tolist()) == set(range(10))


def test_an_epoch_shows_each_prompt_once_in_an_order_of_its_own() -> None:
    first, second = (batches(10, 3, seed=1, epoch=epoch) for epoch in (0, 1))
    assert [len(batch) for batch in first] == [3, 3, 3]
    assert len(set(np.concatenate(first).tolist())) == 9
    assert np.concatenate(first).tolist() != np.concatenate(second).tolist()


def test_advantages_compare_an_answer_with_its_group_and_teach_nothing_where_all_are_equal() -> None:
    rewards = np.array([[1, 0, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]], dtype=np.float32)
    plain = advantages(rewards, normalize=False, leave_one_out=True)
    assert plain[0] == pytest.approx([1, -1 / 3, -1 / 3, -1 / 3])
    assert advantages(rewards, normalize=False, leave_one_out=False)[0] == pytest.approx([0.75, -0.25, -0.25, -0.25])
    assert advantages(rewards, normalize=True, leave_one_out=True)[0] == pytest.approx(plain[0] / 0.5)
    assert not advantages(rewards, normalize=True, leave_one_out=True)[1:].any()


def test_the_gradient_is_the_slope_of_the_loss() -> None:
    config = load_config(SMOKE, ["loss_fn.reference_policy_kl_penalty=0.1"])
    rng = np.random.default_rng(0)
    policy = Policy.initial(5, 1.5, seed=0)
    policy.weights = {name: value.astype(np.float64) for name, value in policy.weights.items()}
    images, tokens = rng.random((20, 64)), rng.integers(10, size=20)
    old, reference = (np.log(rng.uniform(0.05, 0.2, 20)) for _ in range(2))
    advantage = rng.standard_normal(20)

    def loss() -> float:
        new = pick(policy.forward(images).logprobs, tokens)
        return clipped_loss(new, old, reference, advantage, config.loss_fn).value

    seen = policy.forward(images)
    slope = clipped_loss(pick(seen.logprobs, tokens), old, reference, advantage, config.loss_fn).slope
    for name, gradient in policy.gradient(images, tokens, seen, slope).items():
        place = tuple(0 for _ in gradient.shape)
        policy.weights[name][place] += 1e-6
        above = loss()
        policy.weights[name][place] -= 2e-6
        assert gradient[place] == pytest.approx((above - loss()) / 2e-6, rel=1e-3, abs=1e-7), name
        policy.weights[name][place] += 1e-6


def test_sampling_follows_the_distribution() -> None:
    policy = Policy.initial(8, 1.0, seed=0)
    policy.weights["bias2"] += np.arange(10, dtype=np.float32) / 5
    tokens, logprobs = policy.sample(np.zeros((1, 64), np.float32), 20000, np.random.default_rng(0))
    share = np.bincount(tokens[0], minlength=10) / 20000
    assert share == pytest.approx(np.exp(policy.forward(np.zeros((1, 64), np.float32)).logprobs[0]), abs=0.02)
    assert np.exp(logprobs[0, 0]) == pytest.approx(share[tokens[0, 0]], abs=0.02)


def test_the_policy_learns(tmp_path: Path) -> None:
    done = train(
        tmp_path,
        "data.digits_per_prompt=1",
        "policy.hidden_size=64",
        "policy.optimizer.kwargs.lr=3e-3",
        "grpo.num_prompts_per_step=64",
        "grpo.num_generations_per_prompt=8",
        "policy.train_global_batch_size=128",
        "data.num_train_prompts=1280",
        "grpo.max_num_steps=60",
        "grpo.val_period=0",
        "grpo.val_at_start=true",
    )
    before, after = map(float, re.findall(r"• Accuracy: (\S+)", done.stdout))
    assert before < 0.4
    assert after > 0.7


# Console, checkpoints, resuming


def test_the_console_shows_the_blocks_of_a_step_in_order(tmp_path: Path) -> None:
    log = train(tmp_path, "grpo.seed=7").stdout
    assert log.startswith(f"Loaded configuration from: {SMOKE}\nOverrides: ['grpo.seed=7']\nApplied CLI overrides\n")
    assert "\n📊 Using log directory: logs/grpo-mlp256-1n0g-smoke/exp_001\n" in log
    assert "\n📊 Using checkpoint directory: results/grpo-mlp256-1n0g-smoke\n" in log
    assert re.search(r"\n  Total setup time: \d+\.\ds\n", log)
    assert "\n🚀 Running synchronous GRPO training (legacy)\n" in log
    assert "\n========================= Epoch 1/4 =========================\n" in log
    assert re.search(STEP_BLOCK, log), log
    assert log.endswith("\nMax number of steps has been reached, stopping training early\n")


def test_step_headers_restart_with_each_epoch_but_validation_steps_do_not(tmp_path: Path) -> None:
    log = train(tmp_path, "data.num_train_prompts=16", "grpo.max_num_epochs=2", "grpo.max_num_steps=9").stdout
    assert re.findall(r"=== (Epoch \S+|Step \S+)", log) == [
        *("Epoch 1/2", "Step 1/2", "Step 2/2"),
        *("Epoch 2/2", "Step 1/2", "Step 2/2"),
    ]
    assert re.findall(r"validation at step (\d+)", log) == ["2", "4"]
    assert "stopping training" not in log  # the epochs ended, and that has no marker


def test_a_checkpoint_and_the_metrics_file_hold_the_unrounded_accuracy(tmp_path: Path) -> None:
    log = train(tmp_path, *outputs("a")).stdout
    accuracy = info(tmp_path / "a/c/step_4")["val:accuracy"]
    assert f"{accuracy:.4f}" == re.findall(r"Accuracy: (\S+)", log)[-1]
    assert accuracy * 64 == int(accuracy * 64)
    lines = [json.loads(line) for line in (tmp_path / "a/l/exp_001/metrics.jsonl").read_text().splitlines()]
    assert [line["validation/accuracy"] for line in lines if "validation/accuracy" in line][-1] == accuracy
    assert sorted({line["step"] for line in lines if "train/loss" in line}) == [1, 2, 3, 4]


def test_the_same_seed_gives_the_same_run_also_across_a_resume(tmp_path: Path) -> None:
    train(tmp_path, *outputs("whole"), "data.num_train_prompts=24")
    train(tmp_path, *outputs("parts"), "data.num_train_prompts=24", "grpo.max_num_steps=2")
    (tmp_path / "parts/c/tmp_step_9").mkdir()  # what a killed run leaves
    resumed = train(tmp_path, *outputs("parts"), "data.num_train_prompts=24").stdout
    train(tmp_path, *outputs("other"), "data.num_train_prompts=24", "grpo.seed=1")
    assert re.findall(r"=== (Step \S+)", resumed) == ["Step 3/3", "Step 1/3"]
    whole, parts, other = ((tmp_path / name / "c/step_4/policy.npz") for name in ("whole", "parts", "other"))
    for name, value in np.load(whole).items():
        assert np.array_equal(value, np.load(parts)[name]), name
        assert name == "bias1" or not np.array_equal(value, np.load(other)[name]), name
    assert info(whole.parent) == info(parts.parent)


def test_a_complete_run_does_nothing_when_it_is_started_again(tmp_path: Path) -> None:
    train(tmp_path, *outputs("a"))
    again = train(tmp_path, *outputs("a")).stdout
    assert "Step" not in again
    assert again.endswith("🚀 Running synchronous GRPO training (legacy)\n")
    wrong = train(tmp_path, *outputs("a"), "policy.hidden_size=8", code=2).stderr
    assert "layer1 has the shape (64, 16), the recipe asks for (64, 8)" in wrong


def test_the_best_checkpoints_and_the_newest_are_kept(tmp_path: Path) -> None:
    words = ("grpo.val_period=1", "checkpointing.save_period=1", "checkpointing.keep_top_k=1")
    log = train(tmp_path, *outputs("a"), *words, "grpo.max_num_steps=8", "policy.optimizer.kwargs.lr=1e-2").stdout
    accuracies = [float(value) for value in re.findall(r"Accuracy: (\S+)", log)]
    best = max(range(8), key=lambda index: (accuracies[index], index)) + 1
    assert {path.name for path in (tmp_path / "a/c").iterdir()} == {f"step_{best}", "step_8"}


def test_the_time_limit_saves_and_ends_with_success(tmp_path: Path) -> None:
    log = train(tmp_path, *outputs("a"), "checkpointing.checkpoint_must_save_by=00:00:00:00").stdout
    assert log.endswith("\nTimeout has been reached, stopping training early\n")
    assert "val:accuracy was not measured at step 1" in log
    assert info(tmp_path / "a/c/step_1")["total_steps"] == 1
    assert "val:accuracy" not in info(tmp_path / "a/c/step_1")


def test_the_time_limit_leaves_room_for_one_more_step(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("nemo_digits.timer.time.monotonic", lambda: now[0])
    limit, endless = TimeLimit("00:00:01:00"), TimeLimit(None)
    now[0] = 120.0
    assert (limit.step_done(), endless.step_done()) == (False, False)
    now[0] = 140.0  # another step of 20 s would reach the limit
    assert (limit.step_done(), endless.step_done()) == (True, False)


def test_nothing_is_saved_when_checkpointing_is_off(tmp_path: Path) -> None:
    log = train(tmp_path, *outputs("a"), "checkpointing.enabled=false", "logger.log_dir=it's $HOME").stdout
    assert "checkpoint directory" not in log
    assert not (tmp_path / "a").exists()
    assert (tmp_path / "it's $HOME" / "exp_001" / "metrics.jsonl").exists()


# The copy that the demo makes, and its ideas


def test_a_copy_runs_alone_and_its_output_stays_out_of_git(project: Path) -> None:
    train(project, project=project)
    assert git(project, "status", "--porcelain") == ""


@pytest.mark.parametrize("patch", sorted(path.name for path in (EXAMPLE / "ideas").glob("*.patch")))
def test_each_patch_applies(project: Path, patch: str) -> None:
    git(project, "apply", f"ideas/{patch}")
    assert git(project, "diff", "--name-only") == "nemo_digits/data.py"
    crashes = patch == "row-and-column-means.patch"
    done = train(project, project=project, code=1 if crashes else 0)
    assert ("ValueError: matmul" in done.stderr) == crashes
    assert ("Max number of steps" in done.stdout) != crashes


def test_the_overrides_are_words_that_the_recipe_takes() -> None:
    words = (EXAMPLE / "ideas" / "hotter-sampling.overrides").read_text().split()
    assert load_config(RECIPES / "grpo-mlp256-1n0g.yaml", words).policy.generation.temperature == 2.0


@pytest.mark.slow
def test_the_ideas_do_what_their_table_says(project: Path, tmp_path: Path) -> None:
    baseline = RECIPES.relative_to(EXAMPLE) / "grpo-mlp256-1n0g.yaml"
    accuracy = {}
    for name, words in {"baseline": [], "hotter": ["policy.generation.temperature=2"], "standardise": []}.items():
        if name == "standardise":
            git(project, "apply", "ideas/standardise-pixels.patch")
        train(project, "--config", str(project / baseline), *outputs(str(tmp_path / name)), *words, project=project)
        accuracy[name] = info(tmp_path / name / "c/step_200")["val:accuracy"]
    assert 0.80 < accuracy["baseline"] < 0.88
    assert accuracy["hotter"] < accuracy["baseline"] - 0.1
    assert accuracy["standardise"] > accuracy["baseline"] + 0.03
