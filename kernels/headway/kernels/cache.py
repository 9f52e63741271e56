"""How keys and values lie in the blocks of a cache: [num_blocks, kv_heads, block_size, head_dim], blocks contiguous.

Values lie row by row on every device. On the CPU the keys of a head are transposed within a block, so that one vector
register holds a dimension of as many keys as it is wide. On a GPU they lie in rows as the values do: a key is written
in one piece whatever its type, a few lanes hold a whole key, and the rows are what the tensor cores' loads expect.
"""

from torch import Tensor

from headway.kernels.devices import KernelSet, kernel_set


def cache_keys(memory: Tensor) -> Tensor:
    """The keys of a cache in contiguous memory of the same shape, in the layout that the kernels of its device read.

    Args:
        memory: [..., block_size, head_dim], contiguous in its last two dimensions.
    """
    *leading, block_size, head_dim = memory.shape
    return memory.view(*leading, head_dim, block_size).mT if kernel_set(memory.device) is KernelSet.CPU else memory


def are_rows(cache: Tensor) -> bool:
    """True if each block is contiguous and each head's rows lie one after the other in it."""
    _, _, block_size, head_dim = cache.shape
    return cache.stride()[1:] == (block_size * head_dim, head_dim, 1)
