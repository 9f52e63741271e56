"""Memory of keys and values: one allocation on the device, cut into blocks, and one on the host to swap them to."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.core.model import ModelSpec
from headway.core.shard import ModelShard, whole
from headway.models.attention import LayerCache
from headway.models.model import DTYPES


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
        block_shape = (len(shard.cached_kv_heads), block_size, spec.head_dim)
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
        self.blocks = self.memory.movedim(2, 0)

    @property
    def block_shape(self) -> tuple[int, ...]:
        """[num_layers, 2, kv_heads, block_size, head_dim]"""
        return tuple(self.host_memory.shape[1:])

    @property
    def block_bytes(self) -> int:
        return math.prod(self.block_shape) * self.memory.itemsize

    def synchronize(self) -> None:
        """Waits until the copies are done."""
        if self.memory.device.type == "cuda":
            torch.cuda.synchronize(self.memory.device)

    def read_block(self, block: int, *, on_host: bool = False) -> NDArray[np.uint8]:
        """The content of a block, of the device or the host tier, as it lies there: [block_bytes], a copy."""
        source = self.host_memory[block] if on_host else self.blocks[block]
        content = torch.empty(source.shape, dtype=source.dtype).copy_(source)
        return content.view(-1).view(torch.uint8).numpy()

    def write_block(self, block: int, content: NDArray[np.uint8]) -> None:
        """Sets the content of a block of the device to what `read_block` gave, here or in a pool of the same shape."""
        target = self.blocks[block]
        target.copy_(torch.from_numpy(content).view(target.dtype).view(target.shape))
