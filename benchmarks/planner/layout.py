"""One way to train a model on one stage: for tables that compare predictions."""

from dataclasses import dataclass

from headway.core.precision import Precision

COLUMN_WISE = ("query", "key", "value", "up", "gate")
ROW_WISE = ("output", "down")
"""Matrices of a block, by their names in the zoo, as Megatron-LM splits them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One way to train on one stage.

    Attributes:
        micro_batch: examples of one micro-batch, over all devices.
        data, tensor: devices along which examples and blocks' matrices are split.
    """

    micro_batch: int
    data: int = 1
    tensor: int = 1
    zero_stage: int = 0
    recomputes: bool = False
    precision: Precision = Precision.FLOAT32

    @property
    def num_devices(self) -> int:
        return self.data * self.tensor

    @property
    def is_fully_sharded(self) -> bool:
        """Whether PyTorch's fully_shard holds the parameters; on one device it keeps float32 masters of them."""
        return self.zero_stage > 1 or self.precision is not Precision.FLOAT32
