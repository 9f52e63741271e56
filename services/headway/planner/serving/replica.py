"""One model's replica on one worker, sized and predicted."""

from collections.abc import Mapping

from headway.core.cluster import PlanWorker
from headway.core.plan import Assignment, EngineLimits, ModelDeployment
from headway.core.profile import Profile, profile_id
from headway.planner.serving.batching import choose_batching
from headway.planner.serving.encoder import size_encoder
from headway.planner.serving.memory import Shortfall, split_memory
from headway.planner.serving.prediction import predict
from headway.planner.serving.roofline import estimate_latency


def size_replica(
    model: ModelDeployment, worker: PlanWorker, *, limits: EngineLimits, profiles: Mapping[str, Profile]
) -> Assignment | Shortfall:
    """The assignment of `model` to `worker`, or why it does not fit.

    Args:
        profiles: by id; where the pair's is missing, predictions are estimates.

    Raises:
        InvalidArgumentError: a limit or a length makes no sense, on any worker.
    """
    estimate = estimate_latency(model.spec, worker.hardware)
    batching = choose_batching(limits, device=worker.hardware.device, estimate=estimate)
    profile = profiles.get(profile_id(model.spec, worker.hardware))
    if model.spec.encoder is not None:
        return size_encoder(
            model,
            worker,
            group_id=group_of(worker.worker_id),
            batching=batching,
            latency=profile.latency if profile else estimate,
            profile_id=profile.profile_id if profile else "",
        )
    split = split_memory(model, worker.hardware, batching=batching, limits=limits)
    if isinstance(split, Shortfall):
        return split
    return Assignment(
        group_id=group_of(worker.worker_id),
        worker_id=worker.worker_id,
        model=model.name,
        weight_bytes=split.weight_bytes,
        kv_cache_bytes=split.kv_cache_bytes,
        reserved_bytes=split.reserved_bytes,
        num_blocks=split.num_blocks,
        block_size=batching.block_size,
        max_num_seqs=batching.max_num_seqs,
        max_num_batched_tokens=batching.max_num_batched_tokens,
        max_model_len=split.max_model_len,
        enable_prefix_cache=batching.enable_prefix_cache,
        prediction=predict(
            profile.latency if profile else estimate,
            profile_id=profile.profile_id if profile else "",
            num_blocks=split.num_blocks,
            block_size=batching.block_size,
            max_num_seqs=batching.max_num_seqs,
            max_num_batched_tokens=batching.max_num_batched_tokens,
            max_model_len=split.max_model_len,
        ),
        max_num_prefill_tokens=batching.max_num_prefill_tokens,
        host_cache_bytes=split.host_cache_bytes,
        num_host_blocks=split.num_host_blocks,
        preemption=batching.preemption,
        num_draft_tokens=batching.num_draft_tokens,
    )


def group_of(worker_id: str) -> str:
    """A group of one worker is named after it: 'worker-0' leads 'group-0'."""
    return worker_id.replace("worker", "group") if "worker" in worker_id else f"group-{worker_id}"
