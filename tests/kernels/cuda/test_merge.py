"""Merging what several devices made of their shards of a cache."""

import pytest
import torch

from headway.kernels import reference
from headway.kernels.cuda import DecodeRows, DecodeTable, decode_attention, merge_partials
from headway.kernels.cuda.kernels import CudaKernels
from tests.kernels.cuda.cases import DecodeCase, DecodeStep
from tests.kernels.cuda.merge_step import MergeStep
from tests.kernels.cuda.schedules import SCHEDULES
from tests.kernels.test_merge_partials import random_partials


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("num_shards", "head_dim"), [(1, 64), (2, 80), (40, 80), (300, 256), (9, 300)])
def test_equals_the_definition(host: CudaKernels, num_shards: int, head_dim: int, schedule: int) -> None:
    """Up to more partials and dimensions than a CTA has threads."""
    host.set_schedule(schedule)
    step = MergeStep.of(num_shards, head_dim=head_dim)
    step.check(*step.run_with(host))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_only_the_result_is_rounded(host: CudaKernels, dtype: torch.dtype) -> None:
    partials = random_partials(3, num_tokens=4)
    assert torch.equal(merge_partials(partials, dtype=dtype), merge_partials(partials, dtype=torch.float32).to(dtype))


def test_views_are_read_and_written_in_place(host: CudaKernels) -> None:
    partials = random_partials(3, num_tokens=4)
    heads_first = partials.transpose(1, 2).contiguous().transpose(1, 2)
    room = torch.zeros(4, 6, 100)
    out = merge_partials(heads_first, dtype=torch.float32, out=room[..., :80])
    assert torch.equal(out, merge_partials(partials, dtype=torch.float32))
    assert not room[..., 80:].any()


def test_shards_of_a_cache_join_without_a_trace(host: CudaKernels) -> None:
    """Two devices see a part of each row's keys, one of them none of the second row's."""
    step = DecodeStep(DecodeCase(lengths=(300, 40), num_slots=2))
    rows, partials = step.rows, torch.empty(2, 2, 4, 65)
    cuts = rows.end_keys.copy()
    cuts[0] = 130
    for shard, (firsts, ends) in enumerate(((rows.first_keys, cuts), (cuts, rows.end_keys))):
        table = DecodeTable.allocate(num_rows=2, num_heads=4, head_dim=64, num_slots=2, device=torch.device("cpu"))
        table.load(DecodeRows(rows.sequences, firsts, ends, rows.positions))
        decode_attention(
            step.q,
            k_cache=step.k_cache,
            v_cache=step.v_cache,
            block_tables=step.block_tables,
            table=table,
            scale=step.scale,
            out=partials[shard, ..., :-1],
            lse=partials[shard, ..., -1],
        )
    assert (partials[1, 1, :, -1] == -torch.inf).all()
    joined_lse = torch.empty(2, 4)
    joined = merge_partials(partials, dtype=torch.float32, lse=joined_lse)
    step.check(joined, joined_lse)
    expected = torch.empty_like(joined)
    reference.merge_partials(partials, out=expected)
    torch.testing.assert_close(joined, expected, rtol=1e-5, atol=1e-5)


def test_no_rows_give_no_rows(host: CudaKernels) -> None:
    assert merge_partials(random_partials(2, num_tokens=0), dtype=torch.float32).shape[0] == 0


def test_the_dtype_is_checked(host: CudaKernels) -> None:
    with pytest.raises(ValueError, match="dtype must be float32, bfloat16 or float16"):
        merge_partials(random_partials(1), dtype=torch.float64)
