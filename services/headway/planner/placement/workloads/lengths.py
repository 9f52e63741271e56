"""Draws lengths of prompts and outputs, where no trace has them. Pure."""

import numpy as np
from numpy.typing import NDArray

MOST_TOKENS = 10**8


def draw_lengths(mean: float, cv: float, *, count: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """Draws `count` numbers of tokens: Gamma distributed, rounded, between 1 and `MOST_TOKENS`."""
    drawn = rng.gamma(cv**-2, mean * cv**2, count) if cv > 0 else np.full(count, mean)
    return np.clip(np.rint(drawn), 1, MOST_TOKENS).astype(np.int32)
