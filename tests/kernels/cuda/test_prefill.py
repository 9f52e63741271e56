"""Prefill attention: the kernels' own source on the CPU, against the definition in float64."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.kernels.cuda import prefill_attention
from headway.kernels.cuda.kernels import CudaKernels
from tests.kernels.cuda.cases import BF16, F16, F32
from tests.kernels.cuda.prefill_cases import PREFILL_CASES, PrefillCase, PrefillStep
from tests.kernels.cuda.schedules import SCHEDULES


@pytest.mark.parametrize("case", PREFILL_CASES, ids=lambda case: f"{case.head_dim}-{case.num_heads}-{case.cache_dtype}")
def test_equals_the_definition_whatever_turns_the_threads_take(host: CudaKernels, case: PrefillCase) -> None:
    step = PrefillStep(case)
    results = []
    for schedule in SCHEDULES:
        host.set_schedule(schedule)
        results.append(step.run())
    out, lse = results[0]
    step.check(out, lse)
    for other_out, other_lse in results[1:]:
        assert torch.equal(out, other_out)
        assert torch.equal(lse, other_lse)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 70), st.integers(0, 60)), min_size=1, max_size=4),
    block_size=st.integers(8, 128),
    group=st.sampled_from([1, 3, 7]),
    window=st.none() | st.integers(1, 100),
    is_narrow=st.booleans(),
)
def test_any_lengths_and_blocks(
    host: CudaKernels,
    lengths: list[tuple[int, int]],
    block_size: int,
    group: int,
    window: int | None,
    is_narrow: bool,
) -> None:
    host.set_schedule(0)
    dtype = F16 if is_narrow else F32
    case = PrefillCase(
        query_lens=tuple(num_queries for num_queries, _ in lengths),
        seq_lens=tuple(num_queries + context for num_queries, context in lengths),
        head_dim=16,
        block_size=block_size,
        num_heads=group,
        num_kv_heads=1,
        sliding_window=window,
        query_dtype=dtype,
        cache_dtype=dtype,
    )
    step = PrefillStep(case)
    step.check(*step.run())


def test_the_result_may_be_narrow_and_anywhere(host: CudaKernels) -> None:
    step = PrefillStep(PrefillCase(query_dtype=BF16, cache_dtype=BF16))
    out, _ = step.run()
    room = torch.zeros(*out.shape[:2], 100, dtype=BF16)
    prefill_attention(**step.operands, out=room[..., :64])
    assert torch.equal(room[..., :64], out.bfloat16())
    assert not room[..., 64:].any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"q": torch.zeros(58, 4, 72)}, "q must be of a head_dim of a multiple of 16 up to 256"),
        ({"q": torch.zeros(58, 3, 64)}, "q must have a multiple of 2 heads, as k_cache has; it has 3"),
        ({"seq_lens": torch.zeros(4, dtype=torch.int64)}, r"seq_lens must be int32 \[4\]"),
        ({"query_start": torch.zeros(4, dtype=torch.int32)}, r"query_start must be int32 \[5\]"),
        ({"key_spans": torch.zeros(3, 2, dtype=torch.int32)}, r"key_spans must be int32 \[58, 2\]"),
        ({"sliding_window": 0}, "sliding_window must be at least 1; it is 0"),
        (
            {"sliding_window": 3, "key_spans": torch.zeros(58, 2, dtype=torch.int32)},
            "sliding_window and alibi_slopes must be None with key_spans",
        ),
        ({"key_scale": 0.0}, r"key_scale must be a positive number; it is 0\.0"),
        ({"lse": torch.zeros(58, 4, 1)}, r"lse must be float32 \[58, 4\]"),
    ],
)
def test_bad_operands_are_named(host: CudaKernels, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prefill_attention(**{**PrefillStep(PrefillCase()).operands, **changes})
