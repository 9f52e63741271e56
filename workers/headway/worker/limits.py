"""Turns a worker's load order into the limits of its engine."""

from typing import cast

from headway.core.load_order import LoadOrder
from headway.core.model import ModelSpec
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
