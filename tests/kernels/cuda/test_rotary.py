"""Per-head norm, rotation and the write into a cache's blocks, against the definition."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from headway.kernels.cuda import rotate, rotate_and_cache
from headway.kernels.cuda.kernels import CudaKernels
from tests.kernels.cuda.cache_steps import ROTARY_CASES, ROTATION_OPTIONS, RotaryCase, RotaryStep, bits, rotation
from tests.kernels.cuda.cases import BF16, F16, F32, FP8
from tests.kernels.cuda.schedules import SCHEDULES


@pytest.mark.parametrize("case", ROTARY_CASES, ids=str)
def test_equals_the_definition(host: CudaKernels, case: RotaryCase) -> None:
    step, results = RotaryStep(case), []
    for schedule in SCHEDULES:
        host.set_schedule(schedule)
        results.append(step.run(rotate_and_cache))
    step.check(*results[0])
    for result in results[1:]:
        assert all(torch.equal(bits(one), bits(other)) for one, other in zip(result, results[0], strict=True))


@pytest.mark.parametrize(("dtype", "cache_dtype"), [(F16, F16), (BF16, FP8), (F32, F32)])
def test_rows_that_are_not_aligned_get_the_same(
    host: CudaKernels, dtype: torch.dtype, cache_dtype: torch.dtype
) -> None:
    case = RotaryCase(dtype, cache_dtype, head_dim=96, rotary_dim=64)
    aligned, crooked = (RotaryStep(replace(case, offset=offset)).run(rotate_and_cache) for offset in (0, 1))
    assert all(torch.equal(bits(one), bits(other)) for one, other in zip(aligned, crooked, strict=True))


@pytest.mark.parametrize("block_size", [*range(8, 129)])
def test_a_slot_is_found_in_blocks_of_any_size(host: CudaKernels, block_size: int) -> None:
    host.set_schedule(0)
    slots = (0, block_size - 1, block_size, 2 * block_size - 1, 7 * block_size)
    case = RotaryCase(F16, F16, head_dim=16, rotary_dim=0, num_heads=1, num_kv_heads=1, block_size=block_size)
    step = RotaryStep(replace(case, key_scale=1.0, value_scale=1.0), slots=slots)
    qkv, k_cache, v_cache = step.run(rotate_and_cache)
    places = torch.tensor(slots)
    for number, cache in ((1, k_cache), (2, v_cache)):
        assert torch.equal(cache.transpose(1, 2).reshape(-1, 16)[places], qkv[:, number])
        assert cache.count_nonzero() == 16 * len(slots)


def test_what_fp8_cannot_hold_becomes_its_largest_number(host: CudaKernels) -> None:
    q = torch.zeros(1, 1, 64)
    k, v = torch.full((1, 1, 64), 500.0), torch.full((1, 1, 64), -1e9)
    k[..., :8], v[..., :8] = torch.inf, torch.nan
    k_cache, v_cache = (torch.zeros(1, 1, 8, 64).to(FP8) for _ in range(2))
    rotate_and_cache(q, k, v, k_cache=k_cache, v_cache=v_cache, slot_mapping=torch.tensor([2]))
    assert (k_cache[0, 0, 2].float() == 448).all()
    assert v_cache[0, 0, 2, :8].float().isnan().all()
    assert (v_cache[0, 0, 2, 8:].float() == -448).all()


def test_what_was_written_is_what_attention_reads(host: CudaKernels) -> None:
    q = torch.randn(3, 4, 64, dtype=F16)
    k, v = torch.randn(3, 2, 64, dtype=F16), torch.randn(3, 2, 64, dtype=F16)
    k_cache, v_cache = torch.zeros(2, 2, 8, 64, dtype=F16), torch.zeros(2, 2, 8, 64, dtype=F16)
    rotate_and_cache(q, k, v, k_cache=k_cache, v_cache=v_cache, slot_mapping=torch.tensor([8, 9, 10]))
    assert torch.equal(k_cache[1, :, :3].transpose(0, 1), k)
    assert torch.equal(v_cache[1, :, :3].transpose(0, 1), v)


@pytest.mark.parametrize("dtype", [F32, BF16, F16])
def test_without_a_cache_queries_and_keys_are_rotated_alike(host: CudaKernels, dtype: torch.dtype) -> None:
    step = RotaryStep(RotaryCase(dtype, BF16, rotary_dim=32, has_norm=True))
    q, k, _ = step.heads_of(step.run(rotate_and_cache)[0])
    alone_q, alone_k, _ = step.heads_of(step.copy())
    rotate(alone_q, alone_k, **{name: step.options[name] for name in ROTATION_OPTIONS})
    assert torch.equal(alone_q, q)
    assert torch.equal(alone_k, k)


Q, CACHE = torch.zeros(2, 1, 64, dtype=F16), torch.zeros(1, 1, 8, 64, dtype=F16)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cos_sin": rotation(4, 64)}, "positions must be given with cos_sin"),
        ({"key_scale": 0}, "key_scale must be a positive number; it is 0"),
        ({"v": Q.float()}, r"v must be float16 \[2, 1, 64\] on cpu; it is float32"),
        ({"k": Q.to("meta")}, r"k must be float16 \[2, 1, 64\] on cpu; it is float16 .* on meta"),
        ({"v": Q[:1]}, r"v must be float16 \[2, 1, 64\] on cpu; it is float16 \[1, 1, 64\]"),
        ({"k": Q[:1].expand(2, 1, 64)}, r"k must be of rows that do not overlap; it is .* with strides \[0, 64, 1\]"),
        ({"slot_mapping": torch.zeros(2)}, "slot_mapping must be int32 or int64; it is float32"),
        ({"k_cache": CACHE.expand(1 << 29, 1, 8, 64)}, "k_cache must be of room for at most 2147483648 tokens"),
    ],
)
def test_bad_operands_are_named(host: CudaKernels, changes: dict[str, Any], message: str) -> None:
    operands = {"q": Q, "k": Q, "v": Q, "k_cache": CACHE, "slot_mapping": torch.zeros(2, dtype=torch.int64)}
    operands |= changes
    with pytest.raises(ValueError, match=message):
        rotate_and_cache(**operands, v_cache=operands["k_cache"])


def test_bad_operands_without_a_cache_are_named(host: CudaKernels) -> None:
    options = {"positions": torch.zeros(2, dtype=torch.int64), "cos_sin": rotation(4, 64)}
    with pytest.raises(ValueError, match=r"k must be float16 \[2, kv_heads, 64\] on cpu; it is float32"):
        rotate(Q, Q.float(), **options)
    with pytest.raises(ValueError, match=r"k must be float16 \[2, kv_heads, 64\] on cpu; it is float16 .* on meta"):
        rotate(Q, Q.to("meta"), **options)
