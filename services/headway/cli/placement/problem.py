"""The problem that the user's options and files describe."""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from headway.cli.placement.cluster import LIVE, find_clusters, stack_settings
from headway.cli.placement.files import read_models, read_profiles, read_traces, trace_files
from headway.cli.placement.generating import generating_profiles, live_status, with_engines
from headway.cli.search.planner_link import PlannerLink, stack_planner
from headway.cli.search.progress import Show
from headway.client.stack import default_state_dir
from headway.core.capture import CaptureProgress, CaptureRequest
from headway.core.catalogue import read_catalogue
from headway.core.codec import from_document, to_document
from headway.core.device_name import split_device_name
from headway.core.engine_kind import EngineKind
from headway.core.errors import HeadwayError, InvalidArgumentError, NotFoundError
from headway.core.graph import Graph
from headway.core.line import QueuePolicy
from headway.core.models_file import ModelEntry, ModelOrigin
from headway.core.placement_problem import (
    PlacementProblem,
    ProblemModel,
    ServingCluster,
    WorkloadSource,
    planned_policy,
)
from headway.core.scaled_profile import scale_profile
from headway.core.search_progress import SearchProgress
from headway.core.stage_profile import StageProfile
from headway.rpc.child import call_child
from headway.rpc.convert import from_pb, to_pb
from headway.v1 import placement_pb2, profiler_pb2

_CAPTURE_TIMEOUT_S = 600.0
_ESTIMATE_TIMEOUT_S = 600.0
_LARGEST_GROUP = 16
"""Devices of one, for estimates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemOptions:
    """Options of a placement problem, as the commands are given them.

    Attributes:
        cluster: a file, or 'live' for the workers of a running stack.
        profiles: a file in AlpaServe's form; None for those that were imported.
        answer_overhead_s: seconds added to each answer; None takes the running stack's where its workers are the
            cluster, else 0.
        queue_policy: order of waiting requests; None as for `answer_overhead_s`.
    """

    models: Path
    cluster: str
    workload: str
    held_out: str = ""
    profiles: Path | None = None
    catalogue: Path | None = None
    slo_scale: float = 5.0
    duration_s: float | None = None
    seed: int = 0
    rules: str = "serving"
    answer_overhead_s: float | None = None
    queue_policy: str | None = None
    state_dir: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Content of the user's files. It is read before the planner is asked, so that faults in it are told at once.

    Attributes:
        profiles: stage profiles of the models that name some.
        files: content of the traces, by name.
        answer_overhead_s, queue_policy: see `PlacementProblem`.
    """

    options: ProblemOptions
    models: tuple[ModelEntry, ...]
    clusters: tuple[ServingCluster, ...]
    profiles: tuple[StageProfile, ...]
    files: dict[str, bytes]
    answer_overhead_s: float
    queue_policy: QueuePolicy


async def read_inputs(options: ProblemOptions) -> Inputs:
    """Reads the user's files. HeadwayError names file and line, or the option, that is at fault."""
    live = await asyncio.to_thread(live_status, options.cluster, options.state_dir)
    models = with_engines(read_models(options.models), live.plan if live is not None else None)
    clusters = await asyncio.to_thread(
        find_clusters,
        options.cluster,
        {entry.engine or EngineKind.HEADWAY for entry in models},
        catalogue=options.catalogue,
        state_dir=options.state_dir,
    )
    files = read_traces((options.workload, options.held_out))
    profiles = await _find_profiles(models, clusters, options)
    known = {profile.model for profile in profiles}
    for entry in models:
        if entry.origin is ModelOrigin.PROFILE and entry.source not in known:
            devices = " or ".join(cluster.device for cluster in clusters)
            raise InvalidArgumentError(
                f"{entry.place}: there is no profile of '{entry.source}' on {devices}.",
                hint=f"There are {', '.join(sorted(known)) or 'none'}; `headway profile list` shows what a stack has.",
                field="profile",
            )
    told = await asyncio.to_thread(stack_settings, options.cluster, options.state_dir)
    overhead_s, policy = options.answer_overhead_s, options.queue_policy
    is_by_turn = options.rules != "serving" or any(entry.origin is ModelOrigin.GENERATE for entry in models)
    return Inputs(
        options=options,
        models=models,
        clusters=clusters,
        profiles=tuple(profiles),
        files=files,
        answer_overhead_s=told.answer_overhead_s if overhead_s is None else overhead_s,
        queue_policy=planned_policy(told.queue_policy, generates=is_by_turn) if policy is None else QueuePolicy(policy),
    )


