"""Sizes a replica of a model that does not generate: weights and workspace, no KV blocks."""

from operator import itemgetter

from headway.core.cluster import PlanWorker
from headway.core.held_memory import RUNTIME_BYTES
from headway.core.latency import LatencyModel
from headway.core.model import ModelSpec
from headway.core.parallel_config import ParallelConfig
from headway.core.plan.serving import Assignment, ModelDeployment, Prediction, RankShare
from headway.core.shard import ModelShard, shard_of, shard_weight_bytes
from headway.planner.serving.batching import Batching
from headway.planner.serving.grouping import Group
from headway.planner.serving.memory import Shortfall, shortest_len
from headway.planner.serving.prediction import REFERENCE_TOKENS
from headway.planner.serving.stages import with_fastest_stages

_FLOAT_BYTES = 4
_BACKEND_COPIES = 4
"""How often a model that is put on a backend has its weights besides: as libraries read and pack them, two at once."""


def size_encoder(
    model: ModelDeployment,
    group: Group,
    parallel: ParallelConfig,
    *,
    group_id: str,
    batching: Batching,
    latency: LatencyModel,
    profile_id: str,
) -> Assignment | Shortfall:
    """Makes the assignment of an encoder to a group of workers, or says why it does not fit.

    Args:
        latency: latency model, measured or estimated; `profile_id` is empty for an estimate.

    Raises:
        InvalidArgumentError: the model cannot take sequences as long as they are to be.
    """
    spec = model.spec
    shortest_len(model)
    max_model_len = model.max_model_len or spec.max_position
    step_tokens = max(batching.max_num_batched_tokens, max_model_len)
    parallel = with_fastest_stages(spec, parallel)
    shares = [
        _share(model, worker, shard_of(spec, parallel, rank=rank), parallel, step_tokens=step_tokens)
        for rank, worker in enumerate(group)
    ]
    missing_bytes, worker = max(
        (
            (share.weight_bytes + share.reserved_bytes - worker.hardware.memory_bytes, worker)
            for share, worker in zip(shares, group, strict=True)
        ),
        key=itemgetter(0),
    )
    if missing_bytes > 0:
        return Shortfall(worker=worker, missing_bytes=missing_bytes, longest_len=0)
    return Assignment(
        group_id=group_id,
        worker_id=shares[0].worker_id,
        model=model.name,
        weight_bytes=shares[0].weight_bytes,
        kv_cache_bytes=0,
        reserved_bytes=shares[0].reserved_bytes,
        num_blocks=0,
        block_size=batching.block_size,
        max_num_seqs=batching.max_num_seqs,
        max_num_batched_tokens=batching.max_num_batched_tokens,
        max_model_len=max_model_len,
        enable_prefix_cache=False,
        prediction=_predict(
            latency, profile_id, step_tokens=step_tokens, max_model_len=max_model_len, num_stages=parallel.pp
        ),
        parallel=parallel,
        ranks=tuple(shares) if len(shares) > 1 else (),
    )


def _share(
    model: ModelDeployment, worker: PlanWorker, shard: ModelShard, parallel: ParallelConfig, *, step_tokens: int
) -> RankShare:
    spec, weight_bytes = model.spec, shard_weight_bytes(model.spec, shard)
    copied_bytes = _BACKEND_COPIES * weight_bytes if model.backend else 0
    return RankShare(
        worker_id=worker.worker_id,
        weight_bytes=weight_bytes,
        kv_cache_bytes=0,
        reserved_bytes=copied_bytes + _reserve(spec, parallel, device=worker.hardware.device, step_tokens=step_tokens),
        first_layer=shard.layers.start,
        num_layers=len(shard.layers),
    )


def _reserve(spec: ModelSpec, parallel: ParallelConfig, *, device: str, step_tokens: int) -> int:
    """Bytes of the runtime itself and the widest activations of one step; between stages also the hidden states of each
    batch that is under way."""
    width = 6 * spec.hidden_size + spec.intermediate_size + (parallel.pp - 1) * spec.hidden_size
    return RUNTIME_BYTES[device] + step_tokens * width * _FLOAT_BYTES


def _predict(
    latency: LatencyModel, profile_id: str, *, step_tokens: int, max_model_len: int, num_stages: int
) -> Prediction:
    """Predicts a sequence alone on an idle replica, and steps full of such sequences, one in each stage."""
    num_tokens = min(REFERENCE_TOKENS, max_model_len)
    num_sequences = max(1, step_tokens // num_tokens)
    alone_s = latency.step_s(prefill_tokens=num_tokens, num_decodes=0, context_tokens=0)
    full_s = latency.base_s + num_sequences * (alone_s - latency.base_s)
    return Prediction(
        ttft_s=alone_s,
        tpot_s=0.0,
        tpot_loaded_s=0.0,
        output_tokens_per_s=0.0,
        input_tokens_per_s=num_stages * num_sequences * num_tokens / full_s,
        latency=latency,
        profile_id=profile_id,
    )
