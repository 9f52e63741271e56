"""Decode steps with random contents, and what they must give in float64."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from headway.kernels import reference
from headway.kernels.cuda import DecodeRows, DecodeTable, decode_attention
from headway.kernels.cuda.kernels import CudaKernels

F32, BF16, F16, FP8 = torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn


@dataclass(frozen=True)
class DecodeCase:
    lengths: tuple[int, ...] = (100, 0, 37)
    head_dim: int = 64
    num_heads: int = 4
    num_kv_heads: int = 2
    query_dtype: torch.dtype = torch.float16
    cache_dtype: torch.dtype = torch.float16
    block_size: int = 16
    sliding_window: int | None = None
    soft_cap: float | None = None
    has_alibi: bool = False
    key_scale: float = 1.0
    value_scale: float = 1.0
    query_factor: float = 1.0  # of the queries, that the scale of the scores undoes
    num_slots: int = 4
    seed: int = 0

    @property
    def weight_unit(self) -> float:
        """By what share of itself a softmax's weight is rounded: on the tensor cores to the type that is multiplied."""
        is_matrix = self.query_dtype is not F32 and self.cache_dtype in (self.query_dtype, FP8)
        if not is_matrix:
            return 0.0
        return torch.finfo(BF16 if self.cache_dtype is BF16 else F16).eps / 2


def blank_result(q: Tensor) -> tuple[Tensor, Tensor]:
    """Room for what queries get and for the logarithms of their softmax's sums, holding NaNs."""
    return torch.full(q.shape, torch.nan, device=q.device), torch.full(q.shape[:2], torch.nan, device=q.device)


