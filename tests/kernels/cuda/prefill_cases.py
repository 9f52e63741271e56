"""Chunks of prompts with random contents, and what attention must give for them in float64."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from headway.kernels import reference
from headway.kernels.cuda import prefill_attention
from headway.kernels.cuda.kernels import CudaKernels
from tests.kernels.cuda.cases import BF16, F16, F32, FP8, blank_result


@dataclass(frozen=True)
class PrefillCase:
    query_lens: tuple[int, ...] = (37, 1, 0, 20)
    seq_lens: tuple[int, ...] = (37, 50, 9, 90)
    head_dim: int = 64
    num_heads: int = 4
    num_kv_heads: int = 2
    query_dtype: torch.dtype = F16
    cache_dtype: torch.dtype = F16
    block_size: int = 16
    sliding_window: int | None = None
    soft_cap: float | None = None
    has_alibi: bool = False
    has_spans: bool = False
    key_scale: float = 1.0
    value_scale: float = 1.0
    seed: int = 0

    @property
    def tolerance(self) -> float:
        """Of values around 1: on the tensor cores the softmax's weights are rounded to the type of the queries."""
        if self.query_dtype is F32 or self.cache_dtype not in (self.query_dtype, FP8):
            return 1e-5
        return 1e-3 if self.query_dtype is F16 else 8e-3


