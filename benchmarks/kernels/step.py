"""The other kernels of a step, of a model with the shape of Llama 3 8B."""

import math
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.kernels.batch import BLOCK_SIZE, HEAD_DIM, NUM_HEADS, NUM_KV_HEADS, num_cold_buffers
from benchmarks.kernels.stopwatch import Launch, median_us
from benchmarks.kernels.timings import KernelTiming
from headway.kernels.cuda import (
    add_rms_norm,
    copy_blocks,
    prefill_attention,
    rotate_and_cache,
    sample_tokens,
    silu_mul,
    swap_blocks,
)

HIDDEN_SIZE, INTERMEDIATE_SIZE, VOCAB_SIZE, NUM_LAYERS = 4096, 14336, 128_256, 32
DEVICE = torch.device("cuda")


def step_timings() -> Iterator[KernelTiming]:
    for num_rows in (1, 64, 2048):
        yield _norm(num_rows)
        yield _gate(num_rows)
        yield _cache(num_rows)
    for has_norm in (False, True):
        for cache_dtype in (torch.bfloat16, torch.float8_e4m3fn):
            yield _cache(4096, has_norm=has_norm, cache_dtype=cache_dtype)
    for num_rows in (1, 64):
        yield _sample(num_rows)
    for num_queries, context in ((2048, 2048), (512, 8192)):
        yield _prefill(num_queries, context)
    yield _copy()
    for is_out in (True, False):
        yield _swap(is_out=is_out)


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.bfloat16, device=DEVICE)


def _norm(num_rows: int) -> KernelTiming:
    num_bytes = 4 * num_rows * HIDDEN_SIZE * 2
    weight = _random(HIDDEN_SIZE)

    def launch_on(x: torch.Tensor, residual: torch.Tensor) -> Launch:
        return lambda: add_rms_norm(x, residual, weight, eps=1e-5)

    launches = [launch_on(*_random(2, num_rows, HIDDEN_SIZE)) for _ in range(num_cold_buffers(num_bytes))]
    return KernelTiming(f"add_rms_norm, {num_rows} rows", median_us(launches), num_bytes, "B")


def _gate(num_rows: int) -> KernelTiming:
    num_bytes = 3 * num_rows * INTERMEDIATE_SIZE * 2

    def launch_on(gate_up: torch.Tensor) -> Launch:
        return lambda: silu_mul(gate_up)

    launches = [launch_on(_random(num_rows, 2 * INTERMEDIATE_SIZE)) for _ in range(num_cold_buffers(num_bytes))]
    return KernelTiming(f"silu_mul, {num_rows} rows", median_us(launches), num_bytes, "B")


