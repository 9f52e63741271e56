"""Attention of rows that see spans of the keys, against brute force in float64."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from headway.kernels import paged_attention
from headway.kernels.cpu import CpuKernels
from headway.kernels.dispatch import Kernels
from tests.kernels.shards import Shape, ShardedCache, brute_force, query_start
from tests.kernels.test_attention import Case

# (queries, keys) of each sequence: without keys, with fewer keys than queries, with long contexts.
SEQUENCES = ((1, 0), (3, 5), (70, 40), (1, 1500), (4, 700), (33, 130), (0, 20), (2, 90))
UNSEEING = 7  # has keys that no query sees


def random_spans(num_queries: int, num_keys: int) -> Tensor:
    """Every third or so empty, wherever it lies."""
    spans = torch.randint(0, num_keys + 1, (num_queries, 2)).sort(dim=1).values
    is_empty = torch.rand(num_queries) < 0.3
    spans[is_empty, 1] = spans[is_empty, 0]
    return spans.to(torch.int32)


def step(shape: Shape) -> tuple[dict[str, Any], Tensor, Tensor]:
    """Operands, and what is expected in `out` and `lse`."""
    cache, query_lens = ShardedCache(shape), [num_queries for num_queries, _ in SEQUENCES]
    q = torch.randn(sum(query_lens), shape.num_heads, shape.head_dim).to(shape.dtype)
    spans, expected = [], []
    for sequence, (rows, (num_queries, num_keys)) in enumerate(zip(q.split(query_lens), SEQUENCES, strict=True)):
        k, v = (torch.randn(num_keys, shape.num_kv_heads, shape.head_dim).to(shape.cache_dtype) for _ in range(2))
        cache.add(k, v)
        spans.append(random_spans(num_queries, num_keys))
        if sequence == UNSEEING:
            spans[-1][:, 1] = spans[-1][:, 0]
        keys = torch.arange(num_keys)
        visible = (spans[-1][:, :1] <= keys) & (keys < spans[-1][:, 1:])
        expected.append(brute_force(rows, k, v, visible=visible, scale=shape.scale))
    operands = {
        **cache.operands(),
        "q": q,
        "query_start": query_start(query_lens),
        "key_spans": torch.cat(spans),
        "out": None,
        "lse": torch.full(q.shape[:2], torch.nan),
    }
    forget_unseen_blocks(operands, shape.block_size)
    return operands, torch.cat([out for out, _ in expected]), torch.cat([lse for _, lse in expected])


def forget_unseen_blocks(operands: dict[str, Any], block_size: int) -> None:
    for table, (begin, end) in zip(operands["block_tables"], pairwise(operands["query_start"].tolist()), strict=True):
        spans = [span for span in operands["key_spans"][begin:end].tolist() if span[0] < span[1]]
        first, last = (min(s[0] for s in spans), max(s[1] for s in spans)) if spans else (0, 0)
        table[: first // block_size] = -1
        table[-(-last // block_size) :] = -1


SHAPES = [
    Shape(),
    Shape(num_heads=3, num_kv_heads=3, head_dim=16, block_size=8),
    Shape(num_heads=8, num_kv_heads=2, head_dim=80, block_size=32),
    Shape(num_heads=8, num_kv_heads=1, head_dim=96, block_size=128),
    Shape(num_heads=4, num_kv_heads=2, head_dim=128, block_size=64),
    Shape(num_heads=2, num_kv_heads=1, head_dim=72, block_size=13),
    Shape(cache_dtype=torch.bfloat16),
    Shape(cache_dtype=torch.bfloat16, num_heads=8, num_kv_heads=1, head_dim=128),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equals_brute_force(implementation: Kernels, shape: Shape) -> None:
    operands, expected, expected_lse = step(shape)
    out = implementation.paged_attention(**operands)
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=3e-6)
    torch.testing.assert_close(operands["lse"].double(), expected_lse, rtol=1e-5, atol=3e-6)


@pytest.mark.parametrize("cache_dtype", [torch.float32, torch.bfloat16])
def test_bfloat16_queries_give_float32_partials(implementation: Kernels, cache_dtype: torch.dtype) -> None:
    operands, expected, expected_lse = step(Shape(dtype=torch.bfloat16, cache_dtype=cache_dtype))
    operands["out"] = torch.full(operands["q"].shape, torch.nan)
    wide = implementation.paged_attention(**operands)
    assert wide is operands["out"]
    torch.testing.assert_close(wide.double(), expected, rtol=1e-5, atol=3e-6)
    torch.testing.assert_close(operands["lse"].double(), expected_lse, rtol=1e-5, atol=3e-6)
    narrow = implementation.paged_attention(**{**operands, "out": None})
    assert torch.equal(narrow, wide.bfloat16())


@pytest.mark.parametrize("window", [None, 37, 600])
def test_spans_of_a_whole_context_give_the_causal_bits(kernels: CpuKernels, window: int | None) -> None:
    operands = Case(sliding_window=window).operands()
    causal_lse = torch.empty(operands["q"].shape[:2])
    causal = kernels.paged_attention(**{**operands, "lse": causal_lse})
    assert torch.equal(causal, kernels.paged_attention(**operands))
    ends = torch.cat(
        [
            torch.arange(seq_len - query_len, seq_len) + 1
            for seq_len, query_len in zip(Case.seq_lens, Case.query_lens, strict=True)
        ]
    )
    firsts = torch.zeros_like(ends) if window is None else (ends - window).clamp_min(0)
    lse = torch.empty_like(causal_lse)
    spans = torch.stack((firsts, ends), dim=1).to(torch.int32)
    out = kernels.paged_attention(**{**operands, "sliding_window": None, "key_spans": spans, "lse": lse})
    assert torch.equal(out, causal)
    assert torch.equal(lse, causal_lse)


@pytest.mark.parametrize("heads_first", [False, True])
def test_out_and_lse_are_written_into_one_packed_tensor(implementation: Kernels, heads_first: bool) -> None:
    operands, _, _ = step(SHAPES[2])
    num_tokens, num_heads, head_dim = operands["q"].shape
    expected = implementation.paged_attention(**operands)
    sizes = (num_heads, num_tokens) if heads_first else (num_tokens, num_heads)
    memory = torch.zeros(*sizes, head_dim + 2)
    packed = memory.transpose(0, 1) if heads_first else memory
    lse = operands["lse"]
    implementation.paged_attention(**{**operands, "out": packed[..., :head_dim], "lse": packed[..., head_dim]})
    assert torch.equal(packed[..., :head_dim], expected)
    assert torch.equal(packed[..., head_dim], lse)
    assert not packed[..., head_dim + 1].any()


@pytest.mark.parametrize("num_queries", [1, 3, 500])
def test_a_shard_without_any_block_gives_zeros(implementation: Kernels, num_queries: int) -> None:
    shape = Shape()
    cache = ShardedCache(shape)
    for _ in range(3):
        cache.add(torch.empty(0, 2, 64), torch.empty(0, 2, 64))
    lse = torch.full((3 * num_queries, shape.num_heads), torch.nan)
    operands = {
        **cache.operands(),
        "q": torch.randn(3 * num_queries, shape.num_heads, shape.head_dim),
        "query_start": query_start([num_queries] * 3),
        "key_spans": torch.zeros(3 * num_queries, 2, dtype=torch.int32),
        "out": torch.full((3 * num_queries, shape.num_heads, shape.head_dim), torch.nan),
        "lse": lse,
    }
    assert operands["block_tables"].shape == (3, 0)
    assert not implementation.paged_attention(**operands).any()
    assert (lse == -torch.inf).all()


def test_the_number_of_threads_changes_no_bit(kernels: CpuKernels) -> None:
    operands, _, _ = step(SHAPES[0])
    results = []
    for num_threads in (1, 2, 5):
        torch.set_num_threads(num_threads)
        lse = torch.empty_like(operands["lse"])
        results.append(torch.cat((kernels.paged_attention(**{**operands, "lse": lse}), lse[..., None]), dim=2))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("key_spans", (0, 0), -1),
        ("key_spans", (1, 0), 9),
        ("key_spans", (1, 1), 21),
        ("key_spans", (2, 1), 4),
        ("seq_lens", (0,), -1),
        ("seq_lens", (0,), 33),
        ("block_tables", (0, 1), -1),
        ("block_tables", (0, 0), 100),
        ("query_start", (1,), 4),
    ],
)
def test_impossible_values_are_refused(name: str, place: tuple[int, ...], value: int) -> None:
    cache = ShardedCache(Shape())
    for num_keys in (20, 3):
        cache.add(torch.randn(num_keys, 2, 64), torch.randn(num_keys, 2, 64))
    operands = {
        **cache.operands(),
        "q": torch.randn(3, 4, 64),
        "query_start": query_start([2, 1]),
        "key_spans": torch.tensor([[3, 20], [0, 8], [0, 3]], dtype=torch.int32),
        "out": torch.zeros(3, 4, 64),
        "lse": torch.zeros(3, 4),
    }
    operands[name][place] = value
    with pytest.raises(ValueError, match=f"^{name} "):
        paged_attention(**operands)
    assert not operands["out"].any()
    assert not operands["lse"].any()


def test_a_window_beside_spans_is_refused() -> None:
    operands, _, _ = step(SHAPES[0])
    with pytest.raises(ValueError, match=r"^sliding_window must be None with key_spans"):
        paged_attention(**{**operands, "sliding_window": 5})
