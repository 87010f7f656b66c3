"""Inheritance of recipes: every rule of NeMo-RL's loader, the checkout's own loader, and where each key was set."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoresearch.errors import Usage
from autoresearch.nemo_rl import checkout
from autoresearch.nemo_rl.compose import is_secret
from autoresearch.nemo_rl.resolve import find_recipe, resolve

SHAPE = Path(__file__).parent / "data" / "nemo_rl" / "shape"
Write = Callable[[dict[str, str]], Path]


@pytest.fixture
def write(hostile: Path) -> Write:
    """A factory: write files below a directory with an awkward name and return it."""

    def build(files: dict[str, str]) -> Path:
        for name, text in files.items():
            (hostile / name).parent.mkdir(parents=True, exist_ok=True)
            (hostile / name).write_text(text)
        return hostile

    return build


@pytest.fixture
def shape(hostile: Path) -> Path:
    """A copy of the small checkout in NeMo-RL's shape."""
    shutil.copytree(SHAPE, hostile / "shape")
    return hostile / "shape"


def values(repo: Path, recipe: str, **env: str) -> dict[str, Any]:
    """The resolved values of a recipe by the rules."""
    return resolve(str(repo), recipe, env=env, use_checkout=False).values


def test_the_child_wins_mappings_merge_and_lists_are_replaced(write: Write) -> None:
    repo = write(
        {
            "a.yaml": "m: {x: 1, y: 2}\nl: [1, 2, 3]\ns: old\n",
            "sub/b.yaml": "defaults: ../a.yaml\nm: {y: 3, z: 4}\nl: [9]\n",
        }
    )
    assert values(repo, "sub/b.yaml") == {"m": {"x": 1, "y": 3, "z": 4}, "l": [9], "s": "old"}


def test_several_parents_merge_from_left_to_right_and_depth_first(write: Write) -> None:
    repo = write(
        {
            "g.yaml": "v: g\nonly_g: 1\n",
            "a.yaml": "defaults: g.yaml\nv: a\nw: a\n",
            "b.yaml": "w: b\n",
            "c.yaml": "defaults: [a.yaml, b.yaml]\nu: c\n",
        }
    )
    found = resolve(str(repo), "c.yaml", env={}, use_checkout=False)
    assert found.values == {"v": "a", "only_g": 1, "w": "b", "u": "c"}
    assert found.files == ("c.yaml", "a.yaml", "g.yaml", "b.yaml")


def test_an_absolute_parent_is_taken_as_it_is(write: Write, tmp_path: Path) -> None:
    outside = tmp_path / "outside.yaml"
    outside.write_text("a: 1\n")
    repo = write({"r.yaml": f"defaults: {outside}\nb: 2\n"})
    found = resolve(str(repo), "r.yaml", env={}, use_checkout=False)
    assert found.values == {"a": 1, "b": 2}
    assert found.parents == (str(outside),)


def test_override_marker_replaces_on_the_top_level_only(write: Write) -> None:
    repo = write(
        {
            "a.yaml": "top: {x: 1}\ndeep: {in: {x: 1}}\n",
            "b.yaml": "defaults: a.yaml\ntop: {_override_: true, y: 2}\ndeep: {in: {_override_: true, y: 2}}\n",
        }
    )
    assert values(repo, "b.yaml") == {"top": {"y": 2}, "deep": {"in": {"x": 1, "_override_": True, "y": 2}}}


def test_override_marker_is_taken_out_of_a_parent_too(write: Write) -> None:
    repo = write({"a.yaml": "top: {_override_: true, y: 2}\n", "b.yaml": "defaults: a.yaml\ntop: {z: 3}\n"})
    assert values(repo, "b.yaml") == {"top": {"y": 2, "z": 3}}
    assert values(repo, "a.yaml") == {"top": {"_override_": True, "y": 2}}


def test_question_marks_of_a_child_erase_nothing(write: Write) -> None:
    repo = write({"a.yaml": "x: 1\n", "b.yaml": "defaults: a.yaml\nx: ???\ny: ???\n"})
    found = resolve(str(repo), "b.yaml", env={}, use_checkout=False)
    assert found.values == {"x": 1, "y": "???"}
    assert found.mandatory == ("y",)
    assert found.where("x") == "a.yaml:1"


