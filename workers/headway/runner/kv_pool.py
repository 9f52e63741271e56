"""Memory of keys and values: one allocation, cut into blocks."""

import torch
from torch import Tensor

from headway.core.model import ModelSpec
from headway.models.attention import LayerCache
from headway.models.model import DTYPES


class KvPool:
    """Blocks of `block_size` tokens for every layer, [num_layers, 2, num_blocks, kv_heads, block_size, head_dim].

    The memory is never cleared: a page takes up room once a token is written to it, so a large pool costs nothing
    until it is used.
    """

    def __init__(self, spec: ModelSpec, *, num_blocks: int, block_size: int, device: torch.device) -> None:
        shape = (spec.num_layers, 2, num_blocks, spec.num_kv_heads, block_size, spec.head_dim)
        self.block_size = block_size
        self.num_blocks = num_blocks
        self.memory: Tensor = torch.empty(shape, dtype=DTYPES[spec.dtype], device=device)
        self.layers: list[LayerCache] = [(layer[0], layer[1]) for layer in self.memory]
