"""Guards, protected paths, runs too small to judge, and changes of nothing but the seed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.errors import Usage
from autoresearch.rules import guards, plumbing
from autoresearch.rules.guards import Guard


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("memory_gb <= 70, tokens_per_sec >= 1000", [("memory_gb", "<=", 70), ("tokens_per_sec", ">=", 1000)]),
        ("memory_gb<70", [("memory_gb", "<", 70)]),
        (
            "timing/train/total_step_time < 2.5e1 and val:kl > -0.5",
            [("timing/train/total_step_time", "<", 25), ("val:kl", ">", -0.5)],
        ),
        ("x >= 1, x <= 2", [("x", ">=", 1), ("x", "<=", 2)]),
        ("ｍｅｍ ≦ ７０、x>1", [("mem", "<=", 70), ("x", ">", 1)]),
        ("", []),
        ("  ", []),
    ],
)
def test_reads(text: str, found: list[tuple[str, str, float]]) -> None:
    assert [tuple(guard) for guard in guards.parse(text)] == found


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("memory_gb", "not understood"),
        ("memory_gb 70", "not understood"),
        ("memory_gb <= 70 GB", "GB"),
        ("memory_gb <= 70,", "not understood"),
        ("memory_gb <= 70 or x > 1", "every guard must hold"),
        ("memory_gb == 70", "not understood"),
        ("memory_gb <= nan", "not understood"),
        ("memory_gb <= 1e999", "not understood"),
        ("memory_gb <= 70%", "not understood"),
        ("x >= 3, x <= 2", "no x is both"),
        ("x > 2, x <= 2", "no x is both"),
        ("x <= $(id)", "not understood"),
    ],
)
def test_refuses(text: str, word: str) -> None:
    with pytest.raises(Usage) as caught:
        guards.parse(text)
    assert word in str(caught.value)


def test_failures_name_what_was_found() -> None:
    asked = guards.parse("memory_gb <= 70, tokens_per_sec >= 1000, kl < 1")
    assert guards.names(asked) == ["memory_gb", "tokens_per_sec", "kl"]
    values = {"memory_gb": 73.2, "tokens_per_sec": 1000.0, "kl": None}
    assert guards.failures(asked, values) == ["memory_gb 73.2, not <= 70", "kl unknown, not < 1"]
    assert guards.failures(asked, {**values, "memory_gb": 70.0, "kl": float("nan")}) == ["kl nan, not < 1"]


@given(st.floats(allow_nan=True), st.sampled_from([">=", "<=", ">", "<"]), st.floats(-1e9, 1e9))
def test_what_is_written_reads_back_and_holds_alike(value: float, op: str, bound: float) -> None:
    bound = float(f"{bound:.12g}")
    guard = Guard("x", op, bound)
    assert guards.parse(str(guard)) == (guard,)
    assert bool(guards.failures([guard], {"x": value})) == (not guard.holds(value))


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        guards.parse(text)
    except Usage:
        pass


@pytest.mark.parametrize(
    ("run", "baseline", "small"),
    [
        ({"steps": 9}, {"steps": 100}, "steps 9 against the baseline's 100"),
        ({"steps": 10}, {"steps": 100}, ""),
        ({"steps": 0}, {"steps": 100}, "steps 0"),
        ({}, {"steps": 100}, ""),
        ({"steps": 9}, {}, ""),
        ({"steps": 0}, {"steps": 0}, ""),
        ({"steps": 100, "batch_size": 3}, {"steps": 100, "batch_size": 64}, "batch_size 3 against the baseline's 64"),
        ({"steps": 100, "batch_size": 8}, {"steps": 100, "batch_size": 64}, ""),
    ],
)
def test_too_small_a_run(run: dict[str, float], baseline: dict[str, float], small: str) -> None:
    reason = plumbing.too_small(run, baseline)
    assert small in reason
    assert bool(reason) == bool(small)


@pytest.mark.parametrize(
    ("settings", "sizes"),
    [
        ({"batch_size": "64"}, {"batch_size": 64}),
        ({"--batch-size": "64"}, {"batch_size": 64}),
        ({"policy.train_global_batch_size": "512"}, {"train_global_batch_size": 512}),
        ({"policy.train_micro_batch_size": "4", "per_device_train_batch_size": "2"}, {}),
        ({"val.batch_size": "1", "grpo.val_batch_size": "1", "data.validation.batch_size": "1"}, {}),
        ({"batch_size": "auto"}, {}),
        ({"batch_size": "0"}, {}),
        (
            {"grpo.num_prompts_per_step": "32", "grpo.num_generations_per_prompt": "16"},
            {"num_prompts_per_step * num_generations_per_prompt": 512},
        ),
        ({"grpo.num_prompts_per_step": "32"}, {}),
        ({"lr": "3", "batch_norm": "1"}, {}),
    ],
)
def test_the_batch_that_settings_name(settings: dict[str, str], sizes: dict[str, float]) -> None:
    assert plumbing.batch_sizes(settings) == sizes


@pytest.mark.parametrize(
    ("protect", "path", "hit"),
    [
        ("eval/ data/", "eval/run.py", True),
        ("eval/ data/", "eval", True),
        ("eval/ data/", "data/a/b.jsonl", True),
        ("eval/ data/", "evaluation/run.py", False),
        ("eval/ data/", "src/eval/run.py", False),
        ("eval", "eval/run.py", True),
        ("./eval//x.py", "eval/x.py", True),
        ("a/eval/", "a", True),
        ("data/*.jsonl", "data/x.jsonl", True),
        ("data/*.jsonl", "data/sub/x.jsonl", False),
        ("**/*.jsonl", "data/sub/x.jsonl", True),
        ("**/*.jsonl", "x.jsonl", True),
        ("'my data/'", "my data/x", True),
        ("data.x/", "dataXx/y", False),
        ("", "anything", False),
        ("eval/", "eval/new\nline", True),
    ],
)
def test_protected(protect: str, path: str, hit: bool) -> None:
    patterns = plumbing.protected_patterns(protect)
    assert plumbing.protected(["other.py", path], patterns) == ([path] if hit else [])


@pytest.mark.parametrize("text", ["/etc", "../x", "eval/../../x", ".", "'open", "/"])
def test_patterns_outside_the_repository_are_refused(text: str) -> None:
    with pytest.raises(Usage):
        plumbing.protected_patterns(text)


@pytest.mark.parametrize(
    ("words", "lines", "other", "only"),
    [
        (["grpo.seed=1"], [], False, True),
        (["+seed=3", "++data.shuffle_seed=4"], [], False, True),
        (["--seed=3"], [], False, True),
        (["--seed", "3"], [], False, True),
        (["--seed", "3", "lr=1"], [], False, False),
        (["grpo.seed=1", "lr=1e-4"], [], False, False),
        (["seeded=1"], [], False, False),
        (["seed.policy=x"], [], False, False),
        ([], ["  seed: 1", "  seed: 2  # lucky"], False, True),
        ([], ['"data.shuffle_seed": 1,', "SEED = '2'"], False, True),
        ([], ["  seed: 1", "  lr: 2"], False, False),
        ([], ["  seed_policy: 1"], False, False),
        ([], ["  seed: true"], False, False),
        ([], ["  seed: 1", ""], False, False),
        (["seed=2"], ["  seed: 1"], False, True),
        (["lr=2"], ["  seed: 1"], False, False),
        (["seed=1"], [], True, False),
        ([], [], False, False),
    ],
)
def test_only_the_seed(words: list[str], lines: list[str], other: bool, only: bool) -> None:
    assert plumbing.only_seed(words, lines, other) is only
