"""Copies of a cache's blocks, against the definition."""

import pytest
import torch

from headway.kernels import reference
from headway.kernels.cuda import copy_blocks, swap_blocks
from headway.kernels.cuda.kernels import CudaKernels
from tests.kernels.cuda.cache_steps import bits
from tests.kernels.cuda.cases import BF16, F32, FP8


@pytest.mark.parametrize("dtype", [F32, BF16, FP8])
def test_blocks_travel_to_the_host_and_back(host: CudaKernels, dtype: torch.dtype) -> None:
    memory, host_memory = torch.randn(3, 2, 6, 2, 8, 80).to(dtype), torch.zeros(4, 3, 2, 2, 8, 80).to(dtype)
    expected, expected_host = memory.clone(), host_memory.clone()
    for pairs, is_out in ((torch.tensor([[5, 0], [1, 3]]), True), (torch.tensor([[3, 2], [0, 1], [1, 5]]), False)):
        swap_blocks(memory, host_memory, pairs=pairs, is_out=is_out)
        reference.swap_blocks(expected, expected_host, pairs=pairs, is_out=is_out)
        assert torch.equal(bits(host_memory), bits(expected_host))
        assert torch.equal(bits(memory), bits(expected))
    assert torch.equal(bits(memory[:, :, 1]), bits(host_memory[0])), "a block that went out and came back"


def test_more_blocks_travel_than_one_launch_takes(host: CudaKernels) -> None:
    host.set_schedule(0)
    memory, host_memory = torch.randn(1, 2, 600, 16), torch.zeros(700, 1, 2, 16)
    pairs = torch.stack((torch.randperm(600), torch.randperm(700)[:600]), dim=1)
    swap_blocks(memory, host_memory, pairs=pairs, is_out=True)
    assert torch.equal(host_memory[pairs[:, 1]], memory[:, :, pairs[:, 0]].movedim(2, 0))
    assert host_memory.count_nonzero() == memory.count_nonzero()


def test_no_block_travels_where_none_is_asked_for(host: CudaKernels) -> None:
    memory, host_memory = torch.ones(1, 2, 3, 16), torch.zeros(3, 1, 2, 16)
    swap_blocks(memory, host_memory, pairs=torch.zeros(0, 2, dtype=torch.int64), is_out=True)
    assert not host_memory.any()


def test_blocks_that_cannot_travel_are_named(host: CudaKernels) -> None:
    memory, host_memory = torch.zeros(3, 2, 6, 2, 8, 16), torch.zeros(4, 3, 2, 2, 8, 16)
    pairs = torch.tensor([[5, 4]])
    with pytest.raises(ValueError, match=r"pairs must lie below \[6, 4\]; they are \[\[5, 4\]\]"):
        swap_blocks(memory, host_memory, pairs=pairs, is_out=True)
    with pytest.raises(ValueError, match=r"pairs must lie below \[4, 6\]"):
        swap_blocks(memory, host_memory, pairs=pairs, is_out=False)
    with pytest.raises(
        ValueError, match=r"host_blocks must be float32 \[num_host_blocks, 3, 2, 2, 8, 16\], contiguous"
    ):
        swap_blocks(memory, host_memory[:, :2], pairs=pairs, is_out=True)
    crooked = torch.zeros(host_memory.numel() + 1)[1:].view(host_memory.shape)
    with pytest.raises(ValueError, match="host_blocks must be in memory of the host, at a multiple of 16 bytes"):
        swap_blocks(memory, crooked, pairs=pairs, is_out=True)
    with pytest.raises(ValueError, match="pairs must be int64"):
        swap_blocks(memory, host_memory, pairs=pairs.int(), is_out=True)


@pytest.mark.parametrize("dtype", [F32, BF16, FP8])
@pytest.mark.parametrize("pairs", [[], [(0, 3)], [(1, 4), (1, 2), (0, 5)]])
def test_blocks_are_copied_in_all_layers(host: CudaKernels, dtype: torch.dtype, pairs: list[tuple[int, int]]) -> None:
    memory = torch.randn(3, 2, 6, 2, 8, 80).to(dtype)
    expected = memory.clone()
    list_of_pairs = torch.tensor(pairs, dtype=torch.int64).view(-1, 2)
    reference.copy_blocks(expected, pairs=list_of_pairs)
    copy_blocks(memory, pairs=list_of_pairs)
    assert torch.equal(bits(memory), bits(expected))


def test_operands_are_checked(host: CudaKernels) -> None:
    memory = torch.zeros(1, 2, 4, 64)
    with pytest.raises(ValueError, match=r"pairs must be int64 \[n, 2\], contiguous, on cpu; it is int32 \[1, 2\]"):
        copy_blocks(memory, pairs=torch.zeros(1, 2, dtype=torch.int32))
    with pytest.raises(ValueError, match="blocks must be of blocks of a multiple of 16 bytes"):
        copy_blocks(memory[..., :3].contiguous(), pairs=torch.zeros(1, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match="blocks must be of at most 65535 layers times two"):
        copy_blocks(torch.zeros(40_000, 2, 1, 4), pairs=torch.zeros(1, 2, dtype=torch.int64))
