"""Memory of keys and values: one allocation on the device, cut into blocks, and one on the host to swap them to."""

import numpy as np
import torch
from torch import Tensor

from headway.core.model import ModelSpec
from headway.core.shard import ModelShard, whole
from headway.kernels import cache_keys, copy_blocks, swap_blocks
from headway.models.attention import LayerCache
from headway.models.model import DTYPES
from headway.runner.pinned import pin
from headway.runner.populate import populate
from headway.runner.step_message import Words


class KvPool:
    """Blocks of `block_size` tokens for every layer, [num_layers, 2, num_blocks, kv_heads, block_size, head_dim].

    The memory is never cleared: on the CPU a page takes up room once a token is written to it, or `populate` has come
    to it.

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
        self.layers: list[LayerCache] = list(zip(cache_keys(self.memory[:, 0]), self.memory[:, 1], strict=True))
        host_memory = torch.empty((num_host_blocks, num_layers, 2, *block_shape), dtype=dtype)
        self.host_memory: Tensor = pin(host_memory, device) if device.type == "cuda" else host_memory
        self.blocks = self.memory.movedim(2, 0)

    def populate(self) -> None:
        """Starts to take the memory; on a GPU there is nothing to do."""
        if self.memory.device.type == "cpu":
            populate(self.memory)

    def copy_out(self, pairs: Words) -> None:
        """Starts to copy blocks to the host tier: pairs [n, 2], (block, host block)."""
        swap_blocks(self.memory, self.host_memory, pairs=_numbers(pairs), is_out=True)

    def copy_into(self, pairs: Words) -> None:
        """Starts to copy blocks back: pairs [n, 2], (host block, block)."""
        swap_blocks(self.memory, self.host_memory, pairs=_numbers(pairs), is_out=False)

    def copy_within(self, pairs: Words) -> None:
        """Starts to copy blocks of the device: pairs [n, 2], (from, to)."""
        copy_blocks(self.memory, pairs=_numbers(pairs))

    def synchronize(self) -> None:
        """Waits until all that was started on the device is done."""
        if self.memory.device.type == "cuda":
            torch.cuda.synchronize(self.memory.device)

    def read(self, blocks: Words) -> Tensor:
        """[n, num_layers, 2, kv_heads, block_size, head_dim], on the CPU: the content of `blocks`, [n, 2]: (block,
        whether it is of the host tier)."""
        contents = torch.empty((len(blocks), *self.host_memory.shape[1:]), dtype=self.memory.dtype)
        for content, (block, is_on_host) in zip(contents, blocks.tolist(), strict=True):
            content.copy_(self.host_memory[block] if is_on_host else self.blocks[block])
        return contents

    def write(self, blocks: Words, contents: Tensor) -> None:
        """Sets the content of blocks of the device to what `read` gave, here or in a pool of the same shape."""
        for (block, _), content in zip(blocks.tolist(), contents, strict=True):
            self.blocks[block].copy_(content)


def _numbers(pairs: Words) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(pairs, np.int64))
