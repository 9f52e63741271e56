"""Buffers that hold the inputs of decode steps at fixed addresses, for steps that are launched again and again."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.kernels import DecodeInputs, DecodeTable, staged
from headway.models.attention import AttentionContext, Decodes
from headway.runner.inputs import StepInput

_NO_SLOT: Final = -1  # of rows that only pad: their keys and values are not kept


class StepBuffers:
    """Room for the largest batch; smaller ones have its first rows.

    Attributes:
        token_ids: [max rows] int64.
    """

    def __init__(self, *, max_num_rows: int, max_num_blocks: int, device: torch.device) -> None:
        self.token_ids = torch.zeros(max_num_rows, dtype=torch.int64, device=device)
        self._positions = torch.zeros_like(self.token_ids)
        self._slot_mapping = torch.full_like(self.token_ids, _NO_SLOT)
        self._block_tables = torch.zeros((max_num_rows, max_num_blocks), dtype=torch.int32, device=device)
        self._seq_lens = torch.zeros(max_num_rows, dtype=torch.int32, device=device)
        self._query_start = torch.arange(max_num_rows + 1, dtype=torch.int32, device=device)

    @property
    def max_num_rows(self) -> int:
        return len(self.token_ids)

    @property
    def inputs(self) -> DecodeInputs:
        """The whole buffers, for steps that are laid out on the CPU."""
        return DecodeInputs(self.token_ids, self._positions, self._slot_mapping, self._block_tables, self._seq_lens)

    def has_room(self, step: StepInput) -> bool:
        """Whether the step's rows and block tables fit."""
        num_rows, width = self._block_tables.shape
        return bool(len(step.token_ids) <= num_rows and step.block_tables.shape[1] <= width)

    def load(self, step: StepInput, *, num_rows: int) -> None:
        """Starts to copy a decode step, padded to `num_rows` with rows that see nothing and leave nothing behind."""
        _load(self.token_ids, _padded(step.token_ids, num_rows))
        _load(self._positions, _padded(step.positions, num_rows))
        _load(self._slot_mapping, _padded(step.slot_mapping, num_rows, padding=_NO_SLOT))
        _load(self._block_tables, step.block_tables)

    def planned_context(self, num_rows: int, *, tables: Mapping[int | None, DecodeTable]) -> AttentionContext:
        """Returns the attention context of the first rows, whose attention was planned."""
        return replace(
            self.context(num_rows),
            block_tables=self._block_tables[:0],
            seq_lens=self._seq_lens[:0],
            query_start=self._query_start[:0],
            decodes=Decodes(num_rows, self._block_tables[:num_rows], tables),
        )

    def context(self, num_rows: int) -> AttentionContext:
        """Returns the attention context of the first rows, none of them padding."""
        positions = self._positions[:num_rows]
        return AttentionContext(
            positions=positions,
            slot_mapping=self._slot_mapping[:num_rows],
            block_tables=self._block_tables[:num_rows],
            seq_lens=self._seq_lens[:num_rows],
            query_start=self._query_start[: num_rows + 1],
            own_positions=positions,
        )


def _load(column: Tensor, values: NDArray[Any]) -> None:
    """Starts to copy values to the first rows, and there to the first columns."""
    room = tuple(map(slice, values.shape))
    column[room].copy_(staged(torch.from_numpy(values), column.device), non_blocking=True)


def _padded(values: NDArray[np.int64], num_rows: int, *, padding: int = 0) -> NDArray[np.int64]:
    num_missing = num_rows - len(values)
    return np.pad(values, (0, num_missing), constant_values=padding) if num_missing else values
