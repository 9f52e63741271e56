"""Profiles of the language models that are to be placed."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from headway.cli.placement.cluster import LIVE
from headway.cli.running import cluster_status
from headway.cli.search.planner_link import PlannerLink
from headway.cli.search.progress import Show
from headway.core.catalogue import read_catalogue
from headway.core.catalogue.figure import Provenance
from headway.core.cluster import Hardware
from headway.core.device_name import split_device_name
from headway.core.engine_kind import EngineKind
from headway.core.errors import InvalidArgumentError
from headway.core.generation import generation_profile_of
from headway.core.live_placement import live_device
from headway.core.models_file import ModelEntry, ModelOrigin
from headway.core.placement_problem import ServingCluster
from headway.core.plan.serving import ModelDeployment, ServingPlan
from headway.core.search_progress import SearchProgress
from headway.core.stage_profile import StageProfile
from headway.rpc.convert import from_pb, to_pb
from headway.store.checkpoint import read_checkpoint
from headway.v1 import common_pb2, placement_pb2


async def generating_profiles(
    entries: Sequence[ModelEntry],
    cluster: ServingCluster,
    *,
    live: ServingPlan | None,
    catalogue: Path | None,
    max_devices: int,
    planner: PlannerLink,
    show: Show,
) -> list[StageProfile]:
    """Estimates a profile for each checkpoint that the cluster's engine computes, once however many names it has.

    Args:
        live: the plan of the running stack whose workers are the cluster; its measured latencies are taken.
        max_devices: devices of the largest group.

    Raises:
        HeadwayError: a checkpoint cannot be read, does not generate or fits nowhere; names the line.
    """
    _, engine = split_device_name(cluster.device)
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
            hardware=to_pb(_hardware(cluster, live=live, catalogue=catalogue), common_pb2.Hardware),
            max_devices=max_devices,
        )
        async with planner.stub() as stub:
            response = await stub.EstimateGeneration(request)
        names = {each.name for each in entries if each.architecture == architecture}
        profiles += [_as_measured(from_pb(profile, StageProfile), names, live) for profile in response.profiles]
    return profiles


def live_plan(cluster: str, state_dir: Path | None) -> ServingPlan | None:
    """The plan of the running stack whose workers are the cluster; None for another cluster."""
    return cluster_status(None, api_key=None, state_dir=state_dir).plan if cluster == LIVE else None


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
    spec = read_checkpoint(directory, dtype=entry.dtype, quantization=None, has_weights=False).spec
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
        engine=entry.engine or EngineKind.HEADWAY,
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


def _as_measured(profile: StageProfile, names: set[str], live: ServingPlan | None) -> StageProfile:
    """The profile with the latencies of a live group of its shape, where those were measured."""
    for assignment in live.assignments if live is not None else ():
        parallel, generation = assignment.parallel, profile.generation
        is_alike = assignment.model in names and (parallel.pp, parallel.tp) == (profile.pp, profile.op)
        if is_alike and assignment.prediction.profile_id and generation is not None:
            own = generation_profile_of(assignment)
            measured = replace(generation, latency=own.latency, stage_latencies=own.stage_latencies)
            return replace(
                profile,
                generation=measured,
                source="measured on the live workers",
                provenance=Provenance.MEASURED,
                relative_error=own.latency.relative_error,
            )
    return profile