def _cache(num_rows: int, *, has_norm: bool = False, cache_dtype: torch.dtype = torch.bfloat16) -> KernelTiming:
    num_heads = NUM_HEADS + 2 * NUM_KV_HEADS
    num_blocks = -(-num_rows // BLOCK_SIZE)
    shape = (num_blocks, NUM_KV_HEADS, BLOCK_SIZE, HEAD_DIM)
    options: dict[str, Any] = {
        "slot_mapping": torch.randperm(num_blocks * BLOCK_SIZE, device=DEVICE)[:num_rows],
        "positions": torch.randperm(num_rows, device=DEVICE),
        "cos_sin": torch.randn(num_rows, HEAD_DIM, device=DEVICE),
        "q_norm_weight": _random(HEAD_DIM) if has_norm else None,
        "k_norm_weight": _random(HEAD_DIM) if has_norm else None,
    }
    # Queries and keys are read and written back, values read; keys and values are written to the cache.
    num_bytes = num_rows * HEAD_DIM * ((2 * NUM_HEADS + 3 * NUM_KV_HEADS) * 2 + 2 * NUM_KV_HEADS * cache_dtype.itemsize)

    def launch_on(heads: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor) -> Launch:
        q, k, v = torch.split(heads, [NUM_HEADS, NUM_KV_HEADS, NUM_KV_HEADS], dim=1)
        return lambda: rotate_and_cache(q, k, v, k_cache=k_cache, v_cache=v_cache, **options)

    launches = [
        launch_on(_random(num_rows, num_heads, HEAD_DIM), *(_random(*shape).to(cache_dtype) for _ in range(2)))
        for _ in range(num_cold_buffers(num_bytes))
    ]
    name = f"rotate_and_cache, {num_rows} rows" + ", norms" * has_norm + ", fp8" * (cache_dtype.itemsize == 1)
    return KernelTiming(name, median_us(launches), num_bytes, "B", path="memory")


def _copy() -> KernelTiming:
    num_pairs = 64
    pairs = torch.randperm(2 * num_pairs, device=DEVICE).view(num_pairs, 2)

    def launch_on(memory: torch.Tensor) -> Launch:
        return lambda: copy_blocks(memory, pairs=pairs)

    memories = [_random(NUM_LAYERS, 2, 2 * num_pairs, NUM_KV_HEADS, BLOCK_SIZE, HEAD_DIM) for _ in range(3)]
    # Half of the memory is read, half of it written.
    num_bytes = memories[0].nbytes
    us = median_us([launch_on(memory) for memory in memories])
    return KernelTiming(f"copy_blocks, {num_pairs} blocks", us, num_bytes, "B", path="memory")


def _sample(num_rows: int) -> KernelTiming:
    ones = torch.ones(num_rows, device=DEVICE)
    counts = 50 * ones.long()

    def launch_on(logits: torch.Tensor) -> Launch:
        return lambda: sample_tokens(
            logits,
            seeds=counts,
            positions=counts,
            temperatures=ones,
            top_k=counts,
            top_p=0.9 * ones.double(),
            min_p=0 * ones,
        )

    num_bytes = 4 * num_rows * VOCAB_SIZE
    launches = [
        launch_on(3 * torch.randn(num_rows, VOCAB_SIZE, device=DEVICE)) for _ in range(num_cold_buffers(num_bytes))
    ]
    return KernelTiming(f"sample_tokens, {num_rows} rows", median_us(launches), num_bytes, "B")


def _prefill(num_queries: int, context: int) -> KernelTiming:
    num_blocks = context // BLOCK_SIZE
    q = _random(num_queries, NUM_HEADS, HEAD_DIM)
    block_tables = torch.randperm(num_blocks, device=DEVICE).int()[None]
    seq_lens = torch.tensor([context], dtype=torch.int32, device=DEVICE)
    query_start = torch.tensor([0, num_queries], dtype=torch.int32, device=DEVICE)

    def launch_on(k_cache: torch.Tensor, v_cache: torch.Tensor) -> Launch:
        return lambda: prefill_attention(
            q,
            k_cache=k_cache,
            v_cache=v_cache,
            block_tables=block_tables,
            seq_lens=seq_lens,
            query_start=query_start,
            scale=HEAD_DIM**-0.5,
        )

    shape = (2, num_blocks, NUM_KV_HEADS, BLOCK_SIZE, HEAD_DIM)
    launches = [launch_on(*_random(*shape)) for _ in range(num_cold_buffers(2 * math.prod(shape)))]
    num_pairs = num_queries * (context - (num_queries - 1) / 2)
    operations = 4 * num_pairs * NUM_HEADS * HEAD_DIM
    return KernelTiming(f"prefill_attention, {num_queries} of {context}", median_us(launches), operations, "FLOP")


def _swap(*, is_out: bool) -> KernelTiming:
    num_blocks = 64
    host_numbers = torch.randperm(num_blocks)
    pairs = torch.stack((torch.arange(num_blocks), host_numbers)[:: 1 if is_out else -1], dim=1)

    def launch_on(memory: torch.Tensor, host_memory: torch.Tensor) -> Launch:
        return lambda: swap_blocks(memory, host_memory, pairs=pairs, is_out=is_out)

    memories = [_random(NUM_LAYERS, 2, num_blocks, NUM_KV_HEADS, BLOCK_SIZE, HEAD_DIM) for _ in range(4)]
    shape = (num_blocks, *memories[0].shape[:2], *memories[0].shape[3:])
    launches = [launch_on(memory, torch.zeros(shape, dtype=memory.dtype).pin_memory()) for memory in memories]
    us = median_us(launches, is_captured=False)
    name = f"swap_blocks, {num_blocks} blocks {'out' if is_out else 'in'}"
    return KernelTiming(name, us, memories[0].nbytes, "B", path="to_host" if is_out else "to_device")
