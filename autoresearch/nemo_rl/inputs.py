"""What a recipe reads: models, tokenizer and data sets, and whether they are here already."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from autoresearch.nemo_rl.resolve import Resolved

# Hub repositories behind NeMo-RL's built-in data set names (nemo_rl/data/datasets at 7ea279a).
BUILT_IN = {
    "AIME2024": "HuggingFaceH4/aime_2024",
    "AIME2025": "opencompass/AIME2025",
    "AIME2026": "MathArena/aime_2026",
    "DAPOMath17K": "BytedTsinghua-SIA/DAPO-Math-17k",
    "DAPOMathAIME2024": "BytedTsinghua-SIA/AIME-2024",
    "DeepScaler": "agentica-org/DeepScaleR-Preview-Dataset",
    "GSM8K": "openai/gsm8k",
    "HelpSteer3": "nvidia/HelpSteer3",
    "NuminaMath-1.5": "AI-MO/NuminaMath-1.5",
    "OpenMathInstruct-2": "nvidia/OpenMathInstruct-2",
    "OpenR1-Math-220k": "open-r1/OpenR1-Math-220k",
    "avqa": "gijs/avqa-processed",
    "geometry3k": "hiyouga/geometry3k",
    "gsm8k": "openai/gsm8k",
    "refcoco": "jxu124/refcoco",
    "squad": "rajpurkar/squad",
    "tulu3_sft_mixture": "allenai/tulu-3-sft-mixture",
}
GATED = ("meta-llama/", "google/gemma", "mistralai/")  # owners whose models ask for a token
_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_DATA_FILE = (".json", ".jsonl", ".parquet", ".csv", ".arrow", ".txt")


class Input(NamedTuple):
    """One thing that a run reads.

    `kind`: `hub` (a name on the Hugging Face hub), `path` (on this machine), `url`, `built-in` (a data set class of the
    project that is not a hub name), or `placeholder` (the recipe leaves it to the user).
    `present`: whether it is here: the path exists, or the cache holds the name; None where that cannot be told.
    """

    role: str  # model, tokenizer, teacher, train, validation, prompt, ...
    name: str
    kind: str
    present: bool | None
    where: str  # file:line
    source: str = ""  # the hub name behind a built-in data set


def hub_cache(env: Mapping[str, str], cache_root: str | None) -> str:
    """Return the directory of the Hugging Face hub cache that a run would use.

    Args:
        env: the environment of the run.
        cache_root: autoresearch's shared cache, whose `huggingface/hub` it then is; None to go by `env` alone.
    """
    if cache_root:
        return os.path.join(cache_root, "huggingface", "hub")
    home = env.get("HF_HOME") or os.path.join(
        env.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "huggingface"
    )
    return env.get("HF_HUB_CACHE") or os.path.join(home, "hub")


def cached(hub: str, kind: str, name: str) -> bool:
    """Tell whether the hub cache at `hub` holds a snapshot of `name`; `kind` is `models` or `datasets`."""
    snapshots = os.path.join(hub, f"{kind}--{name.replace('/', '--')}", "snapshots")
    try:
        return any(os.listdir(entry.path) for entry in os.scandir(snapshots) if entry.is_dir())
    except OSError:
        return False


def classify(resolved: Resolved, name: str, hub: str, kind: str, role: str, key: str) -> Input:
    """Say what `name` is, a path or a hub name, and whether it is here. `kind` is `models` or `datasets`."""
    where = resolved.where(key)
    if name.startswith(("/path/to", "path/to")) or name in ("???", "") or " " in name:
        return Input(role, name, "placeholder", False, where)
    if "://" in name:
        return Input(role, name, "url", None, where)
    path = os.path.join(resolved.repo, os.path.expanduser(name))
    if name.startswith(("/", "./", "../", "~")) or os.path.exists(path) or name.endswith(_DATA_FILE):
        return Input(role, name, "path", os.path.exists(path), where)
    if "${" in name:
        return Input(role, name, "path", None, where)
    if _HUB.fullmatch(name) or kind == "models":
        return Input(role, name, "hub", cached(hub, kind, name), where)
    return Input(role, name, "built-in", None, where)


def models(resolved: Resolved, hub: str) -> list[Input]:
    """Return the models and tokenizers that the recipe names, the policy first, each name once for a role."""
    found: list[Input] = []
    seen: set[tuple[str, str]] = set()
    for role, key in _model_keys(resolved):
        name = resolved.get(key)
        if isinstance(name, str) and (role, name) not in seen:
            seen.add((role, name))
            found.append(classify(resolved, name, hub, "models", role, key))
    return found


def _model_keys(resolved: Resolved) -> Iterator[tuple[str, str]]:
    yield "model", "policy.model_name"
    yield "tokenizer", "policy.tokenizer.name"
    if resolved.get("policy.draft.enabled"):
        yield "draft model", "policy.draft.model_name"
    if resolved.get("ppo") is not None:
        yield "value model", "value.model_name"
    yield "teacher", "teacher.model_name"
    for index, _ in enumerate(resolved.get("teachers") or ()):
        yield "teacher", f"teachers.{index}.model_name"
        yield "projection matrix", f"teachers.{index}.projection_matrix_path"
    for name in resolved.get("on_policy_distillation.teacher_model_by_agent_name") or ():
        yield "teacher", f"on_policy_distillation.teacher_model_by_agent_name.{name}"
    if resolved.get("env.reward_model.enabled", True):
        yield "reward model", "env.reward_model.model_name"
    yield "model", "generation.model_name"  # evaluations have no policy section


def datasets(resolved: Resolved, hub: str) -> list[Input]:
    """Return the training and validation data that the recipe names, and its prompt files."""
    found: list[Input] = []
    for role in ("train", "validation"):
        given = resolved.get(f"data.{role}")
        many = given if isinstance(given, list) else [given]
        for index, one in enumerate(many):
            if isinstance(one, Mapping):
                key = f"data.{role}.{index}" if isinstance(given, list) else f"data.{role}"
                found.extend(_one_dataset(resolved, hub, role, key, one))
    if not found and isinstance(resolved.get("data.dataset_name"), str):
        found.extend(_one_dataset(resolved, hub, "data", "data", resolved.get("data")))
    for key in ("prompt_file", "system_prompt_file"):
        for above in ("data.default", "data"):
            name = resolved.get(f"{above}.{key}")
            if isinstance(name, str):
                here = os.path.exists(os.path.join(resolved.repo, name))
                found.append(Input("prompt", name, "path", here, resolved.where(f"{above}.{key}")))
    return found


def _one_dataset(resolved: Resolved, hub: str, role: str, key: str, one: Mapping[str, Any]) -> Iterator[Input]:
    path = one.get("data_path", resolved.get("data.default.data_path"))
    name = one.get("dataset_name", resolved.get("data.default.dataset_name"))
    if isinstance(path, str):
        yield classify(resolved, path, hub, "datasets", role, f"{key}.data_path")
    elif isinstance(name, str):
        below = key if "dataset_name" in one else "data.default"
        source = BUILT_IN.get(name, "")
        if source:
            here = cached(hub, "datasets", source)
            yield Input(role, name, "hub", here, resolved.where(f"{below}.dataset_name"), source)
        else:
            yield classify(resolved, name, hub, "datasets", role, f"{below}.dataset_name")