def test_interpolations_follow_what_a_child_changes_and_arithmetic_works(write: Write) -> None:
    repo = write(
        {
            "a.yaml": "n: 4\nd:\n  m: ${mul:${n}, 2}\n  a: ${add:1,2}\n  q: ${div:9,2}\n"
            "  x: ${max:3,${n}}\n  r: ${.m}\n",
            "b.yaml": "defaults: a.yaml\nn: 5\n",
        }
    )
    assert values(repo, "b.yaml")["d"] == {"m": 10, "a": 3, "q": 4.5, "x": 5, "r": 10}


def test_numbers_and_dates_are_read_as_omegaconf_reads_them(write: Write) -> None:
    repo = write({"a.yaml": "f: 1e-5\nd: 2026-01-02\nt: 10:00:00:00\nz: 00:03:35:00\nn: yes\n"})
    assert values(repo, "a.yaml") == {"f": 1e-5, "d": "2026-01-02", "t": 2160000, "z": "00:03:35:00", "n": True}


def test_a_missing_environment_variable_is_named_and_the_rest_resolves(write: Write) -> None:
    repo = write({"a.yaml": "p:\n  d: ${oc.env:DATA_ROOT}/x\n  f: ${oc.env:OTHER,fallback}\n  n: 1\nq: ${p.n}\n"})
    found = resolve(str(repo), "a.yaml", env={}, use_checkout=False)
    assert found.missing_env == ("DATA_ROOT",)
    assert found.values == {"p": {"d": "${oc.env:DATA_ROOT}/x", "f": "fallback", "n": 1}, "q": 1}
    assert list(found.unresolved) == ["p.d"]
    assert values(repo, "a.yaml", DATA_ROOT="/d")["p"]["d"] == "/d/x"


def test_the_environment_of_this_process_is_not_read(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA_ROOT", "/wrong")
    repo = write({"a.yaml": "d: ${oc.env:DATA_ROOT}\n"})
    assert resolve(str(repo), "a.yaml", env={}, use_checkout=False).missing_env == ("DATA_ROOT",)


def test_the_value_of_a_secret_goes_nowhere(write: Write) -> None:
    repo = write({"a.yaml": "t: ${oc.env:HF_TOKEN}\n"})
    found = resolve(str(repo), "a.yaml", env={"HF_TOKEN": "hf_planted"}, use_checkout=False)
    assert "hf_planted" not in repr(found)
    assert found.secret_env == ("HF_TOKEN",)
    assert is_secret("WANDB_API_KEY")
    assert not is_secret("TOKENIZER_PATH")


def test_an_unknown_resolver_is_said_and_stops_nothing(write: Write) -> None:
    repo = write({"a.yaml": "x: ${user:}\ny: 1\n"})
    found = resolve(str(repo), "a.yaml", env={}, use_checkout=False)
    assert found.values == {"x": "${user:}", "y": 1}
    assert "user" in found.unresolved["x"]


def test_a_top_level_interpolation_of_another_file_fails_as_it_does_in_nemo_rl(write: Write) -> None:
    files = {"a.yaml": "x: 1\n", "b.yaml": "defaults: a.yaml\ny: ${x}\n"}
    repo = write(files)
    assert values(repo, "b.yaml") == {"x": 1, "y": 1}
    (repo / "nemo_rl").mkdir()
    with pytest.raises(Usage, match=r"b\.yaml"):
        values(repo, "b.yaml")


def test_each_key_knows_its_file_and_line(write: Write) -> None:
    repo = write(
        {
            "a.yaml": "# first\nm:\n  x: 1\n  y: 2\nl:\n  - k: 1\n  - k: 2\n",
            "b.yaml": "defaults: a.yaml\n\nm:\n  y: 3\n",
        }
    )
    found = resolve(str(repo), "b.yaml", env={}, use_checkout=False)
    assert found.where("m.x") == "a.yaml:3"
    assert found.where("m.y") == "b.yaml:4"
    assert found.where("l.1.k") == "a.yaml:7"
    assert found.where("m.x.deeper") == "a.yaml:3"
    assert found.where("nothing") == ""


def test_anchors_and_merge_keys_resolve_and_are_marked_where_they_are_written(write: Write) -> None:
    repo = write({"a.yaml": "base: &b\n  x: 1\n  y: 2\nuse:\n  <<: *b\n  y: 3\n"})
    found = resolve(str(repo), "a.yaml", env={}, use_checkout=False)
    assert found.values["use"] == {"x": 1, "y": 3}
    assert found.where("use.x") == "a.yaml:2"
    assert found.where("use.y") == "a.yaml:6"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"r.yaml": "defaults: r.yaml\n"}, "circle"),
        ({"r.yaml": "defaults: s.yaml\n", "s.yaml": "defaults: r.yaml\n"}, "circle"),
        ({"r.yaml": "a: 1\ndefaults: gone.yaml\n"}, r"gone\.yaml.*r\.yaml:2"),
        ({"r.yaml": "a: 1\na: 2\n"}, r"r\.yaml:2.*duplicate key"),
        ({"r.yaml": "a: [1\nb: 2\n"}, r"r\.yaml:\d"),
        ({"r.yaml": "- 1\n"}, "list"),
        ({"r.yaml": "just text\n"}, "str"),
        ({"r.yaml": "defaults: {a: 1}\n"}, r"r\.yaml:1.*neither"),
    ],
)
def test_a_recipe_that_cannot_be_read_says_file_and_line(write: Write, files: dict[str, str], message: str) -> None:
    repo = write(files)
    with pytest.raises(Usage, match=message):
        values(repo, "r.yaml")


