"""Profiles of the language models that are to be placed."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from headway.checkpoint.model_directory import read_checkpoint
from headway.cli.placement.cluster import LIVE
from headway.cli.running import cluster_status
from headway.cli.search.planner_link import PlannerLink
from headway.cli.search.progress import Show
from headway.client import ClusterStatus
from headway.core.catalogue import read_catalogue
from headway.core.catalogue.figure import Provenance
from headway.core.cluster import Hardware
from headway.core.device_name import split_device_name
from headway.core.engine_kind import EngineKind
from headway.core.errors import InvalidArgumentError
from headway.core.generation import generation_profile_of
from headway.core.latency import LatencyModel
from headway.core.live_placement import live_device
from headway.core.models_file import ModelEntry, ModelOrigin
from headway.core.placement_problem import ServingCluster
from headway.core.plan.serving import ModelDeployment, ServingPlan
from headway.core.search_progress import SearchProgress
from headway.core.stage_profile import StageProfile
from headway.rpc.convert import from_pb, to_pb
from headway.v1 import common_pb2, placement_pb2

_ENOUGH_S = 2.0
"""Of live steps, from which latencies are taken: the estimate that they correct counts little by then."""


async def generating_profiles(
    entries: Sequence[ModelEntry],
    cluster: ServingCluster,
    *,
    live: ClusterStatus | None,
    catalogue: Path | None,
    max_devices: int,
    planner: PlannerLink,
    show: Show,
) -> list[StageProfile]:
    """Estimates a profile for each checkpoint that the cluster's engine computes, once however many names it has.

    Args:
        live: the running stack whose workers are the cluster; what was measured of its groups is taken.
        max_devices: devices of the largest group.

    Raises:
        HeadwayError: a checkpoint cannot be read, does not generate or fits nowhere; names the line.
    """
    _, engine = split_device_name(cluster.device)
    plan = live.plan if live is not None else None
    generating = {
        entry.architecture: entry
        for entry in entries
        if entry.origin is ModelOrigin.GENERATE and (entry.engine or EngineKind.HEADWAY) is engine
    }
    profiles: list[StageProfile] = []
    for architecture, entry in generating.items():
        show(SearchProgress(phase=f"estimating {entry.source}"))
        request = placement_pb2.EstimateGenerationRequest(
            model=to_pb(_deployment(entry), common_pb2.ModelDeployment),
            hardware=to_pb(_hardware(cluster, live=plan, catalogue=catalogue), common_pb2.Hardware),
            max_devices=max_devices,
        )
        async with planner.stub() as stub:
            response = await stub.EstimateGeneration(request)
        names = {each.name for each in entries if each.architecture == architecture}
        profiles += [as_measured(from_pb(profile, StageProfile), names, live) for profile in response.profiles]
    return profiles


def live_status(cluster: str, state_dir: Path | None) -> ClusterStatus | None:
    """The running stack whose workers are the cluster; None for another cluster."""
    return cluster_status(None, api_key=None, state_dir=state_dir) if cluster == LIVE else None


def with_engines(entries: Sequence[ModelEntry], live: ServingPlan | None) -> tuple[ModelEntry, ...]:
    """The entries with their engines: what the file leaves out is as the stack serves the model.

    Args:
        live: the plan of that stack; None for none.
    """
    return tuple(entry if live is None else _with_engine(entry, live.model(entry.name)) for entry in entries)


def _with_engine(entry: ModelEntry, served: ModelDeployment | None) -> ModelEntry:
    if served is None or entry.origin is not ModelOrigin.GENERATE or entry.engine not in (None, served.engine):
        return entry
    args = served.engine_args if entry.engine_args is None else entry.engine_args
    return replace(entry, engine=served.engine, engine_args=args)


def _deployment(entry: ModelEntry) -> ModelDeployment:
    """The deployment of a checkpoint, named as its architecture."""
    directory = Path(entry.source).expanduser().resolve()
    engine = entry.engine or EngineKind.HEADWAY
    spec = read_checkpoint(directory, dtype=entry.dtype, has_weights=False, engine=engine).spec
    if spec.encoder is not None:
        raise InvalidArgumentError(
            f"{entry.place}: {entry.source} does not generate.",
            hint=f"Write capture: {entry.source}.",
            field="generate",
        )
    return ModelDeployment(
        name=entry.architecture,
        directory=str(directory),
        spec=spec,
        engine=engine,
        engine_args=entry.engine_args or "",
    )


def _hardware(cluster: ServingCluster, *, live: ServingPlan | None, catalogue: Path | None) -> Hardware:
    """Hardware of each device: the live worker with the least memory, else what the catalogue has."""
    known = read_catalogue(catalogue)
    if live is not None:
        fitting = [each.hardware for each in live.workers if live_device(each.hardware, known) == cluster.device]
        return min(fitting, key=lambda each: each.memory_bytes)
    name, engine = split_device_name(cluster.device)
    device = known.device(name)
    if device.memory is None or device.kind != "gpu":
        raise InvalidArgumentError(
            f"A {device.name} has no memory of its own in the catalogue, in which a language model's cache could be.",
            hint="Place it on the workers of a running stack: --cluster live.",
            field="device",
        )
    return Hardware(
        device="cuda",
        name=device.name,
        num_threads=1,
        memory_bytes=int(device.memory.value),
        is_emulated=True,
        software={} if engine is EngineKind.HEADWAY else {engine: ""},
    )


def as_measured(profile: StageProfile, names: set[str], live: ClusterStatus | None) -> StageProfile:
    """The profile with the latencies of a live group of its shape, where those were measured: by the profiler, or else
    by the steps that the group did for its requests."""
    if live is None or live.plan is None or profile.generation is None:
        return profile
    alike = [
        each
        for each in live.plan.assignments
        if each.model in names and (each.parallel.pp, each.parallel.tp) == (profile.pp, profile.op)
    ]
    if (profiled := next((each for each in alike if each.prediction.profile_id), None)) is not None:
        own = generation_profile_of(profiled)
        return _with_latency(profile, own.latency, own.stage_latencies, source="measured on the live workers")
    places = {(each.worker_id, each.model) for each in alike if each.parallel.pp == 1}
    seen = [each for each in live.fleet.groups if (each.worker_id, each.model) in places and each.latency is not None]
    longest = max(seen, key=lambda each: each.observed_s, default=None)
    if longest is None or longest.latency is None or longest.observed_s < _ENOUGH_S:
        return profile
    fitted = replace(longest.latency, origin="measured", relative_error=0.0)
    source = f"fitted to {longest.observed_s:.0f} s of steps of {longest.model} on {longest.worker_id}"
    return _with_latency(profile, fitted, (fitted,), source=source)


def _with_latency(
    profile: StageProfile, latency: LatencyModel, stages: tuple[LatencyModel, ...], *, source: str
) -> StageProfile:
    assert profile.generation is not None, f"{profile.model} does not generate"
    return replace(
        profile,
        generation=replace(profile.generation, latency=latency, stage_latencies=stages),
        source=source,
        provenance=Provenance.MEASURED,
        relative_error=latency.relative_error,
    )
