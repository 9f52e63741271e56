"""The plan of a decode step on the device, in memory that stays where it is so that a captured graph can read it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from headway.kernels.cuda.plan import WORK_FIELDS, DecodeRows, Ints, plan_decode, work_capacity
from headway.kernels.devices import staged


@dataclass(frozen=True, slots=True)
class DecodeTable:
    """A plan on the device as `decode_attention` reads it, and room for partial results.

    Attributes:
        num_slots: ranges of keys that are attended to side by side.
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
        cls, *, num_rows: int, num_heads: int, head_dim: int, num_slots: int, device: torch.device
    ) -> "DecodeTable":
        """Allocates a table for steps of up to `num_rows` rows.

        Args:
            num_rows: query tokens of a step at most.
            num_slots: what `decode_slots` says of the device.
        """
        if num_slots < 1:
            raise ValueError(f"num_slots must be at least 1; it is {num_slots}")
        capacity = work_capacity(num_rows, num_slots=num_slots)
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
        """The table of steps with fewer rows, in the same memory: less is planned, copied and merged."""
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
