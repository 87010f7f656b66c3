"""Adam, with the gradient clipped to a largest norm."""

from __future__ import annotations

import numpy as np

from nemo_digits.policy import Weights
from nemo_digits.schema import OptimizerKwargs


class Adam:
    """Adam (Kingma and Ba, 2015) over a dictionary of weights."""

    def __init__(self, config: OptimizerKwargs, weights: Weights) -> None:
        self.config = config
        self.updates = 0
        self.mean = {name: np.zeros_like(value) for name, value in weights.items()}
        self.square = {name: np.zeros_like(value) for name, value in weights.items()}

    def update(self, weights: Weights, gradient: Weights) -> None:
        """Change the weights in place by one step down the gradient."""
        self.updates += 1
        beta1, beta2 = self.config.betas
        rate = self.config.lr * np.sqrt(1 - beta2**self.updates) / (1 - beta1**self.updates)
        for name, slope in gradient.items():
            self.mean[name] += np.float32(1 - beta1) * (slope - self.mean[name])
            self.square[name] += np.float32(1 - beta2) * (slope**2 - self.square[name])
            weights[name] -= np.float32(rate) * self.mean[name] / (np.sqrt(self.square[name]) + self.config.eps)


def clip(gradient: Weights, largest: float) -> float:
    """Scale the gradient in place so that its norm is at most `largest`; returns the norm it had."""
    norm = float(np.sqrt(sum(float((slope**2).sum()) for slope in gradient.values())))
    if norm > largest:
        for slope in gradient.values():
            slope *= np.float32(largest / norm)
    return norm