def test_an_empty_recipe_has_no_values_and_binary_is_refused(write: Write) -> None:
    repo = write({"r.yaml": "# nothing\n"})
    assert values(repo, "r.yaml") == {}
    (repo / "b.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Usage):
        values(repo, "b.yaml")


def test_a_changed_file_is_read_again(write: Write) -> None:
    repo = write({"a.yaml": "x: 1\n", "b.yaml": "defaults: a.yaml\n"})
    assert values(repo, "b.yaml") == {"x": 1}
    (repo / "a.yaml").write_text("x: 22\n")
    assert values(repo, "b.yaml") == {"x": 22}


def test_a_recipe_is_found_by_path_by_name_and_never_outside(shape: Path, tmp_path: Path) -> None:
    path = "examples/configs/recipes/llm/grpo-tiny-2n8g.v1.yaml"
    full = os.path.realpath(shape / path)
    for name in (path, full, path.removesuffix(".yaml"), "grpo-tiny-2n8g.v1", "grpo-tiny-2n8g.v1.yaml"):
        assert find_recipe(str(shape), name) == full
    with pytest.raises(Usage, match=r"did you mean .*grpo-tiny-2n8g\.v1"):
        find_recipe(str(shape), "grpo-tiny-2n8g.v2")
    (tmp_path / "other.yaml").write_text("a: 1\n")
    (shape / "link.yaml").symlink_to(tmp_path / "other.yaml")
    for name in (str(tmp_path / "other.yaml"), "link.yaml", "../../other.yaml"):
        with pytest.raises(Usage, match="outside"):
            find_recipe(str(shape), name)
    for name in ("", "a\0b"):
        with pytest.raises(Usage):
            find_recipe(str(shape), name)


def test_the_checkouts_own_loader_runs_and_its_resolvers_count(shape: Path) -> None:
    recipe = shape / "examples/configs/recipes/llm/grpo-tiny-2n8g.v1.yaml"
    recipe.write_text(recipe.read_text() + "  loud: ${shout:ab}\n")
    found = resolve(str(shape), str(recipe), env={})
    assert (found.loader, found.notes, found.unresolved) == ("checkout", (), {})
    assert found.get("cluster.loud") == "AB"
    assert found.get("policy.tokens") == 2048
    by_rules = resolve(str(shape), str(recipe), env={}, use_checkout=False)
    assert by_rules.loader == "rules"
    assert list(by_rules.unresolved) == ["cluster.loud"]


def test_a_loader_with_other_rules_wins_and_that_is_said(shape: Path) -> None:
    loader = shape / checkout.LOADER
    loader.write_text(loader.read_text().replace("    return config\n", '    config["own"] = 1\n    return config\n'))
    found = resolve(str(shape), "grpo-tiny-2n8g.v1", env={})
    assert found.get("own") == 1
    assert "other rules" in found.notes[0]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import torch\n", "imports torch"),
        ("from nemo_rl.utils import x\n", "imports nemo_rl"),
        ("from . import x\n", r"imports \."),
        ("print('hello')\n", "more than define"),
        ("def (\n", "not valid"),
    ],
)
def test_a_loader_that_does_more_is_not_run(shape: Path, text: str, reason: str) -> None:
    (shape / checkout.LOADER).write_text(text)
    found = resolve(str(shape), "grpo-tiny-2n8g.v1", env={})
    assert found.loader == "rules"
    assert found.get("cluster.num_nodes") == 2
    assert len(found.notes) == 1
    assert re.search(reason, found.notes[0])


