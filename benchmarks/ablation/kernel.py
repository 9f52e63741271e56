"""Costs of one block size on this machine, measured on the real kernel, the real KV pool and the real model."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import torch

from headway import kernels
from headway.checkpoint.model_directory import Checkpoint
from headway.core.model import ModelSpec
from headway.models.model import DTYPES
from headway.runner.kv_pool import KvPool
from headway.runner.model_runner import ModelRunner

NUM_TIMINGS = 7
SEED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockCosts:
    """The times that depend on the block size, in seconds.

    Attributes:
        attention_s: attention of one step, all layers together.
        swap_out_s, swap_in_s: of a sequence's blocks.
        recompute_s: of its prefill.
    """

    block_size: int
    attention_s: float
    swap_out_s: float
    swap_in_s: float
    recompute_s: float

    def copy_block_s(self, num_tokens: int) -> float:
        """Seconds to copy one block one way, when `num_tokens` were swapped out and in."""
        return (self.swap_out_s + self.swap_in_s) / 2 / -(-num_tokens // self.block_size)


def measure_costs(
    checkpoint: Checkpoint, block_size: int, *, num_sequences: int, context_tokens: int, swapped_tokens: int
) -> BlockCosts:
    """Time a decode step's attention, and how a preempted sequence comes back in either way."""
    spec = checkpoint.spec
    swap_out_s, swap_in_s = swap_s(spec, block_size, num_tokens=swapped_tokens)
    runner = ModelRunner(checkpoint, num_blocks=1, block_size=block_size)
    return BlockCosts(
        block_size=block_size,
        attention_s=attention_s(spec, block_size, num_sequences=num_sequences, context_tokens=context_tokens),
        swap_out_s=swap_out_s,
        swap_in_s=swap_in_s,
        recompute_s=median(
            runner.measure(prefill_tokens=swapped_tokens, num_decodes=0, context_tokens=0) for _ in range(3)
        ),
    )


@torch.inference_mode()
def attention_s(spec: ModelSpec, block_size: int, *, num_sequences: int, context_tokens: int) -> float:
    """Seconds of paged attention in a step of decodes, whose blocks are scattered over the pool."""
    blocks_each = -(-context_tokens // block_size)
    order = list(range(num_sequences * blocks_each))
    random.Random(SEED).shuffle(order)
    one_layer = replace(spec, num_layers=1)
    pool = KvPool(one_layer, num_blocks=len(order), block_size=block_size, device=torch.device("cpu"))
    pool.memory.normal_()
    ((k_cache, v_cache),) = pool.layers
    q = torch.randn(num_sequences, spec.num_heads, spec.head_dim, dtype=DTYPES[spec.dtype])
    block_tables = torch.tensor(order, dtype=torch.int32).view(num_sequences, blocks_each)
    seq_lens = torch.full((num_sequences,), context_tokens, dtype=torch.int32)
    query_start = torch.arange(num_sequences + 1, dtype=torch.int32)

    def attend() -> None:
        kernels.paged_attention(
            q,
            k_cache=k_cache,
            v_cache=v_cache,
            block_tables=block_tables,
            seq_lens=seq_lens,
            query_start=query_start,
            scale=spec.head_dim**-0.5,
        )

    return spec.num_layers * time_of(attend)


def swap_s(spec: ModelSpec, block_size: int, *, num_tokens: int) -> tuple[float, float]:
    """Seconds to copy a sequence's blocks to the host tier, and back to other places."""
    num_blocks = -(-num_tokens // block_size)
    pool = KvPool(
        spec,
        num_blocks=2 * num_blocks,
        block_size=block_size,
        device=torch.device("cpu"),
        num_host_blocks=2 * num_blocks,
    )
    pool.memory.zero_()
    pool.host_memory.zero_()
    places = random.Random(SEED).sample(range(2 * num_blocks), num_blocks)
    pairs = np.array([places, places[::-1]], np.int32).T
    return time_of(lambda: pool.copy_out(pairs)), time_of(lambda: pool.copy_into(pairs))


def time_of(action: Callable[[], None]) -> float:
    """The median seconds of a few runs after one that is not counted."""
    timings_s = []
    for _ in range(1 + NUM_TIMINGS):
        start_s = time.perf_counter()
        action()
        timings_s.append(time.perf_counter() - start_s)
    return median(timings_s[1:])
