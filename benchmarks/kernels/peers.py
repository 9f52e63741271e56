"""Decode attention of others over the same keys: torch's on contiguous ones, FlashInfer's and vLLM's on blocks."""

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TypeAlias

import torch
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.kernels.batch import BATCHES, BLOCK_SIZE, HEAD_DIM, NUM_HEADS, NUM_KV_HEADS, Batch, PagedBatch
from benchmarks.kernels.stopwatch import Launch, median_us
from benchmarks.kernels.timings import PeerTiming, reason_of

_WORKSPACE_BYTES = 256 << 20


class AbsentError(Exception):
    """Raised with the reason that a peer is not run: it is not installed, or has no such input."""


Attend: TypeAlias = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def sdpa_us(batch: Batch) -> float:
    return _contiguous_us(batch, partial(scaled_dot_product_attention, enable_gqa=True))


def flex_us(batch: Batch) -> float:
    """Times FlexAttention, compiled; that takes Triton."""
    _require("triton")
    attend: Attend = torch.compile(
        partial(import_module("torch.nn.attention.flex_attention").flex_attention, enable_gqa=True), dynamic=False
    )
    return _contiguous_us(batch, attend)


def flashinfer_us(batch: Batch) -> float:
    _require("flashinfer")
    paged = PagedBatch.of(batch)
    workspace = torch.empty(_WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")
    wrapper = import_module("flashinfer").BatchDecodeWithPagedKVCacheWrapper(
        workspace, kv_layout="HND", use_tensor_cores=True
    )
    counts = torch.tensor([-(-length // BLOCK_SIZE) for length in batch.lengths], dtype=torch.int32)
    starts = torch.cat((torch.zeros(1), counts.cumsum(0))).int()
    blocks = torch.cat([row[:count] for row, count in zip(paged.block_tables.cpu(), counts.tolist(), strict=True)])
    last_lens = torch.tensor([(length - 1) % BLOCK_SIZE + 1 for length in batch.lengths], dtype=torch.int32)
    wrapper.plan(
        starts.cuda(),
        blocks.cuda(),
        last_lens.cuda(),
        NUM_HEADS,
        NUM_KV_HEADS,
        HEAD_DIM,
        BLOCK_SIZE,
        q_data_type=torch.bfloat16,
        kv_data_type=batch.cache_dtype,
    )

    def launch_on(k_cache: torch.Tensor, v_cache: torch.Tensor) -> Launch:
        return lambda: wrapper.run(paged.q, (k_cache, v_cache))

    return median_us([launch_on(*caches) for caches in paged.caches()])


def vllm_us(batch: Batch) -> float:
    """Times the FlashAttention of vLLM, whose blocks have the KV heads of a token side by side."""
    _require("vllm")
    _refuse_fp8(batch)
    attend = import_module("vllm.vllm_flash_attn").flash_attn_varlen_func
    paged = PagedBatch.of(batch)
    starts = torch.arange(len(batch.lengths) + 1, dtype=torch.int32, device="cuda")
    lengths = torch.tensor(batch.lengths, dtype=torch.int32, device="cuda")

    def launch_on(k_cache: torch.Tensor, v_cache: torch.Tensor) -> Launch:
        keys, values = (cache.transpose(1, 2).contiguous() for cache in (k_cache, v_cache))
        return lambda: attend(
            q=paged.q,
            k=keys,
            v=values,
            max_seqlen_q=1,
            cu_seqlens_q=starts,
            max_seqlen_k=max(batch.lengths),
            seqused_k=lengths,
            block_table=paged.block_tables,
            softmax_scale=HEAD_DIM**-0.5,
            causal=True,
        )

    return median_us([launch_on(*caches) for caches in paged.caches()])


PEERS: dict[str, Callable[[Batch], float]] = {
    "torch SDPA": sdpa_us,
    "FlexAttention": flex_us,
    "FlashInfer": flashinfer_us,
    "vLLM": vllm_us,
}


def peer_timings() -> Iterator[PeerTiming]:
    for batch in BATCHES:
        for peer, time_us in PEERS.items():
            yield _timing(batch, peer, time_us)


def _timing(batch: Batch, peer: str, time_us: Callable[[Batch], float]) -> PeerTiming:
    try:
        return PeerTiming(batch.name, peer, time_us(batch))
    except AbsentError as absence:
        return PeerTiming(batch.name, peer, None, str(absence))
    except Exception as error:  # noqa: BLE001 - root of the peer: it may fail in any way
        return PeerTiming(batch.name, peer, None, reason_of(error))


def _require(module: str) -> None:
    if find_spec(module) is None:
        raise AbsentError(f"there is no {module} here")


def _refuse_fp8(batch: Batch) -> None:
    if batch.cache_dtype is torch.float8_e4m3fn:
        raise AbsentError("takes no cache in fp8")


def _contiguous_us(batch: Batch, attend: Attend) -> float:
    _refuse_fp8(batch)
    if len(set(batch.lengths)) > 1:
        raise AbsentError("takes sequences of one length")
    shape = (len(batch.lengths), NUM_KV_HEADS, batch.lengths[0], HEAD_DIM)
    q = torch.randn(shape[0], NUM_HEADS, 1, HEAD_DIM, dtype=torch.bfloat16, device="cuda")

    def launch_on(k: torch.Tensor, v: torch.Tensor) -> Launch:
        return lambda: attend(q, k, v)

    return median_us(
        [launch_on(*torch.randn(2, *shape, dtype=torch.bfloat16, device="cuda")) for _ in range(batch.num_buffers)]
    )
