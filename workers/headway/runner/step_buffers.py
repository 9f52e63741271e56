"""What decode steps read that are launched again and again, in memory that stays where it is."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.kernels import DecodeTable, staged
from headway.models.attention import AttentionContext, Decodes
from headway.runner.inputs import StepInput

_NO_SLOT: Final = -1  # of rows that only pad: their keys and values are not kept


class _Column:
    """One of the arrays.

    Attributes:
        tensor: all of it.
    """

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self._on_host = tensor.numpy() if tensor.is_cpu else None

    def load(self, values: NDArray[Any]) -> None:
        """Starts to copy values to its first rows, and there to the first columns."""
        room = tuple(map(slice, values.shape))
        if self._on_host is not None:
            self._on_host[room] = values
        else:
            self.tensor[room].copy_(staged(torch.from_numpy(values), self.tensor.device), non_blocking=True)


class StepBuffers:
    """Room for the largest batch; smaller ones have its first rows."""

    def __init__(self, *, max_num_rows: int, max_num_blocks: int, device: torch.device) -> None:
        token_ids = torch.zeros(max_num_rows, dtype=torch.int64, device=device)
        self._token_ids = _Column(token_ids)
        self._positions = _Column(torch.zeros_like(token_ids))
        self._slot_mapping = _Column(torch.full_like(token_ids, _NO_SLOT))
        self._block_tables = _Column(torch.zeros((max_num_rows, max_num_blocks), dtype=torch.int32, device=device))
        self._seq_lens = _Column(torch.zeros(max_num_rows, dtype=torch.int32, device=device))
        self._query_start = torch.arange(max_num_rows + 1, dtype=torch.int32, device=device)

    @property
    def token_ids(self) -> Tensor:
        """[max rows] int64."""
        return self._token_ids.tensor

    @property
    def max_num_rows(self) -> int:
        return len(self.token_ids)

    def has_room(self, step: StepInput) -> bool:
        """For the step's rows and block tables."""
        num_rows, width = self._block_tables.tensor.shape
        return bool(len(step.token_ids) <= num_rows and step.block_tables.shape[1] <= width)

    def load(self, step: StepInput, *, num_rows: int) -> None:
        """Starts to copy a decode step, padded to `num_rows` with rows that see nothing and leave nothing behind."""
        self._token_ids.load(_padded(step.token_ids, num_rows))
        self._positions.load(_padded(step.positions, num_rows))
        self._slot_mapping.load(_padded(step.slot_mapping, num_rows, padding=_NO_SLOT))
        self._block_tables.load(step.block_tables)

    def load_lengths(self, step: StepInput) -> None:
        """Starts to copy what attention reads that is not planned."""
        self._seq_lens.load(step.seq_lens)

    def planned_context(self, num_rows: int, *, tables: Mapping[int | None, DecodeTable]) -> AttentionContext:
        """Of the first rows, whose attention was planned."""
        return replace(
            self.context(num_rows),
            block_tables=self._block_tables.tensor[:0],
            seq_lens=self._seq_lens.tensor[:0],
            query_start=self._query_start[:0],
            decodes=Decodes(num_rows, self._block_tables.tensor[:num_rows], tables),
        )

    def context(self, num_rows: int) -> AttentionContext:
        """Of the first rows, none of them padding."""
        positions = self._positions.tensor[:num_rows]
        return AttentionContext(
            positions=positions,
            slot_mapping=self._slot_mapping.tensor[:num_rows],
            block_tables=self._block_tables.tensor[:num_rows],
            seq_lens=self._seq_lens.tensor[:num_rows],
            query_start=self._query_start[: num_rows + 1],
            own_positions=positions,
        )


def _padded(values: NDArray[np.int64], num_rows: int, *, padding: int = 0) -> NDArray[np.int64]:
    num_missing = num_rows - len(values)
    return np.pad(values, (0, num_missing), constant_values=padding) if num_missing else values
