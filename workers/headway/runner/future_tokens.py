"""Tokens that a step takes from the one before it where that has sampled them: the host does not know them yet."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.kernels import to_device


@dataclass(frozen=True, slots=True)
class FutureTokens:
    """
    Attributes:
        rows: [n] int64, which of the step's tokens they are.
        token_ids: [n] int64, on the same device.
    """

    rows: Tensor
    token_ids: Tensor

    @classmethod
    def of(cls, rows: NDArray[np.int64], *, sampled: Tensor, sources: list[int]) -> "FutureTokens":
        """
        Args:
            sampled: [S] int64, tokens of the step before.
            sources: [n], which of them goes to each row.
        """
        device = sampled.device
        chosen = sampled.index_select(0, to_device(torch.tensor(sources), device))
        return cls(to_device(torch.from_numpy(rows), device), chosen)

    def fill(self, token_ids: Tensor) -> None:
        """Puts them where the step reads its tokens, [T] int64."""
        token_ids.index_copy_(0, self.rows, self.token_ids)
