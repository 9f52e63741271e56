"""What is written into the cache's blocks, against the definition."""

import pytest
import torch
from torch import Tensor

from headway.kernels import reference
from headway.kernels.cuda import copy_blocks, rotate, rotate_and_cache, swap_blocks
from headway.kernels.cuda.kernels import CudaKernels
from tests.kernels.cuda.cases import BF16, F16, F32, FP8
from tests.kernels.cuda.schedules import SCHEDULES

NUM_TOKENS, NUM_HEADS, NUM_KV_HEADS, BLOCK_SIZE = 7, 5, 2, 8


def rotation(num_positions: int, rotary_dim: int) -> Tensor:
    angles = torch.randn(num_positions, rotary_dim // 2)
    return torch.cat((angles.cos(), angles.sin()), dim=1)


def bits(x: Tensor) -> Tensor:
    return x.view(torch.uint8)


@pytest.mark.parametrize("has_norm", [False, True])
@pytest.mark.parametrize("rotary_dim", [0, 32, 80])
@pytest.mark.parametrize(
    ("dtype", "cache_dtype"), [(F16, F16), (BF16, BF16), (F32, F32), (F32, BF16), (BF16, FP8), (F16, FP8)]
)
def test_equals_the_definition(
    host: CudaKernels, dtype: torch.dtype, cache_dtype: torch.dtype, rotary_dim: int, has_norm: bool
) -> None:
    torch.manual_seed(0)
    head_dim = 80
    qkv = torch.randn(NUM_TOKENS, NUM_HEADS + 2 * NUM_KV_HEADS, head_dim).to(dtype)
    caches = [torch.zeros(4, NUM_KV_HEADS, BLOCK_SIZE, head_dim).to(cache_dtype) for _ in range(2)]
    options = {
        "slot_mapping": torch.tensor([3, 9, -1, 31, 0, 17, 16]),
        "positions": torch.tensor([5, 0, 1, 2, 19, 7, 3], dtype=torch.int32) if rotary_dim else None,
        "cos_sin": rotation(20, rotary_dim) if rotary_dim else None,
        "q_norm_weight": torch.randn(head_dim).to(dtype) if has_norm else None,
        "k_norm_weight": torch.randn(head_dim).to(dtype) if has_norm else None,
        "norm_eps": 1e-5,
        "key_scale": 0.5,
        "value_scale": 2.0,
    }
    results = []
    for schedule in SCHEDULES:
        host.set_schedule(schedule)
        own, (k_cache, v_cache) = qkv.clone(), [cache.clone() for cache in caches]
        q, k, v = own.split((NUM_HEADS, NUM_KV_HEADS, NUM_KV_HEADS), dim=1)
        rotate_and_cache(q, k, v, k_cache=k_cache, v_cache=v_cache, **options)
        results.append((own, k_cache, v_cache))
    for result in results[1:]:
        assert all(torch.equal(bits(one), bits(other)) for one, other in zip(result, results[0], strict=True))
    q, k, v = qkv.split((NUM_HEADS, NUM_KV_HEADS, NUM_KV_HEADS), dim=1)
    reference.rotate_and_cache(q, k, v, k_cache=caches[0], v_cache=caches[1], **options)
    unit = torch.finfo(dtype).eps
    torch.testing.assert_close(results[0][0], qkv, rtol=max(unit, 1e-5), atol=max(unit, 1e-5))
    cache_unit = max(torch.finfo(cache_dtype).eps, unit, 1e-5)
    for cache, expected in zip(results[0][1:], caches, strict=True):
        torch.testing.assert_close(cache.float(), expected.float(), rtol=cache_unit, atol=cache_unit)


def test_what_fp8_cannot_hold_becomes_its_largest_number(host: CudaKernels) -> None:
    q = torch.zeros(1, 1, 64)
    k, v = torch.full((1, 1, 64), 500.0), torch.full((1, 1, 64), -1e9)
    k_cache, v_cache = (torch.zeros(1, 1, 8, 64).to(FP8) for _ in range(2))
    rotate_and_cache(q, k, v, k_cache=k_cache, v_cache=v_cache, slot_mapping=torch.tensor([2]))
    assert (k_cache[0, 0, 2].float() == 448).all()
    assert (v_cache[0, 0, 2].float() == -448).all()


def test_what_was_written_is_what_attention_reads(host: CudaKernels) -> None:
    q = torch.randn(3, 4, 64, dtype=F16)
    k, v = torch.randn(3, 2, 64, dtype=F16), torch.randn(3, 2, 64, dtype=F16)
    k_cache, v_cache = torch.zeros(2, 2, 8, 64, dtype=F16), torch.zeros(2, 2, 8, 64, dtype=F16)
    rotate_and_cache(q, k, v, k_cache=k_cache, v_cache=v_cache, slot_mapping=torch.tensor([8, 9, 10]))
    assert torch.equal(k_cache[1, :, :3].transpose(0, 1), k)
    assert torch.equal(v_cache[1, :, :3].transpose(0, 1), v)


@pytest.mark.parametrize("dtype", [F32, BF16, F16])
def test_without_a_cache_queries_and_keys_are_rotated_alike(host: CudaKernels, dtype: torch.dtype) -> None:
    q, k, v = torch.randn(NUM_TOKENS, 9, 80).to(dtype).split((5, 2, 2), dim=1)
    alone = q.clone(), k.clone()
    cache = torch.zeros(1, 2, BLOCK_SIZE, 80, dtype=BF16)
    options = {"positions": torch.arange(NUM_TOKENS), "cos_sin": rotation(NUM_TOKENS, 32), "q_norm_weight": q[0, 0] + 1}
    rotate(*alone, **options)
    rotate_and_cache(q, k, v, k_cache=cache, v_cache=cache, slot_mapping=torch.arange(NUM_TOKENS), **options)
    assert torch.equal(alone[0], q)
    assert torch.equal(alone[1], k)
    with pytest.raises(ValueError, match=r"k must be float16 \[7, kv_heads, 80\]; it is float32"):
        rotate(q.half(), k.float(), positions=options["positions"], cos_sin=options["cos_sin"])


@pytest.mark.parametrize("dtype", [F32, BF16, FP8])
def test_blocks_travel_to_the_host_and_back(host: CudaKernels, dtype: torch.dtype) -> None:
    memory, host_memory = torch.randn(3, 2, 6, 2, 8, 80).to(dtype), torch.zeros(4, 3, 2, 2, 8, 80).to(dtype)
    before, away = memory.clone(), torch.tensor([[5, 0], [1, 3]])
    swap_blocks(memory, host_memory, pairs=away, is_out=True)
    assert torch.equal(bits(host_memory[[0, 3]]), bits(before[:, :, [5, 1]]).movedim(2, 0))
    assert not bits(host_memory[1:3]).any()
    memory[:, :, [1, 5]] = 0
    swap_blocks(memory, host_memory, pairs=torch.tensor([[3, 1], [0, 5]]), is_out=False)
    assert torch.equal(bits(memory), bits(before))


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
    with pytest.raises(ValueError, match="pairs must be int64"):
        swap_blocks(memory, host_memory, pairs=pairs.int(), is_out=True)


@pytest.mark.parametrize("dtype", [F32, BF16, FP8])
@pytest.mark.parametrize("pairs", [[], [(0, 3)], [(1, 4), (1, 2), (0, 5)]])
def test_blocks_are_copied_in_all_layers(host: CudaKernels, dtype: torch.dtype, pairs: list[tuple[int, int]]) -> None:
    memory = torch.randn(3, 2, 6, 2, 8, 80).to(dtype)
    expected = memory.clone()
    list_of_pairs = torch.tensor(pairs, dtype=torch.int64).view(-1, 2)
    reference.copy_blocks(bits(expected).view(6, 6, -1), pairs=list_of_pairs)
    copy_blocks(memory, pairs=list_of_pairs)
    assert torch.equal(bits(memory), bits(expected))


def test_operands_are_checked(host: CudaKernels) -> None:
    memory = torch.zeros(1, 2, 4, 64)
    with pytest.raises(ValueError, match=r"pairs must be int64 \[n, 2\], contiguous, on cpu; it is int32 \[1, 2\]"):
        copy_blocks(memory, pairs=torch.zeros(1, 2, dtype=torch.int32))
    with pytest.raises(ValueError, match="blocks must be of blocks of a multiple of 16 bytes"):
        copy_blocks(memory[..., :3].contiguous(), pairs=torch.zeros(1, 2, dtype=torch.int64))
    q, cache = torch.zeros(1, 1, 64, dtype=F16), torch.zeros(1, 1, 8, 64, dtype=F16)
    slots = torch.zeros(1, dtype=torch.int64)
    with pytest.raises(ValueError, match="positions must be given with cos_sin"):
        rotate_and_cache(q, q, q, k_cache=cache, v_cache=cache, slot_mapping=slots, cos_sin=rotation(4, 64))
    with pytest.raises(ValueError, match="key_scale must be a positive number; it is 0"):
        rotate_and_cache(q, q, q, k_cache=cache, v_cache=cache, slot_mapping=slots, key_scale=0)
    with pytest.raises(ValueError, match=r"v must be float16 \[1, 1, 64\]; it is float32"):
        rotate_and_cache(q, q, q.float(), k_cache=cache, v_cache=cache, slot_mapping=slots)
