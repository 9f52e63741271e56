"""What shards computed of one attention, joined: against the definition, and against attention that was not split."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from headway.kernels import merge_partials
from headway.kernels.dispatch import Kernels
from tests.kernels.shards import Shape, ShardedCache, ShardedSequence, brute_force, query_start


def random_partials(num_shards: int, num_tokens: int = 37, num_heads: int = 6, head_dim: int = 80) -> Tensor:
    """A third of the shards' rows are empty and hold NaN besides; those of token 0 are empty in all shards."""
    partials = torch.randn(num_shards, num_tokens, num_heads, head_dim + 1)
    partials[..., -1] *= 5
    is_empty = torch.rand(partials.shape[:-1]) < 1 / 3
    is_empty[:, :1] = True
    partials[is_empty] = torch.nan
    partials[..., -1][is_empty] = -torch.inf
    return partials


def merged_exactly(partials: Tensor) -> Tensor:
    weights = partials[..., -1:].double().exp()
    values = torch.where(weights > 0, partials[..., :-1].double(), 0)
    sums = weights.sum(dim=0)
    return torch.where(sums > 0, (values * weights).sum(dim=0) / sums, 0)


@pytest.mark.parametrize("num_shards", [1, 2, 5])
@pytest.mark.parametrize("head_dim", [3, 16, 64, 80, 96, 128])
def test_equals_the_definition(implementation: Kernels, num_shards: int, head_dim: int) -> None:
    partials = random_partials(num_shards, head_dim=head_dim)
    out = torch.full((37, 6, head_dim), torch.nan)
    implementation.merge_partials(partials, out=out)
    torch.testing.assert_close(out.double(), merged_exactly(partials), rtol=1e-5, atol=1e-6)
    assert not out[0].any()


def test_bfloat16_rounds_only_the_result(implementation: Kernels) -> None:
    partials = random_partials(3)
    narrow, wide = torch.empty(37, 6, 80, dtype=torch.bfloat16), torch.empty(37, 6, 80)
    implementation.merge_partials(partials, out=narrow)
    implementation.merge_partials(partials, out=wide)
    assert torch.equal(narrow, wide.bfloat16())


def test_one_shard_is_its_own(implementation: Kernels) -> None:
    partials = random_partials(1)
    out = torch.empty(37, 6, 80)
    implementation.merge_partials(partials, out=out)
    assert torch.equal(out, partials[0, ..., :-1].nan_to_num())


def test_an_empty_shard_changes_no_bit(implementation: Kernels) -> None:
    partials = random_partials(2)
    empty = torch.full_like(partials[:1], torch.nan)
    empty[..., -1] = -torch.inf
    outs = [torch.empty(37, 6, 80) for _ in range(2)]
    implementation.merge_partials(partials, out=outs[0])
    implementation.merge_partials(torch.cat((partials[:1], empty, partials[1:])), out=outs[1])
    assert torch.equal(outs[0], outs[1])


@pytest.mark.parametrize("shift", [-500.0, 500.0])
def test_large_logarithms_do_not_overflow(implementation: Kernels, shift: float) -> None:
    partials = random_partials(4)
    expected = merged_exactly(partials)
    partials[..., -1] += shift
    out = torch.empty(37, 6, 80)
    implementation.merge_partials(partials, out=out)
    torch.testing.assert_close(out.double(), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_views_are_read_and_written_in_place(dtype: torch.dtype) -> None:
    partials = random_partials(3)
    expected = merge_partials(partials, dtype=dtype)
    assert expected.dtype is dtype
    heads_first = partials.transpose(1, 2).contiguous().transpose(1, 2)
    wide = torch.zeros(37, 6, 100, dtype=dtype)
    out = merge_partials(heads_first, dtype=dtype, out=wide[..., :80])
    assert torch.equal(out, expected)
    assert torch.equal(wide[..., :80], expected)
    assert not wide[..., 80:].any()


def test_the_number_of_threads_changes_no_bit() -> None:
    partials = random_partials(4, num_tokens=64)
    results = []
    for num_threads in (1, 2, 5):
        torch.set_num_threads(num_threads)
        results.append(merge_partials(partials, dtype=torch.float32))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("partials", torch.zeros(37, 6, 81)),
        ("partials", torch.zeros(0, 37, 6, 81)),
        ("partials", torch.zeros(2, 37, 6, 81, dtype=torch.bfloat16)),
        ("partials", torch.zeros(2, 37, 6, 162)[..., ::2]),
        ("partials", torch.zeros(2, 1, 1, 514)),
        ("dtype", torch.float64),
        ("out", torch.zeros(37, 6, 81)),
        ("out", torch.zeros(37, 6, 80, dtype=torch.bfloat16)),
        ("out", torch.zeros(1, 6, 80).expand(37, 6, 80)),
    ],
)
def test_a_bad_operand_is_named(name: str, value: Any) -> None:
    operands = {"partials": torch.zeros(2, 37, 6, 81), "dtype": torch.float32, name: value}
    with pytest.raises(ValueError, match=f"^{name} must"):
        merge_partials(**operands)