def test_a_loader_that_fails_or_hangs_leaves_the_rules(shape: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = shape / checkout.LOADER
    loader.write_text("def load_config(path):\n    raise ValueError('not today')\n")
    assert "not today" in resolve(str(shape), "grpo-tiny-2n8g.v1", env={}).notes[0]
    loader.write_text("import os\ndef load_config(path):\n    os._exit(3)\n")
    assert "exit 3" in resolve(str(shape), "grpo-tiny-2n8g.v1", env={}).notes[0]
    monkeypatch.setattr(checkout, "TIME_LIMIT_S", 0.5)
    loader.write_text("def load_config(path):\n    while True:\n        pass\n")
    assert "more than" in resolve(str(shape), "grpo-tiny-2n8g.v1", env={}).notes[0]


def test_the_loader_sees_no_secret_and_only_what_the_recipe_names(shape: Path, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    (shape / checkout.LOADER).write_text(
        "import os\nfrom omegaconf import OmegaConf\ndef load_config(path):\n"
        f"    open({str(seen)!r}, 'w').write(repr(dict(os.environ)))\n    return OmegaConf.load(path)\n"
    )
    (shape / "r.yaml").write_text("a: ${oc.env:DATA_ROOT}\nb: ${oc.env:HF_TOKEN}\n")
    env = {"DATA_ROOT": "/data", "HF_TOKEN": "hf_planted", "WANDB_API_KEY": "planted_too"}
    found = resolve(str(shape), "r.yaml", env=env)
    assert found.values == {"a": "/data", "b": "<HF_TOKEN>"}
    assert "/data" in seen.read_text()
    assert "planted" not in seen.read_text() + repr(found)


def test_printing_loaders_do_no_harm(shape: Path) -> None:
    loader = shape / checkout.LOADER
    loader.write_text(loader.read_text().replace("def load_config(path):", "def load_config(path):\n    print('loud')"))
    assert resolve(str(shape), "grpo-tiny-2n8g.v1", env={}).loader == "checkout"


SCALARS = st.one_of(st.integers(-99, 99), st.booleans(), st.none(), st.text("abc", min_size=1, max_size=3))
KEYS = st.sampled_from(["a", "b", "c"])
TREES = st.recursive(SCALARS, lambda below: st.dictionaries(KEYS, below, max_size=3) | st.lists(SCALARS, max_size=2))


@settings(max_examples=60)
@given(st.lists(st.dictionaries(KEYS, TREES, max_size=3), min_size=1, max_size=4))
def test_any_chain_merges_as_one_would_by_hand_and_every_leaf_has_a_line(
    tmp_path_factory: pytest.TempPathFactory, chain: list[dict[str, Any]]
) -> None:
    import json

    repo = tmp_path_factory.mktemp("chain")
    for index, data in enumerate(chain):
        head = {"defaults": f"{index - 1}.yaml"} if index else {}
        (repo / f"{index}.yaml").write_text(json.dumps({**head, **data}))

    clash = False  # OmegaConf merges no list with a mapping

    def merged(base: Any, child: Any) -> Any:
        nonlocal clash
        clash |= {type(base), type(child)} == {dict, list}
        if isinstance(base, dict) and isinstance(child, dict):
            return {**base, **{key: merged(base[key], child[key]) if key in base else child[key] for key in child}}
        return child

    expected: Any = {}
    for data in chain:
        expected = merged(expected, data)
    if clash:
        with pytest.raises(Usage, match="cannot be merged"):
            resolve(str(repo), f"{len(chain) - 1}.yaml", env={}, use_checkout=False)
        return
    found = resolve(str(repo), f"{len(chain) - 1}.yaml", env={}, use_checkout=False)
    assert found.values == expected
    assert all(found.where(key) for key in expected)
