"""Which program trains a recipe: its test script says, else the sections of its config do.

Facts: every recipe below `examples/configs/recipes/<llm|vlm>` has a script of the same name below
`tests/test_suites` (NeMo-RL `tests/test_suites/llm/common.env`), which is the only map that the project keeps.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

RECIPES = "examples/configs/recipes/"
SUITES = "tests/test_suites/"
SECTIONS = ("sft", "dpo", "rm", "ppo", "distillation", "grpo")
GRPO, SFT, VLM_SFT = "examples/run_grpo.py", "examples/run_sft.py", "examples/run_vlm_sft.py"
MAX_DELEGATIONS = 5
_DEFAULT = re.compile(r"""path\.join\(\s*os\.path\.dirname\(__file__\),((?:\s*["'][\w./-]+["'],?)+)\s*\)""")
_VISION = re.compile(r"(?<![a-z])a?vlm(?![a-z])")
_PROGRAM = re.compile(r"(?<![\w/])(examples/(?:\w+/)*run_(?!eval\b)\w+\.py)\b")
_DELEGATE = re.compile(r"""["']?\$\{?SCRIPT_DIR\}?/([\w.+-]+\.sh)""")
_BASE = re.compile(r"-tq_(?:simple|mooncake)$")  # wrappers that run the script of the recipe they are made from
_SET = re.compile(r"^\s+((?:\+\+|\+|~)?[A-Za-z_][\w.]*=\S+)\s*\\?\s*$")
_SETTING = re.compile(r"^([A-Z_]+)=(\d+)\s*(?:#.*)?$", re.MULTILINE)
_VARIABLE = re.compile(r"\$\{?([A-Z_]+)\}?")
_OURS = ("logger.", "checkpointing.checkpoint_dir=", "checkpointing.enabled=")


class Entry(NamedTuple):
    """The program of a recipe. `path` is relative to the checkout, None when nothing says which it is."""

    path: str | None
    where: str  # `file:line` of the script that names it, or `rule: ...`
    twin: str = ""  # the recipe's test script, relative
    words: tuple[str, ...] = ()  # override words that script gives the program beyond directories and loggers


def algorithm(values: Mapping[str, Any]) -> str:
    """Return the section that holds the algorithm's settings: sft, dpo, rm, ppo, distillation or grpo; else ``."""
    return next((name for name in SECTIONS if isinstance(values.get(name), Mapping)), "")


def uses_gym(values: Mapping[str, Any]) -> bool:
    """Tell whether the recipe's environments run in NeMo-Gym."""
    env = values.get("env")
    return isinstance(env, Mapping) and bool(env.get("should_use_nemo_gym"))


def rule(recipe: str, values: Mapping[str, Any]) -> str | None:
    """Return the program that a resolved recipe needs, judged by its sections; None for none of them.

    Args:
        recipe: its path relative to the checkout; recipes of models that see live in `recipes/vlm`, most of them.
        values: its resolved values.
    """
    section = algorithm(values)
    gym = uses_gym(values)
    if section == "grpo":
        if gym:
            return "examples/nemo_gym/run_grpo_nemo_gym.py"
        if isinstance(values.get("async_rl"), Mapping):
            return "examples/run_grpo_single_controller.py"
        return "examples/run_vlm_grpo.py" if recipe.startswith(f"{RECIPES}vlm/") or _sees(values) else GRPO
    if section == "distillation":
        if isinstance(values.get("teachers"), list):
            return "examples/run_xtoken_off_policy_distillation.py"
        return "examples/nemo_gym/run_distillation_nemo_gym.py" if gym else "examples/run_distillation.py"
    if section:
        return f"examples/run_{section}.py"
    return "examples/run_eval.py" if isinstance(values.get("eval"), Mapping) else None


def _sees(values: Mapping[str, Any]) -> bool:
    """Tell whether images or sound reach the model, by the processor of its data."""
    data = values.get("data")
    parts = list(data.values()) if isinstance(data, Mapping) else []
    parts = [one for part in parts for one in (part if isinstance(part, list) else [part])]
    return any(isinstance(part, Mapping) and str(part.get("processor")).startswith("vlm_") for part in parts)


def find(repo: str, recipe: str, values: Mapping[str, Any], files: Sequence[str] = ()) -> Entry:
    """Return the program that trains `recipe`, where that file exists.

    Its test script's; else the rule's; where that says no more than the algorithm, the one whose own default is the
    recipe or its nearest parent.

    Args:
        repo: the checkout.
        recipe: its path relative to the checkout.
        values: its resolved values.
        files: the recipe and its parents, nearest first, relative to the checkout.
    """
    twin = twin_of(recipe)
    if twin and os.path.isfile(os.path.join(repo, twin)):
        found = _from_script(repo, twin)
        if found is not None:
            return Entry(found[0], found[1], twin, found[2])
    path = rule(recipe, values)
    if path is None:
        return Entry(None, "", twin if twin and os.path.isfile(os.path.join(repo, twin)) else "")
    if path in (GRPO, SFT):
        closer = _by_default(repo, path, files)
        if closer is not None:
            return Entry(*closer)
    if not os.path.isfile(os.path.join(repo, path)):
        return Entry(None, f"rule: {path}, which this repository does not have")
    return Entry(
        path, f"rule: section `{algorithm(values) or 'eval'}`" + (" with NeMo-Gym" if uses_gym(values) else "")
    )


def _by_default(repo: str, path: str, files: Sequence[str]) -> tuple[str, str] | None:
    """The program, and where that is said, whose default is the nearest file of a recipe that is any program's."""
    defaults: dict[str, list[tuple[str, str]]] = {}
    for program in sorted(glob.glob("examples/run_*.py", root_dir=repo)):
        try:
            with open(os.path.join(repo, program), encoding="utf-8") as file:
                text = file.read()
        except (OSError, UnicodeDecodeError):
            continue
        for found in _DEFAULT.finditer(text):
            config = os.path.join("examples", *re.findall(r"[\w./-]+", found[1]))
            line = text.count("\n", 0, found.start(1)) + 1
            defaults.setdefault(config, []).append((program, f"its default: {program}:{line}"))
    for name in files:
        if path == SFT and _VISION.search(os.path.basename(name)) and os.path.isfile(os.path.join(repo, VLM_SFT)):
            return VLM_SFT, f"rule: section `sft` of {name}"
        named = defaults.get(name)
        if named:
            return named[0] if len(named) == 1 and named[0][0] != path else None
    return None


def twin_of(recipe: str) -> str:
    """Return where the test script of a recipe would be, `` for recipes that have none by convention."""
    if not recipe.startswith(RECIPES):
        return ""
    return f"{SUITES}{os.path.splitext(recipe[len(RECIPES) :])[0]}.sh"


def _from_script(repo: str, twin: str, depth: int = 0) -> tuple[str, str, tuple[str, ...]] | None:
    """The program that a script starts, followed through the scripts it hands over to."""
    try:
        with open(os.path.join(repo, twin), encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    handed = ""
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("#"):
            continue
        program = _PROGRAM.search(line)
        if program and os.path.isfile(os.path.join(repo, program[1])):
            return program[1], f"{twin}:{number}", _words(lines[number:], settings(repo, twin))
        to = _DELEGATE.search(line)
        if to and re.match(r"\s*(?:exec|bash|source|\.|[\"'$])", line):
            handed = to[1]
        elif "$BASE_RECIPE.sh" in line or "${BASE_RECIPE}.sh" in line:
            handed = _BASE.sub("", os.path.splitext(os.path.basename(twin))[0]) + ".sh"
    folder = os.path.dirname(twin)
    if not handed or depth >= MAX_DELEGATIONS or f"{folder}/{handed}" == twin:
        return None
    return _from_script(repo, f"{folder}/{handed}", depth + 1)


def settings(repo: str, twin: str) -> dict[str, str]:
    """Return the plain `NAME=123` lines of a test script: NUM_NODES, MAX_STEPS, NUM_MINUTES and the like."""
    try:
        with open(os.path.join(repo, twin), encoding="utf-8") as file:
            return dict(_SETTING.findall(file.read()))
    except (OSError, UnicodeDecodeError):
        return {}


def _words(lines: list[str], known: Mapping[str, str]) -> tuple[str, ...]:
    """The override words on the continued lines behind the program's own line, with the script's settings put in."""
    words: list[str] = []
    for line in lines:
        found = _SET.match(line)
        if found and not found[1].startswith(_OURS):
            words.append(_VARIABLE.sub(lambda name: known.get(name[1], name[0]), found[1]))
        if not line.rstrip().endswith("\\"):
            break
    return tuple(words)
