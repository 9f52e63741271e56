"""What ranks exchange in tests of the collectives. Every rank knows what the others have, and checks what it gets."""

import hashlib
import time
from ctypes import c_uint32
from itertools import accumulate, product

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from headway.kernels.collectives import _FLAG_BYTES
from headway.models.layout import CacheAxis, TensorAxis
from headway.runner.parallel.group import RankGroup
from headway.runner.parallel.shared_memory import SharedMemory

SHAPES = [(1, 8), (5, 33), (64, 512), (0, 8), (129, 517), (600, 1027)]
DTYPES = [torch.float32, torch.bfloat16]


def contribution(rank: int, shape: tuple[int, ...], dtype: torch.dtype, *, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    return torch.randn(shape, generator=generator).to(dtype)


def sums_of(axis: TensorAxis) -> list[str]:
    """Digests of the sums of every shape and dtype, which are compared with torch's."""
    with torch.inference_mode():
        sums = []
        for shape, dtype in product(SHAPES, DTYPES):
            parts = [contribution(rank, shape, dtype) for rank in range(axis.size)]
            x = parts[axis.rank].clone()
            assert axis.all_reduce(x, site="test") is x
            tolerance = 1e-5 if dtype is torch.float32 else 0.05
            expected = torch.stack(parts).float().sum(dim=0)
            # torch.testing.assert_close would import half of torch into every rank.
            assert torch.allclose(x.float(), expected, atol=tolerance, rtol=tolerance)
            sums.append(hashlib.sha256(x.float().numpy().tobytes()).hexdigest())
        return sums


def exchange_once(axis: CacheAxis, sizes: np.ndarray, width: int, dtype: torch.dtype, *, seed: int) -> None:
    """Each exchange with sizes [rank][rank] of dim 0; those of a rank's own tensor are on the diagonal."""
    rows = [int(size) for size in sizes.diagonal()]
    wholes = [contribution(rank, (size, width), dtype, seed=seed) for rank, size in enumerate(rows)]
    own = wholes[axis.rank].clone()
    gathered = axis.gather(own, sizes=rows, site="gather")
    assert (gathered is not None) == (axis.rank == 0)
    check_equal(gathered or wholes, wholes)
    check_equal(axis.all_gather(own, sizes=rows, site="all_gather"), wholes)
    parts = [
        [contribution(8 * rank + to, (int(size), width), dtype, seed=seed) for to, size in enumerate(row)]
        for rank, row in enumerate(sizes)
    ]
    expected = [row[axis.rank] for row in parts]
    shapes = [part.shape for part in expected]
    check_equal(axis.all_to_all(parts[axis.rank], shapes=shapes, site="all_to_all"), expected)


def check_equal(found: list[Tensor], expected: list[Tensor]) -> None:
    assert len(found) == len(expected)
    assert all(torch.equal(x, y) and x.dtype == y.dtype for x, y in zip(found, expected, strict=True))


def exchange_all(group: RankGroup) -> None:
    """Sizes from nothing to several slots, alike and not."""
    axis = group.tensor
    generator = np.random.default_rng(7)
    for number, (longest, dtype) in enumerate(product((1, 3, 40, 700), DTYPES)):
        sizes = generator.integers(0, longest + 1, (axis.size, axis.size))
        for width in (1, 33, 512):
            exchange_once(axis, sizes, width, dtype, seed=number)
    for sizes in (np.zeros, np.ones):
        exchange_once(axis, sizes((axis.size, axis.size), int), 5, torch.float32, seed=0)


def age(group: RankGroup) -> None:
    """As if the ranks had exchanged so much that the flags of shared memory soon begin at 0 again."""
    transport = group.tensor._transport
    if isinstance(transport, SharedMemory):
        c_uint32.from_address(transport._seat[0] + _FLAG_BYTES * group.rank).value = 2**32 - 1000
    dist.barrier(group.control)


def exchange_often(group: RankGroup, num_rounds: int) -> None:
    """A random row of operations, between which ranks dawdle at random."""
    axis, common, own = group.tensor, np.random.default_rng(3), np.random.default_rng(group.rank)
    age(group)
    ranks = torch.arange(axis.size, dtype=torch.float32)
    sum_of_ranks = int(ranks.sum())
    with torch.inference_mode():
        for number in range(num_rounds):
            if own.random() < 0.02:
                time.sleep(own.exponential(5e-4))
            operation, size = common.integers(0, 5), int(common.choice([1, 7, 64, 3000, 40_000, 150_000], p=SIZES_P))
            sizes = [int(rows) for rows in common.integers(0, 5, axis.size)]
            if operation < 2:
                x = axis.all_reduce(torch.full((size,), float(number + axis.rank)), site="test")
                assert (x == number * axis.size + sum_of_ranks).all()
            elif operation == 2:
                found = axis.gather(torch.full((size,), float(number + axis.rank)), site="test")
                assert found is None or all((x == number + rank).all() for rank, x in enumerate(found))
            elif operation == 3:
                x = torch.full((sizes[axis.rank], size // 5), float(number + axis.rank))
                found = axis.all_gather(x, sizes=sizes, site="test")
                assert all((x == number + rank).all() for rank, x in enumerate(found))
                assert [len(x) for x in found] == sizes
            else:
                starts = [0, *accumulate(sizes)]
                x = torch.full((starts[-1], size // 5), float(number + axis.rank))
                shapes = [(sizes[axis.rank], size // 5)] * axis.size
                found = axis.all_to_all(x.split(sizes), shapes=shapes, site="test")
                assert all((x == number + rank).all() for rank, x in enumerate(found))


SIZES_P = [0.3, 0.3, 0.2, 0.17, 0.02, 0.01]
