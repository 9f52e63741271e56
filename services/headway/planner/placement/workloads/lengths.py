"""Draws the lengths of prompts and outputs, where no trace gives them. Pure."""

import numpy as np
from numpy.typing import NDArray

MOST_TOKENS = 10**8


def draw_lengths(mean: float, cv: float, *, count: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """Draws numbers of tokens: Gamma distributed, rounded, 1 at least and `MOST_TOKENS` at most."""
    drawn = rng.gamma(cv**-2, mean * cv**2, count) if cv > 0 else np.full(count, mean)
    return np.clip(np.rint(drawn), 1, MOST_TOKENS).astype(np.int32)
