"""Shorter embeddings, for models that were trained to put what matters first (Matryoshka representations)."""

import numpy as np
from numpy.typing import NDArray

from headway.core.errors import InvalidArgumentError

MAX_INLINE_ROWS = 16
"""An answer with more vectors is made in another thread."""


def check_dimensions(dimensions: int | None, *, width: int) -> None:
    """InvalidArgumentError where embeddings of `width` have no first `dimensions`; None keeps them all."""
    if dimensions is not None and not 1 <= dimensions <= width:
        raise InvalidArgumentError(
            f"dimensions is {dimensions}; the model's embeddings have {width}.", field="dimensions"
        )


def shorten(vectors: NDArray[np.float32], dimensions: int | None) -> NDArray[np.float32]:
    """The first `dimensions` of each row of [B, width], scaled to length 1; all as they are for None."""
    if dimensions is None:
        return vectors
    short = vectors[:, :dimensions]
    lengths = np.linalg.norm(short, axis=1, keepdims=True)
    scaled: NDArray[np.float32] = short / np.maximum(lengths, np.finfo(np.float32).tiny)
    return scaled
