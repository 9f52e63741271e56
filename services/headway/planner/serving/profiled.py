"""Sizes a replica of a model that is known by its imported stage profiles alone, on emulated devices. Pure."""

from collections.abc import Mapping

from headway.core.catalogue import Catalogue, built_in_catalogue
from headway.core.errors import InvalidArgumentError
from headway.core.held_memory import MemoryRule, held_bytes, runtime_bytes_of
from headway.core.latency import LatencyModel
from headway.core.parallel_config import ParallelConfig
from headway.core.plan.serving import Assignment, EngineLimits, ModelDeployment, Prediction, RankShare
from headway.core.scaled_profile import scale_profile
from headway.core.stage_profile import StageBatch, StageProfile, stage_profile_id
from headway.planner.serving.grouping import Group
from headway.planner.serving.memory import Shortfall, shortest_len
from headway.planner.serving.prediction import REFERENCE_TOKENS

_BLOCK_SIZE = 16


def size_profiled(
    model: ModelDeployment,
    group: Group,
    *,
    group_id: str,
    limits: EngineLimits,
    stage_profiles: Mapping[str, StageProfile],
    catalogue: Catalogue | None,
) -> Assignment | Shortfall:
    """Makes the assignment of a profiled model to `group`, which computes one sequence a step, or says why it does not
    fit.

    Args:
        stage_profiles: by id; one of another device is scaled where there is none of the group's. Tensor parallel ranks
            are what profiles call intra-operator.

    Raises:
        InvalidArgumentError: the devices are real, or no profile is of the layout.
    """
    shortest_len(model)
    parallel = limits.parallel
    profile = _find(model, group, parallel, stage_profiles, catalogue or built_in_catalogue())
    batch = _single(profile)
    held = held_bytes(profile, MemoryRule.RESERVED)
    shares = []
    for rank, worker in enumerate(group):
        stage = parallel.place(rank).stage
        activation_bytes = held[stage] - profile.weight_bytes[stage]
        shares.append(
            RankShare(
                worker_id=worker.worker_id,
                weight_bytes=profile.weight_bytes[stage],
                kv_cache_bytes=0,
                reserved_bytes=activation_bytes + runtime_bytes_of(worker.hardware),
                first_layer=sum(profile.layers_per_stage[:stage]),
                num_layers=profile.layers_per_stage[stage] if profile.layers_per_stage else 0,
            )
        )
    missing_bytes, worker = max(
        (
            (share.weight_bytes + share.reserved_bytes - worker.hardware.memory_bytes, worker)
            for share, worker in zip(shares, group, strict=True)
        ),
        key=lambda pair: pair[0],
    )
    if missing_bytes > 0:
        return Shortfall(worker=worker, missing_bytes=missing_bytes, longest_len=0)
    max_model_len = model.max_model_len or model.spec.max_position
    return Assignment(
        group_id=group_id,
        worker_id=group[0].worker_id,
        model=model.name,
        weight_bytes=shares[0].weight_bytes,
        kv_cache_bytes=0,
        reserved_bytes=shares[0].reserved_bytes,
        num_blocks=0,
        block_size=limits.block_size or _BLOCK_SIZE,
        max_num_seqs=1,
        max_num_batched_tokens=max_model_len,
        max_model_len=max_model_len,
        enable_prefix_cache=False,
        prediction=_predict(profile, batch, num_tokens=min(REFERENCE_TOKENS, max_model_len)),
        parallel=parallel,
        ranks=tuple(shares) if len(shares) > 1 else (),
        stage_latencies=tuple(_constant(latency_s, profile) for latency_s in batch.stage_latency_s),
    )


def _find(
    model: ModelDeployment,
    group: Group,
    parallel: ParallelConfig,
    stage_profiles: Mapping[str, StageProfile],
    catalogue: Catalogue,
) -> StageProfile:
    hardware = group[0].hardware
    if not hardware.is_emulated:
        raise InvalidArgumentError(
            f"Model '{model.name}' is known by its profile alone, and {group[0].worker_id} is a real device.",
            hint="Serve it on emulated devices: headway up --emulate.",
            field="models",
        )
    device = catalogue.device_of(hardware).name
    name = stage_profile_id(model.profile, device, pp=parallel.pp, op=parallel.tp)
    layout = model.profile, parallel.pp, parallel.tp
    others = [each for each in stage_profiles.values() if (each.model, each.pp, each.op) == layout]
    profile = stage_profiles.get(name)
    if profile is None and others:
        profile = scale_profile(others[0], device=device, catalogue=catalogue)
    if profile is None or parallel.cp > 1:
        raise InvalidArgumentError(
            f"There is no profile of {model.profile} on {device} with pp {parallel.pp}, op {parallel.tp}"
            f"{f' and cp {parallel.cp}' if parallel.cp > 1 else ''}.",
            hint="--stage-profiles imports a file; `headway profile list` shows what there is. op is --tp.",
            field="models",
        )
    return profile


def _single(profile: StageProfile) -> StageBatch:
    if not profile.batches or profile.smallest_batch.batch_size != 1:
        raise InvalidArgumentError(
            f"The profile of {profile.model} with pp {profile.pp}, op {profile.op} has no batch of one.",
            hint="Import one that has: emulated groups take one sequence at a time.",
            field="models",
        )
    return profile.smallest_batch


def _constant(latency_s: float, profile: StageProfile) -> LatencyModel:
    """A latency model that is the same for every sequence: profiles are of one length."""
    return LatencyModel(
        base_s=latency_s,
        per_prefill_token_s=0.0,
        per_prefill_pair_s=0.0,
        per_decode_s=0.0,
        per_context_token_s=0.0,
        relative_error=profile.relative_error,
        origin=profile.provenance,
    )


def _predict(profile: StageProfile, batch: StageBatch, *, num_tokens: int) -> Prediction:
    """Predicts the replica; the slowest stage sets the rate."""
    return Prediction(
        ttft_s=sum(batch.stage_latency_s),
        tpot_s=0.0,
        tpot_loaded_s=0.0,
        output_tokens_per_s=0.0,
        input_tokens_per_s=num_tokens / max(batch.stage_latency_s),
        latency=_constant(sum(batch.stage_latency_s), profile),
        profile_id=profile.profile_id,
    )
