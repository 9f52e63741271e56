"""The partition of a step's rows over ranks that share the cache: each computes its rows outside attention."""

import numpy as np
import torch
from torch import Tensor

from headway.core.parallel_config import split
from headway.models.layout import CacheAxis
from headway.runner.step_message import Words


class RowPartition:
    """Contiguous parts of a step's rows, one a rank.

    Attributes:
        own: of this rank.
    """

    def __init__(self, num_rows: int, axis: CacheAxis) -> None:
        self._axis = axis
        self._spans = [split(num_rows, parts=axis.size, index=rank) for rank in range(axis.size)]
        self.own = self._spans[axis.rank]

    def pick(self, rows: Words) -> Words:
        """Returns those of the ascending `rows` that this rank computes, counted from its first row."""
        return rows[np.searchsorted(rows, self.own.start) : np.searchsorted(rows, self.own.stop)] - self.own.start

    def collect(self, values: Tensor | None, rows: Words, *, site: str) -> Tensor | None:
        """Gathers each rank's values for its part of the ascending `rows`, [own rows, ...], as one [rows, ...] at the
        first rank.

        Returns None at the other ranks, and where this rank has none of the values. `site` names the purpose in the
        counters.
        """
        if values is None or self._axis.size == 1:
            return values
        sizes = [
            int(np.searchsorted(rows, partition.stop) - np.searchsorted(rows, partition.start))
            for partition in self._spans
        ]
        gathered = self._axis.gather(values, sizes=sizes, site=site)
        return None if gathered is None else torch.cat(gathered)
