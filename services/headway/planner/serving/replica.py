"""Sizes one model's replica on one group of workers, and predicts it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from headway.core.catalogue import Catalogue
from headway.core.cluster import Hardware
from headway.core.hardware.profile import LinkProfile
from headway.core.latency import LatencyModel
from headway.core.links import Links
from headway.core.model import ModelSpec
from headway.core.parallel_config import ParallelConfig
from headway.core.plan.serving import Assignment, EngineLimits, ModelDeployment, Prediction
from headway.core.profile import Profile, profile_id
from headway.core.shard import check_parallel
from headway.core.stage_profile import StageProfile
from headway.planner.serving.batching import Batching, choose_batching
from headway.planner.serving.collectives import figures_of
from headway.planner.serving.device_roofline import links_among
from headway.planner.serving.encoder import size_encoder
from headway.planner.serving.grouping import Group
from headway.planner.serving.memory import MemorySplit, Shortfall, split_memory
from headway.planner.serving.prediction import predict
from headway.planner.serving.profiled import size_profiled
from headway.planner.serving.roofline import estimate_latency, estimate_stage_latencies


def size_replica(
    model: ModelDeployment,
    group: Group,
    *,
    limits: EngineLimits,
    profiles: Mapping[str, Profile],
    stage_profiles: Mapping[str, StageProfile] | None = None,
    link_profiles: Sequence[LinkProfile] = (),
    catalogue: Catalogue | None = None,
) -> Assignment | Shortfall:
    """Makes the assignment of `model` to `group`, or says why it does not fit.

    Args:
        group: as many workers as the layout of `limits` has ranks, of equal hardware; the model allows the layout. Or a
            lone worker with several devices, over which its engine splits each layer.
        profiles: by id; where the pair's is missing, predictions are estimates.
        stage_profiles: by id, of models that have no other; None for none.
        link_profiles: what was measured between workers; estimates rest on those of hardware like the group's.
        catalogue: that estimates rest on; None for the built-in one.

    Raises:
        InvalidArgumentError: a limit or a length makes no sense, on any worker; or the model cannot be split over a
            worker's devices.
    """
    if (num_devices := group[0].hardware.num_devices) > 1:  # they are the ranks
        group, limits = group * num_devices, replace(limits, tp=num_devices)
        check_parallel(model.spec, limits.parallel, num_workers=num_devices)
    leader, group_id = group[0], group_of(group[0].worker_id)
    if model.profile:
        return size_profiled(
            model, group, group_id=group_id, limits=limits, stage_profiles=stage_profiles or {}, catalogue=catalogue
        )
    links = links_among(group, link_profiles, catalogue)
    estimate = estimate_latency(model.spec, leader.hardware, limits.parallel, links=links, catalogue=catalogue)
    batching = choose_batching(limits, device=leader.hardware.device, estimate=estimate, engine=leader.hardware.engine)
    if model.spec.encoder is not None:
        latency, name = _latency(model, leader.hardware, limits.parallel, profiles, links, catalogue)
        encoder = size_encoder(
            model, group, limits.parallel, group_id=group_id, batching=batching, latency=latency, profile_id=name
        )
        if isinstance(encoder, Shortfall):
            return encoder
        return _finish(encoder, model.spec, leader.hardware, links, catalogue)
    split = split_memory(model, group, batching=batching, limits=limits)
    if isinstance(split, Shortfall):
        return split
    latency, name = _latency(model, leader.hardware, split.parallel, profiles, links, catalogue)
    prediction = predict(
        latency,
        profile_id=name,
        num_blocks=split.num_blocks,
        block_size=batching.block_size,
        max_num_seqs=batching.max_num_seqs,
        max_num_batched_tokens=batching.max_num_batched_tokens,
        max_model_len=split.max_model_len,
    )
    assignment = _assign(model.name, group_id, batching=batching, split=split, prediction=prediction)
    return _finish(assignment, model.spec, leader.hardware, links, catalogue)


def _finish(
    assignment: Assignment, spec: ModelSpec, hardware: Hardware, links: Links, catalogue: Catalogue | None
) -> Assignment:
    """Adds the links that estimates rest on, and the times that emulated devices are to take: those that are
    predicted."""
    assignment = replace(assignment, links=figures_of(spec, assignment.parallel, links))
    if not hardware.is_emulated:
        return assignment
    if assignment.parallel.pp == 1:
        return replace(assignment, stage_latencies=(assignment.prediction.latency,))
    return replace(
        assignment, stage_latencies=estimate_stage_latencies(spec, hardware, assignment.parallel, catalogue=catalogue)
    )


def _latency(
    model: ModelDeployment,
    hardware: Hardware,
    parallel: ParallelConfig,
    profiles: Mapping[str, Profile],
    links: Links,
    catalogue: Catalogue | None,
) -> tuple[LatencyModel, str]:
    """The measured latency model with its profile's id; else an estimate, and ''."""
    profile = profiles.get(profile_id(model.spec, hardware, parallel, backend=model.backend))
    if profile is None:
        return estimate_latency(model.spec, hardware, parallel, links=links, catalogue=catalogue), ""
    return profile.latency, profile.profile_id


def _assign(model: str, group_id: str, *, batching: Batching, split: MemorySplit, prediction: Prediction) -> Assignment:
    share = split.shares[0]
    return Assignment(
        group_id=group_id,
        worker_id=share.worker_id,
        model=model,
        weight_bytes=share.weight_bytes,
        kv_cache_bytes=share.kv_cache_bytes,
        reserved_bytes=share.reserved_bytes,
        num_blocks=split.num_blocks,
        block_size=batching.block_size,
        max_num_seqs=batching.max_num_seqs,
        max_num_batched_tokens=batching.max_num_batched_tokens,
        max_model_len=split.max_model_len,
        enable_prefix_cache=batching.enable_prefix_cache,
        prediction=prediction,
        max_num_prefill_tokens=batching.max_num_prefill_tokens,
        host_cache_bytes=share.host_cache_bytes,
        num_host_blocks=split.num_host_blocks,
        preemption=batching.preemption,
        num_draft_tokens=batching.num_draft_tokens,
        parallel=split.parallel,
        ranks=split.shares if len(split.shares) > 1 else (),
    )


def group_of(worker_id: str) -> str:
    """Names a group after its leader: 'worker-0' leads 'group-0'."""
    return worker_id.replace("worker", "group") if "worker" in worker_id else f"group-{worker_id}"
