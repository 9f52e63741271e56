"""From an order to a loaded model: slow, and done in a thread but for the last step."""

import time
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from headway.core.cluster import Hardware
from headway.encoder.engine import EncoderEngine
from headway.encoder.limits import EncoderLimits
from headway.engine.config import EngineConfig
from headway.engine.engine import Engine
from headway.runner.encoder_runner import EncoderRunner
from headway.runner.model_runner import ModelRunner
from headway.store.checkpoint import Checkpoint, read_checkpoint
from headway.worker.loaded_encoder import LoadedEncoder
from headway.worker.loaded_model import LoadedModel
from headway.worker.order import LoadOrder

Progress: TypeAlias = Callable[[float, str], None]
Loaded: TypeAlias = LoadedModel | LoadedEncoder


def prepare(order: LoadOrder, hardware: Hardware, progress: Progress) -> Callable[..., Loaded]:
    """Loads the weights. What it returns is called in the event loop, with the rest of `LoadedModel`'s arguments.

    Args:
        progress: called with (fraction, stage).

    Raises:
        HeadwayError: the checkpoint is missing or malformed, or of a kind that Headway does not run.
    """
    checkpoint = read_checkpoint(order.directory, dtype=order.dtype or None, quantization=order.quantization or None)

    def note(done_bytes: int, total_bytes: int) -> None:
        progress(done_bytes / max(total_bytes, 1), f"loading {order.model}")

    if checkpoint.spec.encoder is not None:
        return _prepare_encoder(order, checkpoint, hardware, note)
    return _prepare_model(order, checkpoint, hardware, note)


def _prepare_model(
    order: LoadOrder, checkpoint: Checkpoint, hardware: Hardware, note: Callable[[int, int], None]
) -> Callable[..., LoadedModel]:
    runner = ModelRunner(
        checkpoint,
        num_blocks=order.num_blocks,
        block_size=order.block_size,
        num_host_blocks=order.num_host_blocks,
        device=hardware.device,
        num_threads=hardware.num_threads,
        progress=note,
    )
    config = EngineConfig(
        num_blocks=order.num_blocks,
        block_size=order.block_size,
        max_num_seqs=order.max_num_seqs,
        max_num_batched_tokens=order.max_num_batched_tokens,
        max_model_len=order.max_model_len,
        enable_prefix_cache=order.enable_prefix_cache,
        max_num_prefill_tokens=order.max_num_prefill_tokens,
        host_blocks=order.num_host_blocks,
        preemption=order.preemption,
        num_draft_tokens=order.num_draft_tokens,
        vocab_size=checkpoint.spec.vocab_size,
        eos_token_ids=checkpoint.eos_token_ids,
    )
    engine = Engine(config, runner=runner, clock=time.perf_counter)
    return partial(LoadedModel, order, engine=engine, runner=runner)


def _prepare_encoder(
    order: LoadOrder, checkpoint: Checkpoint, hardware: Hardware, note: Callable[[int, int], None]
) -> Callable[..., LoadedEncoder]:
    spec = checkpoint.spec
    assert spec.encoder is not None
    runner = EncoderRunner(checkpoint, device=hardware.device, num_threads=hardware.num_threads, progress=note)
    limits = EncoderLimits(
        max_num_seqs=order.max_num_seqs,
        max_num_batched_tokens=order.max_num_batched_tokens,
        max_model_len=order.max_model_len,
        vocab_size=spec.vocab_size,
        num_token_types=spec.encoder.num_token_types,
    )
    engine = EncoderEngine(limits, runner=runner, clock=time.perf_counter)
    return partial(LoadedEncoder, order, engine=engine, runner=runner)