async def make_problem(inputs: Inputs, planner: PlannerLink, show: Show) -> PlacementProblem:
    """Captures the models that have no profiles, and has the planner estimate them."""
    options = inputs.options
    return PlacementProblem(
        models=tuple(
            ProblemModel(
                name=entry.name,
                architecture=entry.architecture,
                share=entry.share,
                slo_s=entry.slo_s,
                checkpoint=_checkpoint(entry),
                prompt=entry.prompt,
                output=entry.output,
                ttft_s=entry.ttft_s,
                tpot_s=entry.tpot_s,
                engine=entry.engine or EngineKind.HEADWAY,
                engine_args=entry.engine_args or "",
            )
            for entry in inputs.models
        ),
        profiles=(
            *inputs.profiles,
            *await _estimate(inputs, planner, show),
            *await _estimate_generating(inputs, planner, show),
        ),
        cluster=inputs.clusters[0],
        other_clusters=inputs.clusters[1:],
        workload=WorkloadSource(
            spec=options.workload,
            held_out=options.held_out,
            duration_s=options.duration_s,
            seed=options.seed,
            slo_scale=options.slo_scale,
            files=trace_files(inputs.files),
        ),
        rules=options.rules,
        answer_overhead_s=inputs.answer_overhead_s,
        queue_policy=inputs.queue_policy,
    )


def _checkpoint(entry: ModelEntry) -> str:
    """The checkpoint directory of a model that was captured from one, or that generates."""
    path = Path(entry.source).expanduser()
    return str(path.resolve()) if entry.origin is not ModelOrigin.PROFILE and path.is_dir() else ""


def file_contents(files: dict[str, bytes]) -> list[placement_pb2.FileContent]:
    return [placement_pb2.FileContent(name=name, content=content) for name, content in files.items()]


async def _find_profiles(
    entries: Sequence[ModelEntry], clusters: Sequence[ServingCluster], options: ProblemOptions
) -> list[StageProfile]:
    """Finds the profiles that models name. A file's are of the first kind of device; a kind without profiles of a model
    takes another kind's, scaled."""
    wanted = {entry.source for entry in entries if entry.origin is ModelOrigin.PROFILE}
    devices = [cluster.device for cluster in _with_own_engine(clusters)]
    if not wanted:
        return []
    if options.profiles is None:
        known = await _stored_profiles(wanted, devices, options.state_dir)
    elif options.cluster == LIVE and len(devices) > 1:
        raise InvalidArgumentError(
            f"The live workers are of several kinds, {', '.join(devices)}, and {options.profiles} may be of any.",
            hint="Leave --profiles out; `headway profile import FILE --hardware DEVICE` keeps a file's.",
            field="--profiles",
        )
    else:
        known = await read_profiles(options.profiles, device=devices[0])
    catalogue = read_catalogue(options.catalogue)
    return [
        profile if profile.hardware == device else scale_profile(profile, device=device, catalogue=catalogue)
        for device in devices
        for model in sorted(wanted)
        for profile in _nearest([each for each in known if each.model == model], device)
    ]


def _with_own_engine(clusters: Sequence[ServingCluster]) -> list[ServingCluster]:
    """Those whose devices compute what Headway captures and profiles."""
    return [each for each in clusters if split_device_name(each.device)[1] is EngineKind.HEADWAY]


