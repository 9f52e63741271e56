"""Profiles a language model as groups of several shapes on a kind of device: what placement chooses from. Pure.

Each is sized as `headway apply` will size it: with a group to itself its blocks and batches are those that it gets, and
what it takes of the memory says how many blocks it gets beside others.
"""

from collections.abc import Iterator
from dataclasses import replace

from headway.core.catalogue import Catalogue
from headway.core.catalogue.figure import Provenance
from headway.core.cluster import Hardware, PlanWorker
from headway.core.engine_kind import EngineKind
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.generation import CacheMemory, generation_profile_of
from headway.core.held_memory import runtime_bytes_of
from headway.core.live_placement import live_device
from headway.core.parallel_config import SINGLE, ParallelConfig
from headway.core.plan.serving import Assignment, EngineLimits, ModelDeployment
from headway.core.shard import check_parallel
from headway.core.stage_profile import StageProfile, stage_profile_id
from headway.planner.serving.engines import limits_of
from headway.planner.serving.memory import Shortfall, shortest_len
from headway.planner.serving.replica import size_replica

_SOURCE = "estimated from the shape of the model and the catalogue's figures of {device}"


def estimate_generation(
    model: ModelDeployment, hardware: Hardware, *, catalogue: Catalogue, max_devices: int, created_at_s: float
) -> list[StageProfile]:
    """Profiles all shapes that the model allows and fits, whose numbers of stages, and of devices in each, are powers
    of two.

    Args:
        hardware: hardware of every device.
        max_devices: devices of the largest shape.

    Raises:
        InvalidArgumentError: the model does not generate.
        FailedPreconditionError: it fits no shape.
    """
    if model.spec.encoder is not None:
        raise InvalidArgumentError(
            f"'{model.name}' does not generate.", hint="Write capture: DIR instead of generate: DIR.", field="generate"
        )
    device = live_device(hardware, catalogue)
    profiles = []
    shortfall = None
    for parallel in _layouts(model, max_devices):
        group = tuple(PlanWorker(worker_id=f"worker-{rank}", hardware=hardware) for rank in range(parallel.num_ranks))
        limits = limits_of(model.engine, EngineLimits(tp=parallel.tp, pp=parallel.pp), group)
        sized = size_replica(model, group, limits=limits, profiles={}, catalogue=catalogue)
        if isinstance(sized, Shortfall):
            shortfall = sized
        else:
            profiles.append(_profile(model, sized, hardware, device=device, created_at_s=created_at_s))
    if not profiles:
        missing_bytes = shortfall.missing_bytes if shortfall is not None else 0
        raise FailedPreconditionError(
            f"'{model.name}' fits no group of up to {max_devices} x {device}: {missing_bytes} bytes are missing on a "
            "device of the largest.",
            hint="Allow larger groups, or give it a narrower dtype.",
            field="models",
        )
    return profiles


def _layouts(model: ModelDeployment, max_devices: int) -> Iterator[ParallelConfig]:
    if model.engine is EngineKind.VLLM:
        max_devices = 1
    sizes = [2**power for power in range(max_devices.bit_length())]
    for tp in sizes:
        for pp in sizes:
            parallel = ParallelConfig(tp=tp, pp=pp)
            if parallel.num_ranks <= max_devices:
                try:
                    check_parallel(model.spec, parallel, num_workers=parallel.num_ranks)
                except InvalidArgumentError:  # heads or layers cannot be dealt out so
                    continue
                yield parallel


def _profile(
    model: ModelDeployment, assignment: Assignment, hardware: Hardware, *, device: str, created_at_s: float
) -> StageProfile:
    parallel, latency = assignment.parallel, assignment.prediction.latency
    is_alone = model.engine is EngineKind.VLLM  # which has its worker to itself, and that is one device here
    shape = SINGLE if is_alone else parallel
    own_bytes = runtime_bytes_of(hardware)
    stages: list[list[tuple[int, int, int]]] = [[] for _ in range(parallel.pp)]
    for rank, share in enumerate(assignment.shares):
        fixed_bytes = share.weight_bytes + share.reserved_bytes - own_bytes
        block_bytes = share.kv_cache_bytes // assignment.num_blocks
        stages[parallel.place(rank).stage].append((share.weight_bytes, fixed_bytes, block_bytes))
    weight, fixed, block = (tuple(max(rank[part] for rank in stage) for stage in stages) for part in range(3))
    memory = CacheMemory(
        memory_bytes=hardware.memory_bytes - own_bytes,
        fixed_bytes=fixed,
        block_bytes=block,
        least_blocks=-(-shortest_len(model) // assignment.block_size),
        token_bytes=model.spec.kv_bytes_per_token,
    )
    return StageProfile(
        profile_id=stage_profile_id(model.name, device, pp=shape.pp, op=shape.tp),
        model=model.name,
        hardware=device,
        pp=shape.pp,
        op=shape.tp,
        weight_bytes=weight,
        batches=(),
        source=_SOURCE.format(device=device),
        provenance=Provenance.ESTIMATED,
        relative_error=latency.relative_error,
        created_at_s=created_at_s,
        generation=replace(generation_profile_of(assignment), memory=None if is_alone else memory),
    )
