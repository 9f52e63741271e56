"""Lays out on the CPU what a step reads in which each sequence has one token."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from headway.kernels.cpu import default_kernels

_NO_ROOM = 1


@dataclass(frozen=True, slots=True)
class DecodeInputs:
    """The inputs of a decode step, on the CPU; all contiguous.

    Attributes:
        token_ids, positions, slot_mapping: [rows] int64.
        block_tables: [rows, blocks] int32.
        seq_lens: [rows] int32.
    """

    token_ids: Tensor
    positions: Tensor
    slot_mapping: Tensor
    block_tables: Tensor
    seq_lens: Tensor

    def load(
        self,
        token_ids: NDArray[np.int32],
        first_positions: NDArray[np.int32],
        blocks: NDArray[np.int32],
        *,
        block_size: int,
    ) -> bool:
        """Lays out a step in the first rows; False if it has more rows, or longer tables, than there is room for.

        Args:
            token_ids, first_positions: [n], of each sequence its token, and where that stands.
            blocks: of each sequence those up to its token's, one sequence after the other.

        Raises:
            ValueError: there are more blocks, or fewer, than the positions need.
        """
        if len(first_positions) > len(self.token_ids) or len(token_ids) != len(first_positions):
            return False
        fault = default_kernels().decode_inputs(
            (token_ids, first_positions, blocks),
            block_size=block_size,
            token_ids=self.token_ids,
            positions=self.positions,
            slot_mapping=self.slot_mapping,
            block_tables=self.block_tables,
            seq_lens=self.seq_lens,
        )
        if fault > _NO_ROOM:
            raise ValueError(f"blocks must hold what the positions need; it has {len(blocks)}")
        return fault == 0