@dataclass
class DecodeStep:
    """The operands of a case. What no query sees holds NaN, and its blocks are not in the tables."""

    case: DecodeCase
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def __post_init__(self) -> None:
        case = self.case
        generator = torch.Generator().manual_seed(case.seed)
        lengths = np.array(case.lengths, dtype=np.int32)
        self.rows = DecodeRows.of_lengths(lengths, sliding_window=case.sliding_window)
        max_blocks = max(-(-int(lengths.max(initial=1)) // case.block_size), 1)
        num_blocks = len(lengths) * max_blocks + 1  # the first holds nothing
        shape = (num_blocks, case.num_kv_heads, case.block_size, case.head_dim)
        caches = [torch.full(shape, torch.nan) for _ in range(2)]
        numbers = torch.randperm(num_blocks - 1, generator=generator) + 1
        tables = torch.zeros(len(lengths), max_blocks, dtype=torch.int32)
        for row, (first, end) in enumerate(zip(self.rows.first_keys, self.rows.end_keys, strict=True)):
            keys = torch.arange(int(first), int(end))
            own = numbers[row * max_blocks : (row + 1) * max_blocks]
            tables[row, keys // case.block_size] = own[keys // case.block_size].int()
            for cache in caches:
                values = torch.randn(len(keys), case.num_kv_heads, case.head_dim, generator=generator)
                cache[own[keys // case.block_size], :, keys % case.block_size] = values
        q = torch.randn(len(lengths), case.num_heads, case.head_dim, generator=generator)
        q *= case.query_factor * torch.linspace(0.4, 2, case.num_heads)[:, None]  # flat weights to steep ones
        self.q = q.to(self.device, case.query_dtype)
        self.k_cache, self.v_cache = (cache.to(self.device, case.cache_dtype) for cache in caches)
        self.block_tables = tables.to(self.device)
        slopes = 2.0 ** -torch.arange(1, case.num_heads + 1)
        self.alibi_slopes = slopes.to(self.device) if case.has_alibi else None
        self.table = DecodeTable.allocate(
            num_rows=len(lengths),
            num_heads=case.num_heads,
            head_dim=case.head_dim,
            num_slots=case.num_slots,
            device=self.device,
        )

    def run_with(self, kernels: CudaKernels) -> tuple[Tensor, Tensor]:
        """What a library of its own makes of the step, unchecked."""
        self.table.load(self.rows)
        out, lse = blank_result(self.q)
        kernels.decode_attention(
            self.q,
            k_cache=self.k_cache,
            v_cache=self.v_cache,
            block_tables=self.block_tables,
            work=self.table.work,
            num_slots=self.table.num_slots,
            partials=self.table.partials,
            out=out,
            lse=lse,
            alibi_slopes=self.alibi_slopes,
            scale=self.scale,
            soft_cap=self.case.soft_cap or 0,
            key_scale=self.case.key_scale,
            value_scale=self.case.value_scale,
        )
        kernels.merge_partials(self.table.partials, starts=self.table.starts, out=out, lse=lse)
        return out, lse

    def run(self) -> tuple[Tensor, Tensor]:
        """The operators' result and logarithms, in float32."""
        self.table.load(self.rows)
        return self.attend()

    def attend(self) -> tuple[Tensor, Tensor]:
        """As `run`, with the plan that the table holds."""
        out, lse = blank_result(self.q)
        decode_attention(
            self.q,
            k_cache=self.k_cache,
            v_cache=self.v_cache,
            block_tables=self.block_tables,
            table=self.table,
            scale=self.scale,
            soft_cap=self.case.soft_cap,
            alibi_slopes=self.alibi_slopes,
            key_scale=self.case.key_scale,
            value_scale=self.case.value_scale,
            out=out,
            lse=lse,
        )
        return out, lse

    @property
    def scale(self) -> float:
        return float(self.case.head_dim**-0.5) / self.case.query_factor

    def expected(self, v_cache: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """By the definition, in float64; of other values if they are given."""
        rows = self.rows
        columns = (rows.sequences, rows.first_keys, rows.end_keys, rows.positions)
        return reference.decode_attention(
            self.q.double(),
            k_cache=self.k_cache,
            v_cache=self.v_cache if v_cache is None else v_cache,
            block_tables=self.block_tables,
            rows=list(zip(*(column.tolist() for column in columns), strict=True)),
            scale=self.scale,
            soft_cap=self.case.soft_cap,
            alibi_slopes=self.alibi_slopes,
            key_scale=self.case.key_scale,
            value_scale=self.case.value_scale,
        )

    def check(self, out: Tensor, lse: Tensor) -> None:
        """Rounded weights move a result by no more than their unit of what the values' magnitudes would give.

        Besides, exponents of up to 50 are rounded by 2^-24 of themselves, and so are sums; and weights below 2^-14 are
        rounded to fp16 by up to 2^-25 each, 700 of them by 2e-5 of a sum that is at least 1.
        """
        expected, expected_lse = self.expected()
        magnitude, _ = self.expected(self.v_cache.float().abs())
        bound = (self.case.weight_unit + 3e-5) * magnitude
        error = (out.double() - expected).abs()
        assert (error <= bound).all(), (
            f"up to {(error / bound).max():.2f} times as far from the definition as it may be"
        )
        torch.testing.assert_close(lse.double(), expected_lse, rtol=1e-5, atol=1e-5)


CASES = [
    # on the tensor cores: every size of heads with every cache type, for up to 8 query heads a KV head and for more
    DecodeCase(head_dim=64, num_heads=2, num_kv_heads=2, query_dtype=F16, cache_dtype=F16),
    DecodeCase(head_dim=64, num_heads=9, num_kv_heads=1, query_dtype=F16, cache_dtype=F16, block_size=8),
    DecodeCase(head_dim=64, num_heads=8, num_kv_heads=1, query_dtype=BF16, cache_dtype=BF16, block_size=128),
    DecodeCase(head_dim=64, num_heads=24, num_kv_heads=2, query_dtype=BF16, cache_dtype=BF16),
    DecodeCase(head_dim=64, num_heads=5, num_kv_heads=1, query_dtype=BF16, cache_dtype=FP8, block_size=24),
    DecodeCase(head_dim=64, num_heads=16, num_kv_heads=2, query_dtype=F16, cache_dtype=FP8, block_size=8),
    DecodeCase(head_dim=80, num_heads=4, num_kv_heads=1, query_dtype=BF16, cache_dtype=BF16, block_size=20),
    DecodeCase(head_dim=80, num_heads=4, num_kv_heads=4, query_dtype=F16, cache_dtype=FP8, block_size=8),
    DecodeCase(head_dim=80, num_heads=10, num_kv_heads=1, query_dtype=F16, cache_dtype=F16),
    DecodeCase(head_dim=96, num_heads=8, num_kv_heads=1, query_dtype=BF16, cache_dtype=BF16),
    DecodeCase(head_dim=96, num_heads=2, num_kv_heads=1, query_dtype=BF16, cache_dtype=FP8),
    DecodeCase(head_dim=96, num_heads=15, num_kv_heads=1, query_dtype=F16, cache_dtype=FP8),
    DecodeCase(head_dim=128, num_heads=8, num_kv_heads=2, query_dtype=BF16, cache_dtype=BF16),
    DecodeCase(head_dim=128, num_heads=20, num_kv_heads=1, query_dtype=BF16, cache_dtype=BF16),
    DecodeCase(head_dim=128, num_heads=8, num_kv_heads=1, query_dtype=F16, cache_dtype=F16, block_size=8),
    DecodeCase(head_dim=128, num_heads=4, num_kv_heads=1, query_dtype=BF16, cache_dtype=FP8, block_size=64),
    DecodeCase(head_dim=128, num_heads=12, num_kv_heads=1, query_dtype=BF16, cache_dtype=FP8),
    DecodeCase(head_dim=256, num_heads=2, num_kv_heads=1, query_dtype=F16, cache_dtype=F16),
    DecodeCase(head_dim=256, num_heads=10, num_kv_heads=1, query_dtype=BF16, cache_dtype=BF16),
    DecodeCase(head_dim=256, num_heads=8, num_kv_heads=1, query_dtype=F16, cache_dtype=FP8),
    # queries beyond what fp16 holds, in which those of an fp8 cache are multiplied, and below it
    DecodeCase(num_heads=16, num_kv_heads=1, query_dtype=BF16, cache_dtype=FP8, query_factor=1e20),
    DecodeCase(num_heads=6, num_kv_heads=2, query_dtype=BF16, cache_dtype=FP8, query_factor=1e-20),
    # on the CUDA cores: pairs of other types
    DecodeCase(head_dim=64, num_heads=3, num_kv_heads=1, query_dtype=F32, cache_dtype=BF16, block_size=8),
    DecodeCase(head_dim=64, num_heads=9, num_kv_heads=1, query_dtype=F32, cache_dtype=FP8),
    DecodeCase(head_dim=96, num_heads=6, num_kv_heads=2, query_dtype=F32, cache_dtype=F16),
    DecodeCase(head_dim=96, num_heads=7, num_kv_heads=1, query_dtype=F16, cache_dtype=BF16, block_size=32),
    DecodeCase(head_dim=256, num_heads=4, num_kv_heads=2, query_dtype=F32, cache_dtype=FP8),
    DecodeCase(head_dim=64, num_heads=4, num_kv_heads=2, query_dtype=F32, cache_dtype=F32, block_size=8),
    DecodeCase(head_dim=256, num_heads=8, num_kv_heads=1, query_dtype=F32, cache_dtype=F32),
    # what is added to the scores, what is seen of the keys, and scaled caches, on both kinds of cores
    DecodeCase(sliding_window=33),
    DecodeCase(soft_cap=1.5),
    DecodeCase(has_alibi=True, lengths=(1, 65, 130)),
    DecodeCase(cache_dtype=FP8, key_scale=0.25, value_scale=3.0, soft_cap=20.0, sliding_window=50, has_alibi=True),
    DecodeCase(num_heads=16, num_kv_heads=1, soft_cap=1.5, has_alibi=True),
    DecodeCase(num_heads=16, num_kv_heads=1, cache_dtype=FP8, key_scale=0.25, value_scale=3.0, sliding_window=50),
    DecodeCase(query_dtype=F32, sliding_window=33),
    DecodeCase(query_dtype=F32, soft_cap=1.5, has_alibi=True),
    DecodeCase(query_dtype=F32, cache_dtype=FP8, key_scale=0.25, value_scale=3.0, sliding_window=50),
    # more ranges than one, several rounds of stages, slots that take several ranges, and batches out of balance
    DecodeCase(lengths=(700, 3, 64, 65), num_slots=8),
    DecodeCase(lengths=(700, 3, 64, 65), query_dtype=F32, num_slots=8),
    DecodeCase(lengths=(500, 0, 90), num_slots=1),
    DecodeCase(lengths=(500,), num_heads=8, num_kv_heads=1, cache_dtype=FP8, num_slots=1),
    DecodeCase(lengths=(500, 30), query_dtype=F32, num_slots=1),
    DecodeCase(lengths=(64,) * 11, num_slots=3),
]
