"""Memory of keys and values: one allocation on the device, cut into blocks, and one on the host to swap them to."""

import torch
from torch import Tensor

from headway.core.model import ModelSpec
from headway.core.shard import ModelShard, whole
from headway.models.attention import LayerCache
from headway.models.model import DTYPES

BlockPairs = list[tuple[int, int]]
"""(source block, destination block) of each copy, in the order in which they are made."""


class KvPool:
    """Blocks of `block_size` tokens for every layer, [num_layers, 2, num_blocks, kv_heads, block_size, head_dim].

    The memory is never cleared: a page takes up room once a token is written to it, so a large pool costs nothing
    until it is used.

    Args:
        shard: whose layers and KV heads lie here; None for all.
        num_host_blocks: blocks of the host tier. There the block comes first, so that it travels in one piece; beside
            a GPU that memory is pinned, and taken at once.
    """

    def __init__(
        self,
        spec: ModelSpec,
        *,
        shard: ModelShard | None = None,
        num_blocks: int,
        block_size: int,
        device: torch.device,
        num_host_blocks: int = 0,
    ) -> None:
        shard = shard or whole(spec)
        num_layers = len(shard.layers)
        block_shape = (len(shard.kv_heads), block_size, spec.head_dim)
        dtype = DTYPES[spec.dtype]
        self.block_size = block_size
        self.num_blocks = num_blocks
        self.memory: Tensor = torch.empty((num_layers, 2, num_blocks, *block_shape), dtype=dtype, device=device)
        # Keys lie transposed within a block: see `headway.kernels.paged_attention`.
        keys = self.memory[:, 0].view(*self.memory[:, 0].shape[:3], spec.head_dim, block_size).mT
        self.layers: list[LayerCache] = list(zip(keys, self.memory[:, 1], strict=True))
        self.host_memory: Tensor = torch.empty(
            (num_host_blocks, num_layers, 2, *block_shape),
            dtype=dtype,
            pin_memory=device.type == "cuda" and num_host_blocks > 0,
        )
        self._blocks = self.memory.movedim(2, 0)

    def copy_out(self, pairs: BlockPairs) -> None:
        """From the device to the host; all layers of a block at once."""
        for source, destination in pairs:
            self.host_memory[destination].copy_(self._blocks[source], non_blocking=True)

    def copy_in(self, pairs: BlockPairs) -> None:
        """From the host to the device."""
        for source, destination in pairs:
            self._blocks[destination].copy_(self.host_memory[source], non_blocking=True)

    def copy_within(self, pairs: BlockPairs) -> None:
        """Within the device."""
        for source, destination in pairs:
            self._blocks[destination].copy_(self._blocks[source])

    def synchronize(self) -> None:
        """Waits until the copies are done."""
        if self.memory.device.type == "cuda":
            torch.cuda.synchronize(self.memory.device)
