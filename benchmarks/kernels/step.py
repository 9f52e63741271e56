"""The other kernels of a step, of a model with the shape of Llama 3 8B."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from benchmarks.kernels.batch import BLOCK_SIZE, COLD_BYTES, HEAD_DIM, NUM_HEADS, NUM_KV_HEADS
from benchmarks.kernels.stopwatch import Launch, median_us
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


@dataclass(frozen=True, slots=True)
class Timing:
    """`amount`: bytes read and written, or floating-point operations."""

    name: str
    us: float
    amount: float
    unit: str


def step_timings() -> Iterator[Timing]:
    for num_rows in (1, 64, 2048):
        yield _norm(num_rows)
        yield _gate(num_rows)
        yield _cache(num_rows)
    for num_rows in (1, 64):
        yield _sample(num_rows)
    for num_queries, context in ((2048, 2048), (512, 8192)):
        yield _prefill(num_queries, context)
    yield _copy()
    for is_out in (True, False):
        yield _swap(is_out=is_out)


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.bfloat16, device=DEVICE)


def _norm(num_rows: int) -> Timing:
    num_bytes = 4 * num_rows * HIDDEN_SIZE * 2
    weight = _random(HIDDEN_SIZE)

    def launch_on(x: torch.Tensor, residual: torch.Tensor) -> Launch:
        return lambda: add_rms_norm(x, residual, weight, eps=1e-5)

    launches = [launch_on(*_random(2, num_rows, HIDDEN_SIZE)) for _ in range(_num_buffers(num_bytes))]
    return Timing(f"add_rms_norm, {num_rows} rows", median_us(launches), num_bytes, "B")


def _gate(num_rows: int) -> Timing:
    num_bytes = 3 * num_rows * INTERMEDIATE_SIZE * 2

    def launch_on(gate_up: torch.Tensor) -> Launch:
        return lambda: silu_mul(gate_up)

    launches = [launch_on(_random(num_rows, 2 * INTERMEDIATE_SIZE)) for _ in range(_num_buffers(num_bytes))]
    return Timing(f"silu_mul, {num_rows} rows", median_us(launches), num_bytes, "B")


def _cache(num_rows: int) -> Timing:
    num_heads = NUM_HEADS + 2 * NUM_KV_HEADS
    num_blocks = -(-num_rows // BLOCK_SIZE)
    positions = torch.randperm(num_rows, device=DEVICE)
    slots = torch.randperm(num_blocks * BLOCK_SIZE, device=DEVICE)[:num_rows]
    cos_sin = torch.randn(num_rows, HEAD_DIM, device=DEVICE)
    # Queries and keys are read and written back, keys and values read and written to the cache.
    num_bytes = (2 * NUM_HEADS + 5 * NUM_KV_HEADS) * num_rows * HEAD_DIM * 2

    def launch_on(heads: torch.Tensor, caches: torch.Tensor) -> Launch:
        q, k, v = torch.split(heads, [NUM_HEADS, NUM_KV_HEADS, NUM_KV_HEADS], dim=1)
        return lambda: rotate_and_cache(
            q, k, v, k_cache=caches[0], v_cache=caches[1], slot_mapping=slots, positions=positions, cos_sin=cos_sin
        )

    launches = [
        launch_on(_random(num_rows, num_heads, HEAD_DIM), _random(2, num_blocks, NUM_KV_HEADS, BLOCK_SIZE, HEAD_DIM))
        for _ in range(_num_buffers(num_bytes))
    ]
    return Timing(f"rotate_and_cache, {num_rows} rows", median_us(launches), num_bytes, "B")


def _copy() -> Timing:
    num_pairs = 64
    memory = _random(NUM_LAYERS, 2, 2 * num_pairs, NUM_KV_HEADS, BLOCK_SIZE, HEAD_DIM)
    pairs = torch.randperm(2 * num_pairs, device=DEVICE).view(num_pairs, 2)
    # Half of the memory is read, half of it written.
    return Timing(
        f"copy_blocks, {num_pairs} blocks", median_us([lambda: copy_blocks(memory, pairs=pairs)]), memory.nbytes, "B"
    )


def _sample(num_rows: int) -> Timing:
    logits = 3 * torch.randn(num_rows, VOCAB_SIZE, device=DEVICE)
    ones = torch.ones(num_rows, device=DEVICE)
    counts = 50 * ones.long()

    def launch() -> torch.Tensor:
        return sample_tokens(
            logits,
            seeds=counts,
            positions=counts,
            temperatures=ones,
            top_k=counts,
            top_p=0.9 * ones.double(),
            min_p=0 * ones,
        )

    return Timing(f"sample_tokens, {num_rows} rows", median_us([launch]), logits.nbytes, "B")


def _prefill(num_queries: int, context: int) -> Timing:
    num_blocks = context // BLOCK_SIZE
    caches = _random(2, num_blocks, NUM_KV_HEADS, BLOCK_SIZE, HEAD_DIM)
    q = _random(num_queries, NUM_HEADS, HEAD_DIM)
    block_tables = torch.randperm(num_blocks, device=DEVICE).int()[None]
    seq_lens = torch.tensor([context], dtype=torch.int32, device=DEVICE)
    query_start = torch.tensor([0, num_queries], dtype=torch.int32, device=DEVICE)

    def launch() -> torch.Tensor:
        return prefill_attention(
            q,
            k_cache=caches[0],
            v_cache=caches[1],
            block_tables=block_tables,
            seq_lens=seq_lens,
            query_start=query_start,
            scale=HEAD_DIM**-0.5,
        )

    num_pairs = num_queries * (context - (num_queries - 1) / 2)
    operations = 4 * num_pairs * NUM_HEADS * HEAD_DIM
    return Timing(f"prefill_attention, {num_queries} of {context}", median_us([launch]), operations, "FLOP")


def _swap(*, is_out: bool) -> Timing:
    num_blocks = 32
    memory = _random(NUM_LAYERS, 2, num_blocks, NUM_KV_HEADS, BLOCK_SIZE, HEAD_DIM)
    host_memory = torch.zeros(num_blocks, *memory.shape[:2], *memory.shape[3:], dtype=memory.dtype).pin_memory()
    pairs = torch.arange(num_blocks).repeat(2, 1).T.contiguous()

    def launch() -> None:
        swap_blocks(memory, host_memory, pairs=pairs, is_out=is_out)

    return Timing(f"swap_blocks, {'out' if is_out else 'in'}", median_us([launch]), memory.nbytes, "B")


def _num_buffers(num_bytes: int) -> int:
    return min(1 + COLD_BYTES // num_bytes, 200)
