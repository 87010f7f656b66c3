"""The policy: one hidden layer that reads an image and gives a distribution over the ten digits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nemo_digits.data import PIXELS, Floats, Ints
from nemo_digits.seeding import Purpose, generator

DIGITS = 10
Weights = dict[str, Floats]


class Activations(NamedTuple):
    """What a forward pass leaves behind: hidden units (n, hidden) and log-probabilities (n, DIGITS)."""

    hidden: Floats
    logprobs: Floats


class Policy:
    """An answer is one token (digit) an image; images and tokens come flat, one row a token."""

    def __init__(self, weights: Weights, temperature: float) -> None:
        self.weights = weights
        self.temperature = temperature

    @classmethod
    def initial(cls, hidden_size: int, temperature: float, seed: int) -> Policy:
        """Random weights; the small output layer starts every digit at nearly the same probability."""
        rng = generator(seed, Purpose.WEIGHTS)
        layer1 = rng.standard_normal((PIXELS, hidden_size)) / np.sqrt(PIXELS)
        layer2 = rng.standard_normal((hidden_size, DIGITS)) * 0.1 / np.sqrt(hidden_size)
        weights = {"layer1": layer1, "bias1": np.zeros(hidden_size), "layer2": layer2, "bias2": np.zeros(DIGITS)}
        return cls({name: value.astype(np.float32) for name, value in weights.items()}, temperature)

    def forward(self, images: Floats) -> Activations:
        """Log-probabilities of every digit for images (n, PIXELS)."""
        hidden = np.tanh(images @ self.weights["layer1"] + self.weights["bias1"])
        logits = (hidden @ self.weights["layer2"] + self.weights["bias2"]) / np.float32(self.temperature)
        logits -= logits.max(axis=1, keepdims=True)
        return Activations(hidden, logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))

    def sample(self, images: Floats, group: int, rng: np.random.Generator) -> tuple[Ints, Floats]:
        """Draw a group of tokens for each image.

        Returns:
            The tokens (n, group) and their log-probabilities (n, group).
        """
        logprobs = self.forward(images).logprobs
        cumulated = np.exp(logprobs).cumsum(axis=1)
        draws = rng.random((len(images), group, 1), dtype=np.float32)
        # The sum may round to less than 1: the last digit takes the rest.
        tokens = (draws > cumulated[:, None, :-1]).sum(axis=2)
        return tokens, np.take_along_axis(logprobs, tokens, axis=1)

    def greedy(self, images: Floats) -> Ints:
        """The likeliest token of each image."""
        tokens: Ints = self.forward(images).logprobs.argmax(axis=1)
        return tokens

    def gradient(self, images: Floats, tokens: Ints, seen: Activations, slope: Floats) -> Weights:
        """Back-propagate the loss's slope with respect to each token's log-probability (n,) to the weights."""
        logits = -np.exp(seen.logprobs) * slope[:, None]
        logits[np.arange(len(tokens)), tokens] += slope
        logits /= np.float32(self.temperature)
        hidden = (logits @ self.weights["layer2"].T) * (1 - seen.hidden**2)
        return {
            "layer1": images.T @ hidden,
            "bias1": hidden.sum(axis=0),
            "layer2": seen.hidden.T @ logits,
            "bias2": logits.sum(axis=0),
        }


def pick(logprobs: Floats, tokens: Ints) -> Floats:
    """The log-probability (n,) of each row's token."""
    return logprobs[np.arange(len(tokens)), tokens]