@st.composite
def steps(draw: st.DrawFn) -> tuple[Shape, int, int | None, list[tuple[int, int, list[int]]]]:
    """Shape, number of shards, window, and each sequence's query length, context length and owners of blocks."""
    num_kv_heads = draw(st.sampled_from([1, 2]))
    shape = Shape(
        num_heads=num_kv_heads * draw(st.sampled_from([1, 2, 4, 8])),
        num_kv_heads=num_kv_heads,
        head_dim=draw(st.sampled_from([16, 64, 80, 96, 128])),
        block_size=draw(st.sampled_from([8, 16, 32, 128])),
        cache_dtype=draw(st.sampled_from([torch.float32, torch.bfloat16])),
    )
    num_shards = draw(st.integers(1, 5))
    window = draw(st.none() | st.integers(1, 300))
    sequences = []
    for _ in range(draw(st.integers(1, 4))):
        query_len = draw(st.just(1) | st.integers(1, 80))
        context_len = query_len + draw(st.integers(0, 600))
        num_blocks = -(-context_len // shape.block_size)
        owners = draw(st.lists(st.integers(0, num_shards - 1), min_size=num_blocks, max_size=num_blocks))
        sequences.append((query_len, context_len, owners))
    return shape, num_shards, window, sequences


@given(step=steps(), seed=st.integers(0, 1000))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_attention_over_shards_equals_attention_over_all_keys(
    implementation: Kernels, step: tuple[Shape, int, int | None, list[tuple[int, int, list[int]]]], seed: int
) -> None:
    shape, num_shards, window, drawn = step
    torch.manual_seed(seed)
    sequences = [ShardedSequence(shape, context_len, owners) for _, context_len, owners in drawn]
    query_lens = [query_len for query_len, _, _ in drawn]
    q = torch.randn(sum(query_lens), shape.num_heads, shape.head_dim)
    positions = [torch.arange(context_len - query_len, context_len)[:, None] for query_len, context_len, _ in drawn]
    firsts = [torch.zeros_like(p) if window is None else (p + 1 - window).clamp_min(0) for p in positions]

    partials = torch.full((num_shards, *q.shape[:2], shape.head_dim + 1), torch.nan)
    for shard, partial in enumerate(partials):
        cache, spans = ShardedCache(shape), []
        for sequence, rows, first in zip(sequences, positions, firsts, strict=True):
            held = sequence.positions(shard)
            cache.add(sequence.k[held], sequence.v[held])
            spans.append(torch.cat(((held < first).sum(1, keepdim=True), (held <= rows).sum(1, keepdim=True)), dim=1))
        implementation.paged_attention(
            q,
            **cache.operands(),
            query_start=query_start(query_lens),
            key_spans=torch.cat(spans).to(torch.int32),
            out=partial[..., :-1],
            lse=partial[..., -1],
        )
    merged = torch.empty_like(q)
    implementation.merge_partials(partials, out=merged)

    for sequence, rows, first, queries, ours in zip(
        sequences, positions, firsts, q.split(query_lens), merged.split(query_lens), strict=True
    ):
        keys = torch.arange(len(sequence.k))
        visible = (first <= keys) & (keys <= rows)
        expected, _ = brute_force(queries, sequence.k, sequence.v, visible=visible, scale=shape.scale)
        torch.testing.assert_close(ours.double(), expected, rtol=1e-5, atol=3e-6)


def test_bfloat16_activations_are_merged_in_float32(implementation: Kernels) -> None:
    shape = Shape(dtype=torch.bfloat16, cache_dtype=torch.bfloat16)
    sequence = ShardedSequence(shape, 900, [block % 3 for block in range(57)])
    q = torch.randn(1, shape.num_heads, shape.head_dim).bfloat16()
    partials = torch.empty(3, 1, shape.num_heads, shape.head_dim + 1)
    for shard, partial in enumerate(partials):
        cache, held = ShardedCache(shape), sequence.positions(shard)
        cache.add(sequence.k[held], sequence.v[held])
        implementation.paged_attention(
            q,
            **cache.operands(),
            query_start=query_start([1]),
            key_spans=torch.tensor([[0, len(held)]], dtype=torch.int32),
            out=partial[..., :-1],
            lse=partial[..., -1],
        )
    merged = torch.empty_like(q)
    implementation.merge_partials(partials, out=merged)
    visible = torch.ones(1, 900, dtype=torch.bool)
    expected, _ = brute_force(q, sequence.k, sequence.v, visible=visible, scale=shape.scale)
    torch.testing.assert_close(merged.double(), expected, rtol=2**-8, atol=3e-6)