@dataclass
class PrefillStep:
    """The operands of a case. What no query sees holds NaN, and its blocks are not in the tables."""

    case: PrefillCase
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def __post_init__(self) -> None:
        case = self.case
        generator = torch.Generator().manual_seed(case.seed)
        self.rows = list(self._rows(generator))
        max_blocks = max(-(-max(case.seq_lens) // case.block_size), 1)
        num_blocks = len(case.seq_lens) * max_blocks + 1  # the first holds nothing
        shape = (num_blocks, case.num_kv_heads, case.block_size, case.head_dim)
        caches = [torch.full(shape, torch.nan) for _ in range(2)]
        numbers = torch.randperm(num_blocks - 1, generator=generator) + 1
        tables = torch.zeros(len(case.seq_lens), max_blocks, dtype=torch.int32)
        for sequence in range(len(case.seq_lens)):
            seen = [(first, end) for owner, first, end, _ in self.rows if owner == sequence and first < end]
            if not seen:
                continue
            keys = torch.arange(min(first for first, _ in seen), max(end for _, end in seen))
            own = numbers[sequence * max_blocks : (sequence + 1) * max_blocks]
            tables[sequence, keys // case.block_size] = own[keys // case.block_size].int()
            for cache in caches:
                values = torch.randn(len(keys), case.num_kv_heads, case.head_dim, generator=generator)
                cache[own[keys // case.block_size], :, keys % case.block_size] = values
        q = torch.randn(len(self.rows), case.num_heads, case.head_dim, generator=generator)
        slopes = 2.0 ** -torch.arange(1, case.num_heads + 1)
        starts = torch.tensor((0, *case.query_lens)).cumsum(dim=0)
        spans = torch.tensor([row[1:3] for row in self.rows], dtype=torch.int32).view(-1, 2)
        self.operands: dict[str, Any] = {
            "q": q.to(self.device, case.query_dtype),
            "k_cache": caches[0].to(self.device, case.cache_dtype),
            "v_cache": caches[1].to(self.device, case.cache_dtype),
            "block_tables": tables.to(self.device),
            "seq_lens": torch.tensor(case.seq_lens, dtype=torch.int32, device=self.device),
            "query_start": starts.int().to(self.device),
            "key_spans": spans.to(self.device) if case.has_spans else None,
            "alibi_slopes": slopes.to(self.device) if case.has_alibi else None,
            "scale": float(case.head_dim**-0.5),
            "key_scale": case.key_scale,
            "value_scale": case.value_scale,
        }

    def _rows(self, generator: torch.Generator) -> Any:
        """(sequence, first_key, end_key, position) of each query."""
        for sequence, (query_len, seq_len) in enumerate(zip(self.case.query_lens, self.case.seq_lens, strict=True)):
            for position in range(seq_len - query_len, seq_len):
                first = max(position + 1 - (self.case.sliding_window or seq_len), 0)
                if self.case.has_spans:
                    pair = torch.randint(0, seq_len + 1, (2,), generator=generator)
                    yield sequence, int(pair.min()), int(pair.max()), position
                else:
                    yield sequence, first, position + 1, position

    def run_with(self, kernels: CudaKernels) -> tuple[Tensor, Tensor]:
        """What a library of its own makes of the step, unchecked."""
        out, lse = blank_result(self.operands["q"])
        kernels.prefill_attention(
            **self.operands,
            out=out,
            lse=lse,
            sliding_window=self.case.sliding_window or 0,
            soft_cap=self.case.soft_cap or 0,
        )
        return out, lse

    def run(self) -> tuple[Tensor, Tensor]:
        """The operator's result and logarithms, in float32."""
        out, lse = blank_result(self.operands["q"])
        prefill_attention(
            **self.operands,
            sliding_window=self.case.sliding_window,
            soft_cap=self.case.soft_cap,
            out=out,
            lse=lse,
        )
        return out, lse

    def expected(self) -> tuple[Tensor, Tensor]:
        """By the definition, in float64."""
        q = self.operands["q"].double()
        lse = q.new_full(q.shape[:2], -torch.inf)
        out = reference.paged_attention(
            **{**self.operands, "q": q},
            sliding_window=self.case.sliding_window,
            soft_cap=self.case.soft_cap,
            out=torch.zeros_like(q),
            lse=lse,
        )
        return out, lse

    def check(self, out: Tensor, lse: Tensor) -> None:
        expected, expected_lse = self.expected()
        tolerance = self.case.tolerance
        torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance * self.case.value_scale)
        torch.testing.assert_close(lse.double(), expected_lse, rtol=1e-5, atol=1e-5)


PREFILL_CASES = [
    # each compiled head size with both types of 16 bits, others padded to one, groups of 1 to 20, and fp8
    PrefillCase(),
    PrefillCase(head_dim=32, num_heads=3, num_kv_heads=1, query_dtype=BF16, cache_dtype=BF16, block_size=8),
    PrefillCase(head_dim=64, num_heads=20, num_kv_heads=1, query_dtype=BF16, cache_dtype=FP8, block_size=24),
    PrefillCase(head_dim=80, num_heads=2, num_kv_heads=2, block_size=20),
    PrefillCase(head_dim=96, num_heads=1, num_kv_heads=1, query_dtype=BF16, cache_dtype=FP8),
    PrefillCase(head_dim=128, num_heads=5, num_kv_heads=1, query_dtype=BF16, cache_dtype=BF16, block_size=128),
    PrefillCase(head_dim=112, num_heads=2, num_kv_heads=1, query_dtype=F16, cache_dtype=FP8, block_size=8),
    PrefillCase(head_dim=256, num_heads=2, num_kv_heads=1),
    PrefillCase(head_dim=160, num_heads=1, num_kv_heads=1, query_dtype=BF16, cache_dtype=FP8, query_lens=(3, 1, 1, 40)),
    # on the CUDA cores: queries in float32 with every cache, and pairs of types that the tensor cores do not take
    PrefillCase(query_dtype=F32, cache_dtype=F32),
    PrefillCase(head_dim=80, query_dtype=F32, cache_dtype=BF16, block_size=8, num_heads=3, num_kv_heads=1),
    PrefillCase(head_dim=128, query_dtype=BF16, cache_dtype=F16),
    PrefillCase(head_dim=256, query_dtype=F32, cache_dtype=FP8, num_heads=2, query_lens=(3, 1, 0, 9)),
    # what is added to the scores, what is seen of the keys, and scaled caches, on both kinds of cores
    PrefillCase(sliding_window=33),
    PrefillCase(soft_cap=1.5, has_alibi=True, query_lens=(30,), seq_lens=(150,)),
    PrefillCase(has_spans=True, query_lens=(70, 3), seq_lens=(140, 20), num_heads=8),
    PrefillCase(cache_dtype=FP8, key_scale=0.25, value_scale=3.0, soft_cap=20.0, sliding_window=50, has_alibi=True),
    PrefillCase(query_dtype=F32, cache_dtype=F32, sliding_window=33, soft_cap=1.5, has_alibi=True),
    PrefillCase(query_dtype=F32, cache_dtype=FP8, key_scale=0.25, value_scale=3.0, has_spans=True),
    # many tiles of a sequence behind a long context
    PrefillCase(query_lens=(150, 1, 1), seq_lens=(400, 1, 300)),
]
