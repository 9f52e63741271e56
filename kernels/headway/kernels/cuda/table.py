"""The plan of a decode step on the device, in memory that stays where it is so that a captured graph can read it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from headway.kernels.cuda.operands import MAX_GRID_HEIGHT
from headway.kernels.cuda.plan import WORK_FIELDS, DecodeRows, Ints, plan_decode, slots_of, work_capacity
from headway.kernels.devices import staged

HEADS_PER_CTA = 16  # query heads of a group that one CTA takes at most: csrc/cuda/decode_matrix.h


@dataclass(frozen=True, slots=True)
class DecodeTable:
    """What `decode_attention` reads of a plan, and room for partial results.

    Attributes:
        num_slots: ranges of keys that run at once.
        work: [capacity, 6] int32; items that there are not have row -1.
        starts: [num_rows + 1] int32.
        partials: [capacity, heads, head_dim + 1] float32.
    """

    num_slots: int
    work: Tensor
    starts: Tensor
    partials: Tensor

    @classmethod
    def allocate(
        cls, *, num_rows: int, num_heads: int, num_kv_heads: int, head_dim: int, num_ctas: int, device: torch.device
    ) -> "DecodeTable":
        """
        Args:
            num_rows: query tokens of a step at most.
            num_ctas: that the device runs at once, about two for each of its multiprocessors.
        """
        if num_kv_heads < 1 or num_heads % num_kv_heads:
            raise ValueError(f"num_heads must be a multiple of num_kv_heads; they are {num_heads} and {num_kv_heads}")
        tiles = -(-num_heads // num_kv_heads // HEADS_PER_CTA)
        num_slots = slots_of(num_ctas, ctas_per_range=num_kv_heads * tiles)
        capacity = work_capacity(num_rows, num_slots=num_slots)
        if capacity > MAX_GRID_HEIGHT:
            most = num_rows - (capacity - MAX_GRID_HEIGHT)
            raise ValueError(f"num_rows must be at most {most} with {num_ctas} CTAs; it is {num_rows}")
        return cls(
            num_slots,
            work=torch.full((capacity, WORK_FIELDS), -1, dtype=torch.int32, device=device),
            starts=torch.zeros(num_rows + 1, dtype=torch.int32, device=device),
            partials=torch.empty((capacity, num_heads, head_dim + 1), device=device),
        )

    @property
    def num_rows(self) -> int:
        return len(self.starts) - 1

    def first(self, num_rows: int) -> "DecodeTable":
        """The table of steps with fewer rows, in the same memory: its launches have fewer CTAs."""
        capacity = work_capacity(num_rows, num_slots=self.num_slots)
        return DecodeTable(self.num_slots, self.work[:capacity], self.starts[: num_rows + 1], self.partials[:capacity])

    def load(self, rows: DecodeRows) -> None:
        """Plans the next step; on the device it holds from this point of the current stream on.

        Raises:
            ValueError: there are more rows than the table has room for.
        """
        if len(rows) > self.num_rows:
            raise ValueError(f"rows must be at most {self.num_rows}; they are {len(rows)}")
        plan = plan_decode(rows, num_slots=self.num_slots)
        _fill(self.work, plan.work, rest=-1)
        _fill(self.starts, plan.starts, rest=int(plan.starts[-1]))


def _fill(column: Tensor, values: Ints, *, rest: int) -> None:
    """Starts to copy `values` to the device, and `rest` to what is behind them."""
    filled = torch.full(column.shape, rest, dtype=torch.int32)
    filled.numpy()[: len(values)] = values
    column.copy_(staged(filled, column.device), non_blocking=True)
