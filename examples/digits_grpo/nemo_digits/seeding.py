"""Random numbers that depend only on the seed, their purpose and a count.

No generator's state has to be saved: a resumed run draws what an uninterrupted one would have drawn.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What the numbers are for; each purpose has a stream of its own."""

    WEIGHTS = 0
    ORDER = 1
    SAMPLING = 2
    UPDATES = 3


def generator(seed: int, purpose: Purpose, count: int = 0) -> np.random.Generator:
    """The generator for a purpose at this count (the epoch, the step)."""
    return np.random.default_rng((seed, purpose, count))
