"""Decode attention: the kernels' own source on the CPU, against the definition in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.kernels.cuda import decode_attention, decode_slots
from headway.kernels.cuda.kernels import CudaKernels
from tests.kernels.cuda.cases import BF16, CASES, F16, F32, FP8, DecodeCase, DecodeStep
from tests.kernels.cuda.schedules import SCHEDULES


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.head_dim}-{case.num_heads}-{case.cache_dtype}")
def test_equals_the_definition_whatever_turns_the_threads_take(host: CudaKernels, case: DecodeCase) -> None:
    step = DecodeStep(case)
    results = []
    for schedule in SCHEDULES:
        host.set_schedule(schedule)
        results.append(step.run())
    out, lse = results[0]
    step.check(out, lse)
    for other_out, other_lse in results[1:]:
        assert torch.equal(out, other_out)
        assert torch.equal(lse, other_lse)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    lengths=st.lists(st.integers(0, 180), min_size=1, max_size=4),
    block_size=st.integers(8, 128),
    group=st.sampled_from([1, 4, 8, 12]),
    cache_dtype=st.sampled_from([F16, FP8]),
    window=st.none() | st.integers(1, 200),
    num_slots=st.integers(1, 20),
)
def test_any_lengths_and_blocks(
    host: CudaKernels,
    lengths: list[int],
    block_size: int,
    group: int,
    cache_dtype: torch.dtype,
    window: int | None,
    num_slots: int,
) -> None:
    case = DecodeCase(
        lengths=tuple(lengths),
        block_size=block_size,
        num_heads=group,
        num_kv_heads=1,
        cache_dtype=cache_dtype,
        sliding_window=window,
        num_slots=num_slots,
    )
    step = DecodeStep(case)
    step.check(*step.run())


@pytest.mark.parametrize(
    ("heads", "dtypes", "num_slots"),
    [
        ((32, 8, 128), (BF16, BF16), 2),
        ((32, 4, 128), (BF16, FP8), 4),
        ((20, 1, 128), (F16, F16), 8),
        ((20, 1, 256), (F16, F16), 5),
        ((9, 1, 64), (F32, F32), 5),
        ((64, 32, 64), (F16, F16), 1),
    ],
)
def test_slots_are_what_is_resident_over_the_ctas_of_a_range(
    host: CudaKernels, heads: tuple[int, int, int], dtypes: tuple[torch.dtype, torch.dtype], num_slots: int
) -> None:
    """The emulation has 16 CTAs; a range takes one for each KV head and 16 of the heads that share it, or 8 or 4."""
    num_heads, num_kv_heads, head_dim = heads
    q, k_cache = torch.empty(0, num_heads, head_dim), torch.empty(0, num_kv_heads, 16, head_dim)
    assert decode_slots(q.to(dtypes[0]), k_cache=k_cache.to(dtypes[1])) == num_slots


def test_slots_of_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match="q must have a multiple of 0 heads, as k_cache has; it has 4"):
        decode_slots(torch.empty(0, 4, 64), k_cache=torch.empty(0, 0, 16, 64))


def test_an_empty_row_gets_zeros_and_no_sum(host: CudaKernels) -> None:
    out, lse = DecodeStep(DecodeCase(lengths=(0, 20))).run()
    assert not out[0].any()
    assert (lse[0] == -torch.inf).all()


def test_the_result_may_be_narrow_and_anywhere(host: CudaKernels) -> None:
    step = DecodeStep(DecodeCase(query_dtype=BF16, cache_dtype=BF16))
    out, _ = step.run()
    room = torch.zeros(len(out), 4, 100, dtype=BF16)
    decode_attention(
        step.q,
        k_cache=step.k_cache,
        v_cache=step.v_cache,
        block_tables=step.block_tables,
        table=step.table,
        scale=step.scale,
        out=room[..., :64],
    )
    assert torch.equal(room[..., :64], out.bfloat16())
    assert not room[..., 64:].any()


def test_blocks_may_lie_gigabytes_apart(host: CudaKernels) -> None:
    """The memory between them is never touched."""
    step = DecodeStep(DecodeCase(lengths=(300,), block_size=8))
    shape, distance = step.k_cache.shape, 1 << 26
    memory = torch.empty(shape[0] * distance, dtype=F16)
    assert memory.nbytes > 1 << 32
    for offset, name in enumerate(("k_cache", "v_cache")):
        strides = (distance, *step.k_cache.stride()[1:])
        far = memory.as_strided(shape, strides, offset * distance // 2)
        far.copy_(getattr(step, name))
        setattr(step, name, far)
    step.check(*step.run())