def _nearest(profiles: Sequence[StageProfile], device: str) -> list[StageProfile]:
    """The profiles on this device; where there are none, those on the device that comes first."""
    source = next((each.hardware for each in profiles if each.hardware == device), None)
    source = profiles[0].hardware if source is None and profiles else source
    return [profile for profile in profiles if profile.hardware == source]


async def _stored_profiles(
    wanted: Collection[str], devices: Collection[str], state_dir: Path | None
) -> list[StageProfile]:
    if not (state_dir or default_state_dir()).exists():
        raise NotFoundError(
            f"No profiles of {', '.join(sorted(wanted))} were imported.",
            hint="Give a file with --profiles, or import one with `headway profile import`.",
        )
    from headway.cli.profile_exchange import imported_stages  # imports the Redis client, which is slow

    return await imported_stages(wanted, devices, state_dir)


async def _estimate(inputs: Inputs, planner: PlannerLink, show: Show) -> list[StageProfile]:
    """Has the planner estimate each captured model on each kind of device, once however many names it has."""
    captured = {entry.architecture: entry for entry in inputs.models if entry.origin is ModelOrigin.CAPTURE}
    profiles: list[StageProfile] = []
    for architecture, entry in captured.items():
        show(SearchProgress(phase=f"capturing {entry.source}"))
        graph = to_pb(await _capture(entry), profiler_pb2.Graph)
        for cluster in _with_own_engine(inputs.clusters):
            request = placement_pb2.EstimateStagesRequest(
                model=architecture,
                graph=graph,
                device=cluster.device,
                dtype=entry.dtype,
                max_devices=_most_devices(cluster, may_span=cluster.across_nodes is not None),
                is_live=inputs.options.cluster == LIVE,
            )
            response = await _ask(request, planner, inputs.options.state_dir)
            profiles += [from_pb(profile, StageProfile) for profile in response.profiles]
    return profiles


async def _estimate_generating(inputs: Inputs, planner: PlannerLink, show: Show) -> list[StageProfile]:
    options = inputs.options
    if all(entry.origin is not ModelOrigin.GENERATE for entry in inputs.models):
        return []
    live = await asyncio.to_thread(live_status, options.cluster, options.state_dir)
    return [
        profile
        for cluster in inputs.clusters
        for profile in await generating_profiles(
            inputs.models,
            cluster,
            live=live,
            catalogue=options.catalogue,
            max_devices=_most_devices(cluster, may_span=False),
            planner=planner,
            show=show,
        )
    ]


async def _ask(
    request: placement_pb2.EstimateStagesRequest, planner: PlannerLink, state_dir: Path | None
) -> placement_pb2.EstimateStagesResponse:
    """Asks a planner: for live workers their stack's own, which knows what was measured between them."""
    link = stack_planner(state_dir) if request.is_live else planner
    async with link.stub() as stub:
        return await stub.EstimateStages(request, timeout=_ESTIMATE_TIMEOUT_S)


def _most_devices(cluster: ServingCluster, *, may_span: bool) -> int:
    """Devices of the largest group to profile; a group of a model that generates does not span nodes."""
    within = cluster.num_devices if may_span else cluster.devices_per_node
    return min(cluster.num_devices, within, _LARGEST_GROUP)


async def _capture(entry: ModelEntry) -> Graph:
    request = CaptureRequest(source=entry.source, seq=entry.seq)
    answers = call_child("headway.profiler.capture", to_document(request), deadline_s=_CAPTURE_TIMEOUT_S)
    graph = None
    try:
        async with aclosing(answers):
            async for answer in answers:
                graph = from_document(CaptureProgress, answer).graph
    except HeadwayError as error:
        raise type(error)(f"{entry.place}: {error.message}", hint=error.hint, field=error.field) from error
    assert graph is not None, "a capture that ends well has a graph"
    return graph
