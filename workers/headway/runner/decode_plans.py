"""The split of a step's decode attention over a GPU, for each window of the model's layers."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from headway.core.model import ModelSpec
from headway.core.shard import ModelShard
from headway.kernels import DecodeRows, DecodeTable, decode_slots
from headway.models.model import DTYPES
from headway.runner.inputs import StepInput, Windows


def decode_rows(step: StepInput, window: int | None, *, num_decodes: int, num_rows: int) -> DecodeRows:
    """The keys that the first `num_decodes` sequences' only tokens see, and none for the rows after those."""
    firsts, ends = np.zeros((2, num_rows), np.int32)
    if step.key_spans:
        firsts[:num_decodes], ends[:num_decodes] = step.key_spans[window][:num_decodes].T
    else:
        ends[:num_decodes] = step.seq_lens[:num_decodes]
        if window is not None:
            np.maximum(ends - np.int32(window), 0, out=firsts)
    return DecodeRows(np.arange(num_rows, dtype=np.int32), firsts, ends, np.maximum(ends - 1, 0))


@dataclass(frozen=True, slots=True)
class DecodePlans:
    """One table for each window, in memory that stays where it is; all are for the same largest number of rows."""

    tables: Mapping[int | None, DecodeTable]

    @classmethod
    def allocate(
        cls, spec: ModelSpec, *, shard: ModelShard, windows: Windows, max_num_rows: int, device: torch.device
    ) -> "DecodePlans":
        num_heads, dtype = len(shard.attended_query_heads), DTYPES[spec.dtype]
        q = torch.empty((0, num_heads, spec.head_dim), dtype=dtype, device=device)
        k_cache = torch.empty((0, len(shard.cached_kv_heads), 0, spec.head_dim), dtype=dtype, device=device)
        num_slots = decode_slots(q, k_cache=k_cache)
        return cls(
            {
                window: DecodeTable.allocate(
                    num_rows=max_num_rows,
                    num_heads=num_heads,
                    head_dim=spec.head_dim,
                    num_slots=num_slots,
                    device=device,
                )
                for window in windows
            }
        )

    @property
    def max_num_rows(self) -> int:
        return min(table.num_rows for table in self.tables.values())

    def first(self, num_rows: int) -> "DecodePlans":
        """Returns the plans for steps with fewer rows, in the same memory."""
        return DecodePlans({window: table.first(num_rows) for window, table in self.tables.items()})

    def load(self, step: StepInput, *, num_decodes: int) -> None:
        """Plans a step's first sequences, which have one token each, once for all layers."""
        for window, table in self.tables.items():
            table.load(decode_rows(step, window, num_decodes=num_decodes, num_rows=table.num_rows))
