"""The handwritten digits as prompts: a prompt is a number, that is a row of images, and its answer the digits."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nemo_digits.schema import Data
from nemo_digits.seeding import Purpose, generator

DIGITS_FILE = Path(__file__).resolve().parent.parent / "data" / "digits.csv.gz"
PIXELS = 64
BRIGHTEST = np.float32(16)
IMAGES = 1797

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


class Digits(NamedTuple):
    """Single digits: images (n, PIXELS) and their labels (n,)."""

    images: Floats
    labels: Ints


class Prompts(NamedTuple):
    """Numbers: images (n, digits, PIXELS) and the right answers (n, digits)."""

    images: Floats
    answers: Ints

    def take(self, rows: Ints) -> Prompts:
        """The prompts with these indices."""
        return Prompts(self.images[rows], self.answers[rows])


def load_prompts(config: Data) -> tuple[Prompts, Prompts]:
    """Prompts for training and for validation, the same for every `grpo.seed`; they share no image."""
    rng = np.random.default_rng(config.seed)
    train, validation = _split(_read_digits(), config.num_validation_images, rng)
    return (
        _compose(train, config.num_train_prompts, config.digits_per_prompt, rng),
        _compose(validation, config.num_validation_prompts, config.digits_per_prompt, rng),
    )


def batches(count: int, size: int, seed: int, epoch: int) -> list[Ints]:
    """The indices of an epoch's batches in shuffled order; what does not fill a batch is left out."""
    order = generator(seed, Purpose.ORDER, epoch).permutation(count)
    return [order[start : start + size] for start in range(0, count - size + 1, size)]


def _read_digits() -> Digits:
    table = np.loadtxt(DIGITS_FILE, delimiter=",", dtype=np.float32)
    return Digits(table[:, :PIXELS] / BRIGHTEST, table[:, PIXELS].astype(np.int64))


def _split(digits: Digits, held_out: int, rng: np.random.Generator) -> tuple[Digits, Digits]:
    order = rng.permutation(IMAGES)
    train, validation = order[held_out:], order[:held_out]
    return (
        Digits(digits.images[train], digits.labels[train]),
        Digits(digits.images[validation], digits.labels[validation]),
    )


def _compose(digits: Digits, count: int, length: int, rng: np.random.Generator) -> Prompts:
    rows = rng.integers(len(digits.labels), size=(count, length))
    return Prompts(digits.images[rows], digits.labels[rows])
