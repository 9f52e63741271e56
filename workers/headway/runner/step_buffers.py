"""What captured decode steps read and write, in memory that stays where it is while its content changes."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.kernels import DecodeTable, staged
from headway.models.attention import AttentionContext, Decodes
from headway.runner.inputs import StepInput

_NO_SLOT: Final = -1  # of rows that only pad: their keys and values are not kept


class StepBuffers:
    """Room for the largest batch; smaller ones have its first rows.

    Attributes:
        token_ids: [max rows] int64.
        hidden: [max rows, width], what comes out.
    """

    def __init__(
        self, *, max_num_rows: int, max_num_blocks: int, width: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.token_ids = torch.zeros(max_num_rows, dtype=torch.int64, device=device)
        self.hidden = torch.zeros((max_num_rows, width), dtype=dtype, device=device)
        self._positions = torch.zeros_like(self.token_ids)
        self._slot_mapping = torch.full_like(self.token_ids, _NO_SLOT)
        self._block_tables = torch.zeros((max_num_rows, max_num_blocks), dtype=torch.int32, device=device)
        self._no_numbers = torch.zeros(0, dtype=torch.int32, device=device)

    def has_room(self, step: StepInput) -> bool:
        """For the step's block tables."""
        return bool(step.block_tables.shape[1] <= self._block_tables.shape[1])

    def load(self, step: StepInput, *, num_rows: int) -> None:
        """Starts to copy a decode step, padded to `num_rows` with rows that see nothing and leave nothing behind."""
        num_padding = num_rows - len(step.token_ids)
        _copy(self.token_ids, np.pad(step.token_ids, (0, num_padding)))
        _copy(self._positions, np.pad(step.positions, (0, num_padding)))
        _copy(self._slot_mapping, np.pad(step.slot_mapping, (0, num_padding), constant_values=_NO_SLOT))
        width = step.block_tables.shape[1]
        _copy(self._block_tables[:, :width], step.block_tables)

    def context(self, num_rows: int, *, tables: Mapping[int | None, DecodeTable]) -> AttentionContext:
        """Of the first rows, all of them decodes."""
        positions = self._positions[:num_rows]
        return AttentionContext(
            positions=positions,
            slot_mapping=self._slot_mapping[:num_rows],
            block_tables=self._block_tables[:0],
            seq_lens=self._no_numbers,
            query_start=self._no_numbers,
            own_positions=positions,
            decodes=Decodes(num_rows, self._block_tables[:num_rows], tables),
        )


def _copy(column: Tensor, values: NDArray[Any]) -> None:
    rows = column[: len(values)]
    rows.copy_(staged(torch.from_numpy(values), column.device), non_blocking=True)
