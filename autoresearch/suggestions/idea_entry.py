"""What an idea of the catalog is made of, and the recipe keys that more than one idea changes."""

from __future__ import annotations

from typing import NamedTuple

RL = ("grpo", "ppo")
ANY: tuple[str, ...] = ()
# The order of areas when gain and cost are equal: what makes everything else meaningful comes first.
AREAS = ("fix", "memory", "prompt", "rollout", "batch", "optim", "loss", "reward", "data", "train", "async", "parallel")


class Change(NamedTuple):
    """One key to change: the first of `keys` that the recipe has; `op` is *N, =VALUE, or +N."""

    keys: tuple[str, ...]
    op: str


class Entry(NamedTuple):
    """One idea. An entry with changes is offered where the recipe has the keys; one without is an edit of files."""

    key: str
    area: str
    change: str
    why: str
    gain: int  # 1 to 5, expected
    cost: int  # 1 to 5, complexity and machine time
    changes: tuple[Change, ...] = ()
    algorithms: tuple[str, ...] = ANY
    symptoms: tuple[str, ...] = ()
    least_gpus: int = 0
    speed: bool = False  # it makes runs faster or lets them fit, and changes the result little
    only_seen: bool = False  # not worth a run unless one of its symptoms was seen


def change(*keys: str, op: str) -> Change:
    """Return a change of the first of `keys` that the recipe has."""
    return Change(keys, op)


LR = ("policy.optimizer.kwargs.lr", "policy.megatron_cfg.optimizer.lr", "optimizer.lr", "lr")
LENGTH = "policy.max_total_sequence_length"
TOKENS = "policy.generation.max_new_tokens"
GLOBAL = "policy.train_global_batch_size"
MICRO = "policy.train_micro_batch_size"
PROMPTS = ("grpo.num_prompts_per_step", "ppo.num_prompts_per_step")
ANSWERS = ("grpo.num_generations_per_prompt", "ppo.num_generations_per_prompt")
