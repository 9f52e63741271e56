"""From an order to a loaded model: slow, and done in a thread but for the last step."""

import time
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from headway.core.cluster import Hardware
from headway.core.shard import check_parallel
from headway.encoder.engine import EncoderEngine
from headway.encoder.limits import EncoderLimits
from headway.engine.config import EngineConfig
from headway.engine.engine import Engine
from headway.observe.tracing import Tracing
from headway.runner.encoder_runner import EncoderRunner
from headway.runner.model_runner import ModelRunner
from headway.runner.parallel.group import RankGroup
from headway.runner.shard_runner import ShardRunner
from headway.store.checkpoint import Checkpoint, read_checkpoint
from headway.worker.group_loading import load_in_group
from headway.worker.load_call import LoadCall
from headway.worker.loaded_encoder import LoadedEncoder
from headway.worker.loaded_model import LoadedModel
from headway.worker.loaded_rank import LoadedRank
from headway.worker.order import LoadOrder
from headway.worker.owner import Owner

Loaded: TypeAlias = LoadedModel | LoadedEncoder | LoadedRank
ByteProgress: TypeAlias = Callable[[int, int], None]
Start: TypeAlias = Callable[[Owner, Tracing], Loaded]
"""The last step of a load, for the event loop."""


def prepare(order: LoadOrder, hardware: Hardware, *, address: str, call: LoadCall) -> Start:
    """Loads the weights; in a group, those of the worker's rank.

    Args:
        address: where other processes reach this one.

    Raises:
        HeadwayError: the checkpoint is missing or malformed, or of a kind that Headway does not run so; or another rank
            could not load.
    """
    load = partial(_load, hardware=hardware, call=call)
    if not order.is_in_group:
        return load(order, None)
    return load_in_group(order, device=hardware.device, address=address, call=call, load=load)


def _load(order: LoadOrder, group: RankGroup | None, *, hardware: Hardware, call: LoadCall) -> Start:
    checkpoint = read_checkpoint(order.directory, dtype=order.dtype or None, quantization=order.quantization or None)
    check_parallel(checkpoint.spec, order.parallel, num_workers=order.parallel.num_ranks)

    def note(done_bytes: int, total_bytes: int) -> None:
        call.tell(done_bytes / max(total_bytes, 1), f"loading {order.model}")
        if group is not None:
            call.check()  # others wait for this rank, and the caller may have given up on one of them

    if checkpoint.spec.encoder is not None:
        return _load_encoder(order, checkpoint, hardware, note)
    if group is not None and order.rank > 0:
        return _load_rank(order, checkpoint, hardware, note, group)
    return _load_model(order, checkpoint, hardware, note, group)


def _load_model(
    order: LoadOrder, checkpoint: Checkpoint, hardware: Hardware, note: ByteProgress, group: RankGroup | None
) -> Start:
    runner = ModelRunner(
        checkpoint,
        group=group,
        num_blocks=order.num_own_blocks,
        block_size=order.block_size,
        num_host_blocks=order.num_own_host_blocks,
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
        num_micro_batches=order.parallel.pp,
        num_shards=order.parallel.cp,
        vocab_size=checkpoint.spec.vocab_size,
        eos_token_ids=checkpoint.eos_token_ids,
    )
    engine = Engine(config, runner=runner, clock=time.perf_counter)
    return lambda owner, tracing: LoadedModel(order, engine=engine, runner=runner, owner=owner, tracing=tracing)


def _load_rank(
    order: LoadOrder, checkpoint: Checkpoint, hardware: Hardware, note: ByteProgress, group: RankGroup
) -> Start:
    runner = ShardRunner(
        checkpoint,
        group=group,
        num_blocks=order.num_own_blocks,
        block_size=order.block_size,
        num_host_blocks=order.num_own_host_blocks,
        device=hardware.device,
        num_threads=hardware.num_threads,
        progress=note,
    )
    return lambda owner, _: LoadedRank(order, group=group, runner=runner, owner=owner)


def _load_encoder(order: LoadOrder, checkpoint: Checkpoint, hardware: Hardware, note: ByteProgress) -> Start:
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
    return lambda owner, tracing: LoadedEncoder(order, engine=engine, runner=runner, owner=owner, tracing=tracing)
