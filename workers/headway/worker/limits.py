"""Turns a worker's load order into the limits of its engine, and checks what is asked against them."""

from typing import cast

import psutil

from headway.core.errors import InvalidArgumentError, ResourceExhaustedError
from headway.core.load_order import LoadOrder
from headway.core.model import ModelSpec
from headway.core.shard import shard_kv_bytes_per_token, shard_of
from headway.core.units import format_bytes
from headway.encoder.limits import EncoderLimits
from headway.engine.config import EngineConfig, PreemptionMode


def engine_config(order: LoadOrder, spec: ModelSpec, *, runs_ahead: bool = False) -> EngineConfig:
    """Returns the engine configuration of a model that generates.

    Args:
        runs_ahead: whether the model's runner takes a batch before the last one is finished.
    """
    return EngineConfig(
        num_blocks=order.num_blocks,
        block_size=order.block_size,
        max_num_seqs=order.max_num_seqs,
        max_num_batched_tokens=order.max_num_batched_tokens,
        max_model_len=order.max_model_len,
        enable_prefix_cache=order.enable_prefix_cache,
        max_num_prefill_tokens=order.max_num_prefill_tokens,
        num_host_blocks=order.num_host_blocks,
        preemption=cast("PreemptionMode", order.preemption),
        num_draft_tokens=order.num_draft_tokens,
        num_micro_batches=order.parallel.pp,
        runs_ahead=runs_ahead,
        num_shards=order.parallel.cp,
        vocab_size=spec.vocab_size,
        eos_token_ids=spec.eos_token_ids,
    )


def encoder_limits(order: LoadOrder, spec: ModelSpec) -> EncoderLimits:
    """Returns the limits of an encoder."""
    assert spec.encoder is not None, "a model that does not generate is an encoder"
    return EncoderLimits(
        max_num_seqs=order.max_num_seqs,
        max_num_batched_tokens=order.max_num_batched_tokens,
        max_model_len=order.max_model_len,
        vocab_size=spec.vocab_size,
        num_token_types=spec.encoder.num_token_types,
    )


def check_step(order: LoadOrder, *, prefill_tokens: int, num_decodes: int, context_tokens: int) -> None:
    """Raises InvalidArgumentError naming what of a step is more than a step of the model can have."""
    for field, value, most in (
        ("prefill_tokens", prefill_tokens, max(order.max_num_batched_tokens, order.max_model_len)),  # as an encoder's
        ("num_decodes", num_decodes, order.max_num_seqs),
        ("context_tokens", context_tokens, order.max_model_len),
    ):
        if not 0 <= value <= most:
            raise InvalidArgumentError(f"{field} is {value}, it must be from 0 to {most}.", field=field)


def check_cache_memory(order: LoadOrder, spec: ModelSpec, *, memory_bytes: int) -> None:
    """Raises ResourceExhaustedError where the worker's part of the KV cache is larger than its device's memory, or its
    host tier than the host's.
    """
    shard = shard_of(spec, order.parallel, rank=order.rank)
    block_bytes = shard_kv_bytes_per_token(spec, shard) * order.block_size
    for field, num_blocks, most_bytes in (
        ("num_blocks", order.num_own_blocks, memory_bytes),
        ("num_host_blocks", order.num_own_host_blocks, psutil.virtual_memory().total),
    ):
        if num_blocks * block_bytes > most_bytes:
            raise ResourceExhaustedError(
                f"{num_blocks} KV blocks of {order.model} take {format_bytes(num_blocks * block_bytes)}; there are "
                f"{format_bytes(most_bytes)}.",
                hint="Make a plan for the workers that are there.",
                field=field,
            )
