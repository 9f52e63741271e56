"""Places the tokens of a step's sequences in one shard of the KV cache (thesis section 4.4)."""

import numpy as np
from numpy.typing import NDArray

from headway.core.parallel_config import Span


class ShardView:
    """A shard holds some of each sequence's blocks. Here their tokens stand one behind the other, without gaps.

    Args:
        tables: [B, most blocks] int32, every block of every sequence, padded.
        num_blocks: [B], of each sequence.
        blocks: those of this shard.
    """

    def __init__(
        self, tables: NDArray[np.int32], num_blocks: NDArray[np.int64], *, blocks: Span, block_size: int
    ) -> None:
        self._tables = tables
        self._blocks = blocks
        self._block_size = block_size
        # One column more, so that the position behind the last block can be looked up too.
        self._is_here = np.zeros((len(tables), tables.shape[1] + 1), np.bool_)
        is_used = np.arange(tables.shape[1]) < num_blocks[:, None]
        self._is_here[:, :-1] = is_used & (tables >= blocks.start) & (tables < blocks.stop)
        self._num_before = np.zeros(self._is_here.shape, np.int64)
        np.cumsum(self._is_here[:, :-1], axis=1, out=self._num_before[:, 1:])

    def block_tables(self) -> NDArray[np.int32]:
        """[B, most blocks here] int32, the blocks here in the order of their tokens, from 0 on, padded with zeros."""
        counts = self._num_before[:, -1]
        tables = np.zeros((len(counts), int(counts.max(initial=0))), np.int32)
        own = self._tables[self._is_here[:, :-1]] - self._blocks.start
        tables[np.arange(tables.shape[1]) < counts[:, None]] = own
        return tables

    def count_before(self, sequences: NDArray[np.int64], positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """[n] How many of a sequence's tokens before a position lie here."""
        columns, offsets = np.divmod(positions, self._block_size)
        whole = self._num_before[sequences, columns] * self._block_size
        return whole + np.where(self._is_here[sequences, columns], offsets, 0)

    def slots(self, sequences: NDArray[np.int64], positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """[n] Where the token at a position goes, counted from the first slot here; -1 where it lies elsewhere."""
        columns, offsets = np.divmod(positions, self._block_size)
        slots = (self._tables[sequences, columns] - np.int64(self._blocks.start)) * self._block_size + offsets
        return np.where(self._is_here[sequences, columns], slots, -1)
