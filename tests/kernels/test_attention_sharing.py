"""Decodes that share blocks, computed together: the bits are those of each alone."""

import math
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from headway.kernels.cpu import CpuKernels

BLOCK_SIZES = (1, 4, 8, 13, 16, 32, 128)


@dataclass
class Cache:
    """Blocks with random content, handed out in random order."""

    block_size: int
    num_blocks: int = 900
    head_dim: int = 32
    num_kv_heads: int = 2
    dtype: torch.dtype = torch.float32
    free: list[int] = field(init=False)

    def __post_init__(self) -> None:
        shape = (self.num_blocks, self.num_kv_heads, self.block_size, self.head_dim)
        self.k_cache = torch.randn(*shape).mT.contiguous().mT.to(self.dtype)
        self.v_cache = torch.randn(*shape).to(self.dtype)
        self.free = torch.randperm(self.num_blocks).tolist()

    def blocks(self, num_tokens: int) -> list[int]:
        return [self.free.pop() for _ in range(-(-num_tokens // self.block_size))]


@dataclass(frozen=True)
class Branch:
    """A sequence that goes on, with tokens of its own, behind the first tokens of another's blocks."""

    parent: int
    num_shared: int
    num_own: int
    query_len: int = 1


def operands(cache: Cache, branches: list[Branch], *, num_heads: int, dtype: torch.dtype) -> dict[str, Any]:
    tables: list[list[int]] = []
    seq_lens: list[int] = []
    for branch in branches:
        parent = tables[branch.parent % len(tables)] if tables else cache.blocks(branch.num_shared)
        shared = parent[: branch.num_shared // cache.block_size]
        seq_lens.append(len(shared) * cache.block_size + branch.num_own)
        tables.append(shared + cache.blocks(branch.num_own))
    width = max(map(len, tables))
    query_lens = [branch.query_len for branch in branches]
    starts = torch.tensor([0, *query_lens]).cumsum(0)
    return {
        "q": torch.randn(sum(query_lens), num_heads, cache.head_dim).to(dtype),
        "k_cache": cache.k_cache,
        "v_cache": cache.v_cache,
        "block_tables": torch.tensor([table + [-1] * (width - len(table)) for table in tables], dtype=torch.int32),
        "seq_lens": torch.tensor(seq_lens, dtype=torch.int32),
        "query_start": starts.to(torch.int32),
        "scale": 1 / math.sqrt(cache.head_dim),
        "sliding_window": None,
        "key_spans": None,
        "out": None,
    }


def run(kernels: CpuKernels, step: dict[str, Any]) -> tuple[Tensor, Tensor]:
    lse = torch.full(step["q"].shape[:2], torch.nan)
    return kernels.paged_attention(**step, lse=lse), lse


def assert_as_if_alone(kernels: CpuKernels, step: dict[str, Any]) -> None:
    out, lse = run(kernels, step)
    assert not out.isnan().any()
    starts = step["query_start"].tolist()
    for sequence in range(len(starts) - 1):
        rows = slice(starts[sequence], starts[sequence + 1])
        alone = {
            **step,
            "q": step["q"][rows],
            "block_tables": step["block_tables"][sequence : sequence + 1],
            "seq_lens": step["seq_lens"][sequence : sequence + 1],
            "query_start": torch.tensor([0, rows.stop - rows.start], dtype=torch.int32),
            "key_spans": None if step["key_spans"] is None else step["key_spans"][rows],
        }
        expected, expected_lse = run(kernels, alone)
        assert torch.equal(out[rows], expected)
        assert torch.equal(lse[rows], expected_lse)


def behind_a_prefix(num_sequences: int, num_shared: int, *, num_own: int = 40) -> list[Branch]:
    return [Branch(0, num_shared, 1 + (i * 17) % num_own) for i in range(num_sequences)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("cache_dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("block_size", BLOCK_SIZES)
def test_a_prefix_of_any_type_and_block_size(
    kernels: CpuKernels, block_size: int, cache_dtype: torch.dtype, dtype: torch.dtype
) -> None:
    cache = Cache(block_size, num_blocks=2 + 1700 // block_size, dtype=cache_dtype)
    assert_as_if_alone(kernels, operands(cache, behind_a_prefix(5, 704), num_heads=4, dtype=dtype))


@pytest.mark.parametrize("num_shared", [0, 48, 64, 80, 128, 496, 512, 528, 576, 1024, 1040, 1100])
@pytest.mark.parametrize("num_own", [1, 16, 64, 600])
def test_a_prefix_of_any_length(kernels: CpuKernels, num_shared: int, num_own: int) -> None:
    branches = [Branch(0, num_shared, num_own + i) for i in range(4)]
    assert_as_if_alone(kernels, operands(Cache(16), branches, num_heads=4, dtype=torch.float32))


@pytest.mark.parametrize("num_shared", [256, 512, 1024])
def test_sequences_that_end_with_what_they_share(kernels: CpuKernels, num_shared: int) -> None:
    branches = [Branch(0, num_shared, 0), *(Branch(0, num_shared, i) for i in range(3))]
    assert_as_if_alone(kernels, operands(Cache(16), branches, num_heads=4, dtype=torch.float32))


@pytest.mark.parametrize("num_sequences", [2, 3, 16, 17, 40, 70])
@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(2, 2), (6, 2), (28, 1), (66, 1)])
def test_any_number_of_rows(kernels: CpuKernels, num_sequences: int, num_heads: int, num_kv_heads: int) -> None:
    cache = Cache(16, num_kv_heads=num_kv_heads)
    branches = behind_a_prefix(num_sequences, 576, num_own=20)
    assert_as_if_alone(kernels, operands(cache, branches, num_heads=num_heads, dtype=torch.float32))


@pytest.mark.parametrize("head_dim", [8, 24, 64, 72, 128, 512])
def test_any_size_of_heads(kernels: CpuKernels, head_dim: int) -> None:
    cache = Cache(16, num_blocks=100, head_dim=head_dim)
    assert_as_if_alone(kernels, operands(cache, behind_a_prefix(3, 640), num_heads=4, dtype=torch.float32))


@pytest.mark.parametrize("window", [1, 50, 500, 700, 1100, 10_000])
def test_a_sliding_window(kernels: CpuKernels, window: int) -> None:
    step = operands(Cache(16), behind_a_prefix(6, 1280), num_heads=4, dtype=torch.float32)
    assert_as_if_alone(kernels, {**step, "sliding_window": window})


def test_the_number_of_threads_changes_no_bit(kernels: CpuKernels) -> None:
    step = operands(Cache(16), behind_a_prefix(9, 704), num_heads=4, dtype=torch.float32)
    results = []
    for num_threads in (1, 2, 5):
        torch.set_num_threads(num_threads)
        results.append(run(kernels, step)[0])
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


BRANCHES = st.lists(
    st.builds(
        Branch,
        parent=st.integers(0, 20),
        num_shared=st.sampled_from([0, 60, 64, 200, 448, 512, 520, 700, 1024]),
        num_own=st.integers(1, 150),
        query_len=st.sampled_from([1, 1, 1, 1, 2, 40]),
    ).map(
        lambda branch: Branch(branch.parent, branch.num_shared, max(branch.num_own, branch.query_len), branch.query_len)
    ),
    min_size=2,
    max_size=12,
)


@given(
    branches=BRANCHES,
    block_size=st.sampled_from(BLOCK_SIZES[1:]),
    window=st.sampled_from([None, None, 30, 500, 900]),
    has_spans=st.booleans(),
    is_wide=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_trees_of_prefixes(
    kernels: CpuKernels,
    branches: list[Branch],
    block_size: int,
    window: int | None,
    has_spans: bool,
    is_wide: bool,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    cache = Cache(block_size, num_blocks=3500 // block_size + 12, dtype=torch.float32 if is_wide else torch.bfloat16)
    step = operands(cache, branches, num_heads=6, dtype=torch.float32)
    if has_spans:
        lens = torch.repeat_interleave(step["seq_lens"], step["query_start"].diff())
        ends = lens - (torch.rand(len(lens)) < 0.3) * (torch.rand(len(lens)) * lens).int()
        firsts = (torch.rand(len(lens)) < 0.3) * (torch.rand(len(lens)) * ends).int()
        step["key_spans"] = torch.stack((firsts, ends), dim=1).to(torch.int32)
    else:
        step["sliding_window"] = window
    assert_as_if_alone(kernels, step)
