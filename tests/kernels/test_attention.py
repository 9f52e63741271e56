"""Paged attention against the reference in float64 and against torch's own attention."""

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from headway.kernels import paged_attention, reference
from headway.kernels.cpu import CpuKernels
from tests.kernels.conftest import SEED


@dataclass(frozen=True)
class Case:
    query_lens: tuple[int, ...] = (1, 5, 1, 77, 130, 1)
    seq_lens: tuple[int, ...] = (1, 9, 200, 77, 700, 1500)
    num_heads: int = 8
    num_kv_heads: int = 4
    head_dim: int = 64
    block_size: int = 16
    dtype: torch.dtype = torch.float32
    cache_dtype: torch.dtype = torch.float32
    sliding_window: int | None = None

    def operands(self) -> dict[str, Any]:
        """Blocks lie scattered; what no token was written to holds NaN."""
        num_blocks = [-(-n // self.block_size) for n in self.seq_lens]
        shape = (sum(num_blocks) + 3, self.num_kv_heads, self.block_size, self.head_dim)
        caches = torch.full((2, *shape), torch.nan)
        tables = torch.full((len(num_blocks), max(num_blocks, default=0) + 1), -1, dtype=torch.int32)
        free = torch.randperm(shape[0]).tolist()
        for sequence, seq_len in enumerate(self.seq_lens):
            blocks = [free.pop() for _ in range(num_blocks[sequence])]
            tables[sequence, : len(blocks)] = torch.tensor(blocks, dtype=torch.int32)
            for place, block in enumerate(blocks):
                num_slots = min(self.block_size, seq_len - place * self.block_size)
                caches[:, block, :, :num_slots] = torch.randn(2, shape[1], num_slots, shape[3])
        starts = torch.tensor((0, *self.query_lens)).cumsum(0)
        return {
            "q": torch.randn(sum(self.query_lens), self.num_heads, self.head_dim).to(self.dtype),
            "k_cache": caches[0].mT.contiguous().mT.to(self.cache_dtype),
            "v_cache": caches[1].to(self.cache_dtype),
            "block_tables": tables,
            "seq_lens": torch.tensor(self.seq_lens, dtype=torch.int32),
            "query_start": starts.to(torch.int32),
            "scale": 1 / math.sqrt(self.head_dim),
            "sliding_window": self.sliding_window,
            "key_spans": None,
            "out": None,
            "lse": None,
        }


def exact(operands: dict[str, Any]) -> Tensor:
    wide = {name: operands[name].double() for name in ("q", "k_cache", "v_cache")}
    return reference.paged_attention(**{**operands, **wide})


@cache
def exact_of(case: Case) -> Tensor:
    """Of the operands that a test begins with: they are the same for every variant."""
    torch.manual_seed(SEED)
    return exact(case.operands())


CASES = [
    Case(),
    Case(num_heads=4),
    Case(num_heads=7, num_kv_heads=1, head_dim=80, block_size=13),
    Case(num_heads=28, num_kv_heads=4, head_dim=128, block_size=128),
    Case(num_heads=3, num_kv_heads=3, head_dim=16, block_size=8),
    Case(head_dim=72, block_size=32),
    Case(block_size=1),
    Case(block_size=2, cache_dtype=torch.bfloat16, sliding_window=100),
    Case(block_size=4, num_heads=6, num_kv_heads=2),
    Case(block_size=4, cache_dtype=torch.bfloat16, sliding_window=37),
    Case(block_size=8, num_heads=32, sliding_window=600),
    Case(head_dim=8, num_heads=12, num_kv_heads=2),
    Case(head_dim=96, num_heads=2, num_kv_heads=2),
    Case(query_lens=(3,), seq_lens=(3000,)),
    Case(query_lens=(1, 0, 2), seq_lens=(4096, 0, 513)),
    Case(query_lens=(600,), seq_lens=(600,), num_heads=2, num_kv_heads=1),
    Case(cache_dtype=torch.bfloat16),
    Case(cache_dtype=torch.bfloat16, head_dim=40, num_heads=10, num_kv_heads=2),
    Case(sliding_window=1),
    Case(sliding_window=37),
    Case(sliding_window=600, head_dim=40),
    Case(sliding_window=10_000),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_the_reference(kernels: CpuKernels, case: Case) -> None:
    out = kernels.paged_attention(**case.operands())
    torch.testing.assert_close(out.double(), exact_of(case), rtol=1e-5, atol=3e-6)


@pytest.mark.parametrize("cache_dtype", [torch.float32, torch.bfloat16])
def test_bfloat16_rounds_only_the_result(kernels: CpuKernels, cache_dtype: torch.dtype) -> None:
    case = Case(dtype=torch.bfloat16, cache_dtype=cache_dtype)
    out = kernels.paged_attention(**case.operands())
    assert out.dtype is torch.bfloat16
    torch.testing.assert_close(out.double(), exact_of(case), rtol=2**-8, atol=3e-6)


@pytest.mark.parametrize(("num_heads", "num_kv_heads", "head_dim"), [(8, 4, 64), (6, 6, 80), (8, 1, 128)])
def test_equals_torch_attention(kernels: CpuKernels, num_heads: int, num_kv_heads: int, head_dim: int) -> None:
    case = Case((150,), (150,), num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim)
    operands = case.operands()
    blocks = operands["block_tables"][0, :-1].long()
    k, v = (operands[x][blocks].transpose(1, 2).flatten(0, 1)[:150] for x in ("k_cache", "v_cache"))
    q, k, v = (x.transpose(0, 1)[None] for x in (operands["q"], k, v))
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    out = kernels.paged_attention(**operands)
    torch.testing.assert_close(out, expected[0].transpose(0, 1), rtol=1e-5, atol=3e-6)


def test_large_scores_do_not_overflow(kernels: CpuKernels) -> None:
    operands = Case().operands()
    operands["q"] *= 200
    torch.testing.assert_close(kernels.paged_attention(**operands).double(), exact(operands), rtol=1e-4, atol=3e-4)


@pytest.mark.parametrize("window", [None, 100, 700])
@pytest.mark.parametrize("chunk", [1, 3, 7, 64, 333])
def test_a_row_does_not_depend_on_how_its_prompt_is_cut(kernels: CpuKernels, chunk: int, window: int | None) -> None:
    operands = Case((1300,), (1300,), num_heads=6, num_kv_heads=2, head_dim=24, sliding_window=window).operands()
    whole = kernels.paged_attention(**operands)
    for begin in range(0, 1300, chunk * (1 if chunk > 7 else 41)):
        end = min(begin + chunk, 1300)
        part = {
            **operands,
            "q": operands["q"][begin:end],
            "seq_lens": torch.tensor([end], dtype=torch.int32),
            "query_start": torch.tensor([0, end - begin], dtype=torch.int32),
        }
        assert torch.equal(kernels.paged_attention(**part), whole[begin:end])


def test_a_row_does_not_depend_on_the_rest_of_the_batch(kernels: CpuKernels) -> None:
    operands = Case().operands()
    together = kernels.paged_attention(**operands)
    starts = operands["query_start"].tolist()
    for sequence in range(len(starts) - 1):
        rows = slice(starts[sequence], starts[sequence + 1])
        alone = {
            **operands,
            "q": operands["q"][rows],
            "block_tables": operands["block_tables"][sequence : sequence + 1],
            "seq_lens": operands["seq_lens"][sequence : sequence + 1],
            "query_start": torch.tensor([0, rows.stop - rows.start], dtype=torch.int32),
        }
        assert torch.equal(kernels.paged_attention(**alone), together[rows])


def test_the_number_of_threads_changes_no_bit(kernels: CpuKernels) -> None:
    operands = Case().operands()
    results = []
    for num_threads in (1, 2, 5):
        torch.set_num_threads(num_threads)
        results.append(kernels.paged_attention(**operands))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_blocks_before_the_window_may_be_gone(kernels: CpuKernels) -> None:
    operands = Case((1, 4), (900, 300), sliding_window=50).operands()
    expected = exact(operands)
    operands["block_tables"][0, : (900 - 50) // 16] = -1
    operands["block_tables"][1, : (297 - 50) // 16] = -1
    torch.testing.assert_close(kernels.paged_attention(**operands).double(), expected, rtol=1e-5, atol=3e-6)


def test_views_are_read_and_written_in_place() -> None:
    operands = Case().operands()
    num_tokens = operands["q"].shape[0]
    expected = paged_attention(**operands)
    fused = torch.zeros(num_tokens, 1000)
    fused[:, 100:612] = operands["q"].flatten(1)
    keys, values = operands["k_cache"].mT, operands["v_cache"]
    pool = torch.stack((keys.flatten(2), values.flatten(2)), dim=1)
    wide = torch.zeros(num_tokens, 600)
    views = {
        "q": fused[:, 100:612].view(-1, 8, 64),
        "k_cache": pool[:, 0].unflatten(2, keys.shape[2:]).mT,
        "v_cache": pool[:, 1].unflatten(2, values.shape[2:]),
        "block_tables": torch.cat((operands["block_tables"],) * 2, dim=1)[:, : operands["block_tables"].shape[1]],
        "out": wide[:, :512].view(-1, 8, 64),
    }
    out = paged_attention(**{**operands, **views})
    assert out is views["out"]
    assert torch.equal(out, expected)
    assert not wide[:, 512:].any()


@pytest.mark.parametrize("query_lens", [(), (0,), (0, 0)])
def test_no_queries_give_no_rows(kernels: CpuKernels, query_lens: tuple[int, ...]) -> None:
    operands = Case(query_lens, tuple(5 for _ in query_lens)).operands()
    assert kernels.paged_attention(**operands).shape == (0, 8, 64)


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("query_start", (0,), 1),
        ("query_start", (-1,), 7),
        ("query_start", (1,), 9),
        ("seq_lens", (1,), 2),
        ("seq_lens", (0,), 33),
        ("block_tables", (0, 0), -1),
        ("block_tables", (1, 0), 5),
    ],
)
def test_impossible_values_are_refused(name: str, place: tuple[int, ...], value: int) -> None:
    operands = Case((2, 3, 1), (8, 3, 16)).operands()
    operands[name][place] = value if name != "block_tables" or value < 0 else operands["k_cache"].shape[0]
    operands["out"] = torch.zeros_like(operands["q"])
    with pytest.raises(ValueError, match=f"^{name} "):
        paged_attention(**operands)
    assert not operands["out"].any()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("q", torch.zeros(6, 512)),
        ("q", torch.zeros(6, 6, 64)),
        ("q", torch.zeros(6, 8, 64, dtype=torch.float64)),
        ("k_cache", torch.zeros(6, 4, 16, 32)),
        ("k_cache", torch.zeros(6, 4, 16, 64)),
        ("v_cache", torch.zeros(5, 4, 16, 64)),
        ("block_tables", torch.zeros(3, 3, dtype=torch.int64)),
        ("block_tables", torch.zeros(3, 4, dtype=torch.int32).T),
        ("seq_lens", torch.zeros(4, dtype=torch.int32)),
        ("seq_lens", torch.zeros(3, dtype=torch.int64)),
        ("query_start", torch.zeros(3, dtype=torch.int32)),
        ("sliding_window", 0),
        ("key_spans", torch.zeros(5, 2, dtype=torch.int32)),
        ("key_spans", torch.zeros(6, 2, dtype=torch.int64)),
        ("key_spans", torch.zeros(2, 6, dtype=torch.int32).T),
        ("out", torch.zeros(6, 8, 63)),
        ("out", torch.zeros(6, 8, 128)[..., ::2]),
        ("out", torch.zeros(1, 8, 64).expand(6, 8, 64)),
        ("out", torch.zeros(6, 8, 64, dtype=torch.bfloat16)),
        ("lse", torch.zeros(6, 4)),
        ("lse", torch.zeros(6, 8, dtype=torch.bfloat16)),
        ("lse", torch.zeros(6, 1).expand(6, 8)),
    ],
)
def test_a_bad_operand_is_named(name: str, value: Any) -> None:
    operands = replace(CASES[0], query_lens=(2, 3, 1), seq_lens=(8, 3, 16)).operands()
    with pytest.raises(ValueError, match=f"^{name} must"):
        paged_attention(**{**operands, name: value})
