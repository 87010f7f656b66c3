"""The objective: advantages within a group, and the clipped policy-gradient loss with a penalty on drift."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nemo_digits.data import Floats
from nemo_digits.schema import LossFn


class Loss(NamedTuple):
    """The mean loss, and its slope (n,) with respect to each token's log-probability."""

    value: float
    slope: Floats


def advantages(rewards: Floats, *, normalize: bool, leave_one_out: bool) -> Floats:
    """How much better each answer is than its group: rewards (prompts, group) minus a baseline.

    A group whose answers are all right or all wrong has nothing to teach: its advantages are 0.
    """
    group = rewards.shape[1]
    total = rewards.sum(axis=1, keepdims=True)
    baseline = (total - rewards) / (group - 1) if leave_one_out else total / group
    advantage: Floats = rewards - baseline
    if normalize:
        spread = rewards.std(axis=1, keepdims=True, ddof=1)
        advantage = np.divide(advantage, spread, out=np.zeros_like(advantage), where=spread > 0)
    return advantage


def clipped_loss(new: Floats, old: Floats, reference: Floats, advantage: Floats, config: LossFn) -> Loss:
    """The loss over tokens, all arguments (n,): log-probabilities now, when sampled, and of the reference policy.

    The drift from the reference is the unbiased, never negative estimate exp(d) - d - 1 with d = reference - new.
    """
    ratio = np.exp(new - old)
    clipped = np.clip(ratio, 1 - config.ratio_clip_min, 1 + config.ratio_clip_max)
    surrogate = np.minimum(ratio * advantage, clipped * advantage)
    gap = np.clip(reference - new, -20, 20)  # exp() of more is beyond float32's use
    penalty = config.reference_policy_kl_penalty * (np.exp(gap) - gap - 1)
    # Where the clipped term is the smaller one it is constant, so the ratio has no slope.
    active = ratio * advantage <= clipped * advantage
    slope = -ratio * advantage * active + config.reference_policy_kl_penalty * (1 - np.exp(gap))
    return Loss(float((penalty - surrogate).mean()), (slope / len(new)).astype(np.float32))
