"""Override words: what NeMo-RL would refuse or misread is found before a launch, and values are quoted exactly."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoresearch.errors import Usage
from autoresearch.nemo_rl.grammar import fill, kinds, look_up, must_save_by, quick, quote, split
from autoresearch.nemo_rl.overrides import apply, check, closest
from autoresearch.nemo_rl.resolve import Resolved, resolve

SHAPE = Path(__file__).parent / "data" / "nemo_rl" / "shape"


@pytest.fixture(scope="module")
def recipe() -> Resolved:
    """The small recipe, resolved by the rules."""
    return resolve(str(SHAPE), "grpo-tiny-2n8g.v1", env={}, use_checkout=False)


def changed(recipe: Resolved, *words: str) -> Resolved:
    """The recipe with override words."""
    return resolve(str(SHAPE), "grpo-tiny-2n8g.v1", env={}, overrides=words, use_checkout=False)


@pytest.mark.parametrize(
    "word",
    [
        "grpo.max_num_steps=5",
        "+grpo.bogus=1",
        "+grpo.stop_at_validation_metric=val:accuracy",  # null in the recipe
        "++grpo.bogus=1",
        "++grpo.max_num_steps=5",
        "~grpo.max_num_steps",
        "policy.model_name=a b:c",
        "policy.model_name=",
        "policy.optimizer=null",
        "policy.scheduler.0.kwargs.total_iters=3",
        "checkpointing.checkpoint_must_save_by=10:00:30:00",
        'logger.wandb.name="1e5"',
        "policy.optimizer.kwargs.betas=[0.8,0.99]",
        "policy.model_name=${policy.tokenizer.name}",
    ],
)
def test_words_that_nemo_rl_takes_pass(recipe: Resolved, word: str) -> None:
    assert check(recipe.config, [word]) == []


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("grpo.bogus=1", "no key grpo.bogus"),
        ("policy.lr=1", r"policy\.optimizer\.kwargs\.lr"),
        ("grpo.max_num_step=1", r"did you mean grpo\.max_num_steps"),
        ("optimizer.kwargs.lr=1", r"did you mean policy\.optimizer\.kwargs\.lr"),
        ("+grpo.max_num_steps=5", r"write grpo\.max_num_steps=5"),
        ("~grpo.nothing", "no key"),
        ("logger.wandb.project=/a/x=y", r"""write 'logger\.wandb\.project="/a/x=y"'"""),
        ("policy.model_name=a,b", r"""write 'policy\.model_name="a,b"'"""),
        ("policy.model_name=a#b", r"""write 'policy\.model_name="a#b"'"""),
        ("policy.model_name=~/m", r"""write 'policy\.model_name="~/m"'"""),
        ("logger.wandb.name=1e5", r"""write 'logger\.wandb\.name="1e5"'"""),
        ("logger.wandb.name=true", r'"true"'),
        ("grpo=5", "section"),
        ("checkpointing.checkpoint_must_save_by=3h", "DD:HH:MM:SS"),
        ("+logger.wandb.dir=/x", "leave it out"),
        ("policy.scheduler.7.name=x", "no key"),
        ("grpo.seed.deeper=3", "no key"),
        ("grpo@pkg=3", "no key"),
        ("grpo.seed", "KEY=VALUE"),
        ("--flag", "KEY=VALUE"),
        ("=3", "KEY=VALUE"),
        ("", "KEY=VALUE"),
    ],
)
def test_words_that_nemo_rl_refuses_or_misreads_are_named_with_the_way_out(
    recipe: Resolved, word: str, message: str
) -> None:
    with pytest.raises(Usage, match=message):
        check(recipe.config, [word])


@pytest.mark.parametrize("word", ["logger.wandb.project=a=b", "policy.model_name=it's a,b", "logger.wandb.name=1e5"])
def test_the_advice_can_be_given_as_it_stands(recipe: Resolved, word: str) -> None:
    with pytest.raises(Usage) as caught:
        check(recipe.config, [word])
    advice = re.fullmatch("write (.*), with both kinds of quotes.*", caught.value.fix)
    assert advice is not None
    words = shlex.split(advice[1])  # as the knob is split
    assert check(recipe.config, words) == []
    from omegaconf import OmegaConf

    config, (key,) = apply(recipe.config, words)
    assert look_up(OmegaConf.to_container(config), key) == (True, word.partition("=")[2])


def test_what_is_accepted_but_looks_wrong_is_a_warning(recipe: Resolved) -> None:
    assert "this is text" in check(recipe.config, ["grpo.max_num_steps=many"])[0]
    assert "a number" in check(recipe.config, ["policy.generation.kv_cache_dtype=8"])[0]
    assert "metric" in check(recipe.config, ["checkpointing.metric_name=val:loss"])[0]
    assert check(recipe.config, ["grpo.max_num_steps=${grpo.seed}"]) == []


def test_words_apply_in_order_the_last_wins_and_the_config_stays_as_it_was(recipe: Resolved) -> None:
    config, keys = apply(recipe.config, ["grpo.seed=1", "grpo.seed=2", "+grpo.new=3", "grpo.new=4"])
    assert (config.grpo.seed, config.grpo.new) == (2, 4)
    assert keys == ("grpo.seed", "grpo.seed", "grpo.new", "grpo.new")
    assert recipe.config.grpo.seed == 7
    assert "new" not in recipe.config.grpo


def test_a_word_for_what_the_tool_sets_is_refused(recipe: Resolved) -> None:
    with pytest.raises(Usage, match="set by autoresearch"):
        check(recipe.config, ["++logger.log_dir=/tmp"], protected=("logger.log_dir",))


def test_overridden_values_say_so_and_interpolations_follow(recipe: Resolved) -> None:
    found = changed(recipe, "policy.max_total_sequence_length=1024")
    assert found.get("policy.tokens") == 4096
    assert found.where("policy.max_total_sequence_length") == "override"


def test_the_closest_key_is_the_one_meant(recipe: Resolved) -> None:
    assert closest("grpo.lr", recipe.values)[0] == "policy.optimizer.kwargs.lr"
    assert closest("checkpointing.metric", recipe.values)[0] == "checkpointing.metric_name"
    assert closest("zzzzzz", recipe.values) == []


def test_quick_knows_certain_words_and_leaves_the_rest_to_check(recipe: Resolved) -> None:
    known = kinds(recipe.values)
    assert quick(["grpo.seed=3", "policy.optimizer.kwargs.lr=1e-4", "policy.model_name=a/b-1.5"], known)
    assert quick(["logger.wandb_enabled=true"], known)
    assert quick([], known)
    for word in (
        "grpo.bogus=1",
        "grpo.seed=x",
        "policy.model_name=1e5",
        "policy.model_name=true",
        "policy.model_name=a,b",
        "+grpo.seed=1",
        "~grpo.seed",
        "grpo.seed",
        "policy.scheduler.0.name=x",
        "checkpointing.metric_name=x",
        "logger.log_dir=/x",
        "grpo.stop_at_validation_metric=accuracy",
    ):
        assert not quick([word], known), word


WORDS = st.builds(
    "{}{}={}".format,
    st.sampled_from(["", "+", "++", "~"]),
    st.sampled_from(
        ["grpo.seed", "policy.model_name", "logger.wandb_enabled", "grpo.nope", "policy", "logger.wandb.name"]
    ),
    st.one_of(st.text("ab1.e-/=,:'\"$ {}[]~#", max_size=6), st.sampled_from(["1", "1e5", "true", "null", "x"])),
)


@settings(max_examples=150)
@given(WORDS)
def test_a_word_that_quick_lets_through_is_one_that_check_does(word: str) -> None:
    found = resolve(str(SHAPE), "grpo-tiny-2n8g.v1", env={}, use_checkout=False)
    try:
        notes = check(found.config, [word])
    except Usage:
        assert not quick([word], kinds(found.values))
    else:
        assert not notes or not quick([word], kinds(found.values))


def back(value: Any) -> Any:
    """The value that Hydra and OmegaConf make of `quote(value)`."""
    from omegaconf import OmegaConf

    config, _ = apply(OmegaConf.create({"a": "old"}), [f"++a={quote(value)}"])
    return OmegaConf.to_container(config, resolve=True)["a"]


TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=("Cs",)), max_size=12), st.text("\\$\"'{}ab,=[] \n#é:", max_size=8)
).filter(lambda text: text != "???")
PLAIN = st.one_of(TEXTS, st.integers(), st.floats(allow_nan=False), st.booleans(), st.none())


@settings(max_examples=300)
@given(st.recursive(PLAIN, lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from("abc"), below)))
def test_a_quoted_value_comes_back_as_it_was(value: Any) -> None:
    assert back(value) == value


@pytest.mark.parametrize(
    "text", ["1e5", "007", "true", "null", "nan", "1_000", "${x}", "\\${x}", " pad ", "", 'it\'s "q"', "a\\"]
)
def test_texts_that_look_like_something_else_stay_text(text: str) -> None:
    assert back(text) == text


def test_plain_paths_and_names_are_not_quoted() -> None:
    assert quote("/ephemeral/nemo-rl/ubuntu/logs") == "/ephemeral/nemo-rl/ubuntu/logs"
    assert quote("night-lr.2") == "night-lr.2"
    with pytest.raises(Usage):
        quote("???")
    with pytest.raises(Usage):
        quote({"a b": 1})


def test_fill_quotes_override_words_and_nothing_else(hostile: Path, recipe: Resolved) -> None:
    argv = ["uv", "run", "x.py", "--config", "{recipe}", "logger.log_dir={log_dir}", "logger.wandb.name={run_name}"]
    argv += ["++a.b={log_dir}/deep", "logger.wandb_enabled=true", "{unknown}", "{overrides}"]
    path = f"{hostile}/a=b,c"
    values = {"recipe": "r e.yaml", "log_dir": path, "run_name": "1e5"}
    words = fill(argv, values, ["grpo.seed={recipe}"])
    assert words[4] == "r e.yaml"
    assert words[-3:] == ["logger.wandb_enabled=true", "{unknown}", "grpo.seed={recipe}"]
    found = changed(recipe, words[5], words[6], words[7])
    assert found.get("logger.log_dir") == path
    assert found.get("logger.wandb.name") == "1e5"
    assert found.get("a.b") == f"{path}/deep"
    assert shlex.split(shlex.join(words)) == words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1, "00:00:00:01"),
        (59.9, "00:00:00:59"),
        (13500, "00:03:45:00"),
        (864000, "10:00:00:00"),
        (90061, "01:01:01:01"),
    ],
)
def test_a_time_limit_for_the_recipe(seconds: float, text: str, recipe: Resolved) -> None:
    assert must_save_by(seconds) == text
    found = changed(recipe, f"checkpointing.checkpoint_must_save_by={text}")
    assert found.get("checkpointing.checkpoint_must_save_by") == text


@pytest.mark.parametrize("seconds", [0, -1, 0.5, float("inf"), float("nan"), 1e12])
def test_a_time_limit_that_cannot_be_said_is_refused(seconds: float) -> None:
    with pytest.raises(Usage):
        must_save_by(seconds)


def test_a_word_is_taken_apart() -> None:
    assert split("++a.b=c=d")[1:] == ("++", "a.b", "c=d")
    assert split("~a")[1:] == ("~", "a", None)
