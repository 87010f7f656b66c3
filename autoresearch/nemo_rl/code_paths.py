"""The code that a recipe runs through, for a reader who wants to change it."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator

from autoresearch.nemo_rl.entrypoint import Entry, algorithm, uses_gym
from autoresearch.nemo_rl.resolve import Resolved

ENVIRONMENTS = {
    "math": "math_environment.py",
    "math_multi_reward": "math_environment.py",
    "code": "code_environment.py",
    "code_jaccard": "code_jaccard_environment.py",
    "reward_model": "reward_model_environment.py",
    "dapo": "dapo_math_verifier.py",
    "nemo_gym": "nemo_gym.py",
}
GUIDES = {"distillation": "docs/guides/xtoken-off-policy-distillation.md"}


def worth_reading(resolved: Resolved, entry: Entry) -> list[str]:
    """Return the paths worth reading before changing something, relative to the checkout, all of them existing.

    The recipe and its parents, the entry point and its test script, the algorithm, models, environments, data
    processing and prompts that this recipe selects, NeMo-Gym's launch scripts where it is used, and the guides.
    """
    seen: dict[str, None] = {}
    for path in (*resolved.files, entry.path or "", entry.twin, *_by_config(resolved, entry)):
        if path and not path.startswith("/") and os.path.exists(os.path.join(resolved.repo, path)):
            seen.setdefault(path)
    return list(seen)


def _by_config(resolved: Resolved, entry: Entry) -> Iterator[str]:
    section, gym = algorithm(resolved.values), uses_gym(resolved.values)
    yield from _algorithm(resolved, entry, section)
    yield from _models(resolved)
    env = resolved.get("env")
    for name in env if isinstance(env, dict) else ():
        yield f"nemo_rl/environments/{ENVIRONMENTS.get(str(name), f'{name}_environment.py')}"
    if "vlm" in (entry.path or "") or resolved.recipe.startswith("examples/configs/recipes/vlm"):
        yield "nemo_rl/environments/vlm_environment.py"
    yield "nemo_rl/environments/rewards.py" if section in ("grpo", "ppo") else ""
    if gym:
        yield "nemo_rl/environments/nemo_gym.py"
        yield from sorted({os.path.dirname(file) for file in resolved.files if "nemo_gym" in file})
        yield from _below(resolved.repo, "examples/nemo_gym/**/*.sh", near=os.path.dirname(resolved.recipe))
    yield "nemo_rl/data/processors.py"
    for key in ("data.default.prompt_file", "data.default.system_prompt_file", "data.prompt_file"):
        yield str(resolved.get(key) or "")
    yield from _guides(resolved, section, gym)


def _algorithm(resolved: Resolved, entry: Entry, section: str) -> Iterator[str]:
    if entry.path and "single_controller" in entry.path:
        yield "nemo_rl/algorithms/single_controller.py"
    elif entry.path and "xtoken" in entry.path:
        yield "nemo_rl/algorithms/xtoken_off_policy_distillation.py"
    if section == "grpo" and resolved.get("data_plane.enabled"):
        yield "nemo_rl/algorithms/grpo_sync.py"
    yield f"nemo_rl/algorithms/{section}.py" if section else ""
    yield "nemo_rl/algorithms/loss"
    if section in ("grpo", "ppo"):
        yield "nemo_rl/algorithms/advantage_estimator.py"
        yield "nemo_rl/algorithms/reward_functions.py"
    if resolved.get(f"{section}.async_grpo.enabled") or resolved.get("async_rl") is not None:
        yield "nemo_rl/algorithms/async_utils"
    if resolved.get("on_policy_distillation"):
        yield "nemo_rl/algorithms/opd.py"


def _models(resolved: Resolved) -> Iterator[str]:
    backend = resolved.get("policy.generation.backend")
    if resolved.get("policy.megatron_cfg.enabled"):
        yield "nemo_rl/models/megatron"
        yield "nemo_rl/models/policy/workers/megatron_policy_worker.py"
    elif resolved.get("policy.dtensor_cfg._v2"):
        yield "nemo_rl/models/automodel"
        yield "nemo_rl/models/policy/workers/dtensor_policy_worker_v2.py"
    else:
        yield "nemo_rl/models/dtensor"
    yield "nemo_rl/models/policy/lm_policy.py"
    yield f"nemo_rl/models/generation/{backend}" if isinstance(backend, str) else ""
    yield "nemo_rl/models/value" if resolved.get("ppo") is not None else ""


def _guides(resolved: Resolved, section: str, gym: bool) -> Iterator[str]:
    name = resolved.recipe.lower()
    yield f"docs/guides/{section}.md" if section else ""
    yield GUIDES.get(section, "")
    yield "docs/guides/environments.md" if gym else ""
    for guide in _below(resolved.repo, "docs/guides/*.md"):
        topic = os.path.splitext(os.path.basename(guide))[0]
        if topic.replace("-", "") in name.replace("-", ""):
            yield guide
    yield "docs/guides/async-grpo.md" if resolved.get("grpo.async_grpo.enabled") else ""
    yield "docs/guides/single-controller.md" if resolved.get("async_rl") is not None else ""


def _below(repo: str, pattern: str, near: str = "") -> list[str]:
    """Files of the checkout that match; with `near`, those in that folder and the folders above it only."""
    found = sorted(glob.glob(pattern, root_dir=repo, recursive=True))
    return [path for path in found if not near or near.startswith(os.path.dirname(path))] if near else found
