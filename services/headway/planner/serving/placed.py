"""Makes the serving plan that gives live workers the groups and models of a placement. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from headway.core.catalogue import Catalogue, built_in_catalogue
from headway.core.cluster import PlanWorker
from headway.core.device_name import split_device_name
from headway.core.engine_kind import EngineKind
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.hardware.profile import LinkProfile
from headway.core.placement import GroupShape, PlacedGroup
from headway.core.placement_problem import PlacementProblem, ProblemModel, ServingCluster
from headway.core.plan.placement import PlacementPlan
from headway.core.plan.serving import Assignment, EngineLimits, ModelDeployment, ServingPlan
from headway.core.profile import Profile
from headway.core.shard import check_parallel
from headway.core.stage_profile import StageProfile, stage_profile_id
from headway.planner.serving.co_location import fill_group, without_runtime
from headway.planner.serving.engines import engine_of, limits_of
from headway.planner.serving.grouping import Group
from headway.planner.serving.memory import Shortfall
from headway.planner.serving.replica import size_replica
from headway.planner.serving.worker_assignment import assign_workers, held_groups


def make_placed_plan(
    placement: PlacementPlan,
    models: Sequence[ModelDeployment],
    workers: Sequence[PlanWorker],
    *,
    limits: EngineLimits,
    profiles: Mapping[str, Profile],
    plan_id: str,
    created_at_s: float,
    stage_profiles: Mapping[str, StageProfile] | None = None,
    current: ServingPlan | None = None,
    link_profiles: Sequence[LinkProfile] = (),
    catalogue: Catalogue | None = None,
) -> ServingPlan:
    """Gives every group that has models workers, and every model of it its part of their memory.

    A model gets the placement's objectives, unless it was placed by one pass and generates, and workers that have its
    engine.

    Args:
        models: how to serve the placement's models; others are left out.
        limits: axes and roles are not looked at.
        stage_profiles: imported ones, by id; the placement's own go before them.
        current: its groups and models stay where they are if possible, and models that stay on a group keep their
            blocks while the others find room beside them.

    Raises:
        InvalidArgumentError: nobody says how to serve a model, or it cannot be split as its group is.
        FailedPreconditionError: there are too few workers of the kind, a group has too little memory, or no engine can
            serve one so.
    """
    groups = [group for group in placement.placement.groups if group.models]
    served = _served(groups, models, placement.problem)
    engines = [
        engine_of([served[name] for name in group.models], num_devices=group.shape.num_devices) for group in groups
    ]
    worker_groups = _assign_groups(
        groups, engines, workers, placement.problem, current, catalogue or built_in_catalogue()
    )
    own = {
        stage_profile_id(profile.model, profile.hardware, pp=profile.pp, op=profile.op): profile
        for profile in placement.problem.profiles
    }
    size = partial(
        size_replica,
        profiles=profiles,
        stage_profiles={**(stage_profiles or {}), **own},
        link_profiles=link_profiles,
        catalogue=catalogue,
    )
    assignments = [
        assignment
        for number, group in enumerate(groups)
        for assignment in _fill(group, worker_groups[number], served, limits=limits, size=size, current=current)
    ]
    return ServingPlan(
        plan_id=plan_id,
        created_at_s=created_at_s,
        models=tuple(served.values()),
        workers=tuple(workers),
        assignments=tuple(assignments),
        placement_id=placement.plan_id,
    )


def limits_on(shape: GroupShape, limits: EngineLimits) -> EngineLimits:
    """The engine's limits on a group of that shape."""
    return replace(
        limits,
        tp=shape.op,
        pp=shape.pp,
        cp=None,
        cp_ffn=None,
        stage_layers=(),
        prefill_workers=None,
        decode_workers=None,
    )


def _fill(
    placed: PlacedGroup,
    group: Group,
    served: Mapping[str, ModelDeployment],
    *,
    limits: EngineLimits,
    size: partial[Assignment | Shortfall],
    current: ServingPlan | None,
) -> list[Assignment]:
    models = [served[name] for name in placed.models]
    limits = limits_of(models[0].engine, limits_on(placed.shape, limits), group)
    for model in models:
        if not model.profile and len(group) > 1:
            check_parallel(model.spec, limits.parallel, num_workers=len(group))
    there = _there(models, group, limits, current)
    return fill_group(models, group, size=partial(size, limits=limits), parallel=limits.parallel, there=there)


def _there(
    models: Sequence[ModelDeployment], group: Group, limits: EngineLimits, current: ServingPlan | None
) -> dict[str, Assignment]:
    """The current plan's assignments of these models to that very group. The first of a group has the runtime's
    memory."""
    worker_ids = tuple(worker.worker_id for worker in group)
    assigned = [a for a in current.assignments if a.worker_ids == worker_ids] if current is not None else []
    same = {model.name for model in models if current is not None and _is_same(model, current.model(model.name))}
    return {
        assignment.model: without_runtime(assignment, group) if index == 0 else assignment
        for index, assignment in enumerate(assigned)
        if assignment.model in same and replace(assignment.parallel, stage_layers=()) == limits.parallel
    }


def _is_same(model: ModelDeployment, other: ModelDeployment | None) -> bool:
    """Whether two deployments are equal but for objective and adapters, which a running model can change."""
    return other is not None and replace(model, slo=other.slo, adapters=other.adapters) == other


def _served(
    groups: Sequence[PlacedGroup], models: Sequence[ModelDeployment], problem: PlacementProblem
) -> dict[str, ModelDeployment]:
    known = {model.name: model for model in models}
    asked = {model.name: model for model in problem.models}
    names = list(dict.fromkeys(name for group in groups for name in group.models))
    if missing := [name for name in names if name not in known]:
        raise InvalidArgumentError(
            f"The placement has '{missing[0]}', and nobody says where its checkpoint is.",
            hint=f"Name it: --model {missing[0]}=DIR.",
            field="models",
        )
    return {name: _with_slo(known[name], asked[name], problem) for name in names}


def _with_slo(model: ModelDeployment, asked: ProblemModel, problem: PlacementProblem) -> ModelDeployment:
    """The deployment with the placement's objective; FailedPreconditionError where it was placed as one that generates,
    and does not. One that was placed by one pass, and generates, keeps its own."""
    is_one_pass = model.spec.encoder is not None
    if asked.generates and is_one_pass:
        raise FailedPreconditionError(
            f"The placement was made for a model '{model.name}' that generates, and the checkpoint's does not.",
            hint=f"Name the right one: --model {model.name}=DIR.",
            field="models",
        )
    return replace(model, slo=problem.slo(asked)) if asked.generates or is_one_pass else model


def _assign_groups(
    groups: Sequence[PlacedGroup],
    engines: Sequence[EngineKind],
    workers: Sequence[PlanWorker],
    problem: PlacementProblem,
    current: ServingPlan | None,
    catalogue: Catalogue,
) -> dict[int, Group]:
    """Assigns each group workers with the kind of device that it is placed on, and with its engine."""
    worker_groups: dict[int, Group] = {}
    devices = [group.shape.device or problem.cluster.device for group in groups]
    if unknown := sorted(set(devices) - {cluster.device for cluster in problem.clusters}):
        raise InvalidArgumentError(
            f"The placement has a group on {unknown[0]}, which is no device of its problem.",
            hint="Place the models again: headway plan serve.",
            field="placement",
        )
    for cluster, engine in product(problem.clusters, EngineKind):
        numbers = [n for n, device in enumerate(devices) if (device, engines[n]) == (cluster.device, engine)]
        wanted = [replace(groups[number], shape=replace(groups[number].shape, device="")) for number in numbers]
        fitting = _of_kind(workers, cluster.device, engine, wanted, catalogue)
        found = assign_workers(wanted, fitting, held=held_groups(current))
        if found is None:
            raise _no_workers(cluster, wanted, fitting)
        worker_groups |= zip(numbers, found, strict=True)
    return worker_groups


def _of_kind(
    workers: Sequence[PlanWorker], device: str, engine: EngineKind, groups: Sequence[PlacedGroup], catalogue: Catalogue
) -> list[PlanWorker]:
    """The workers with that kind of device and that engine; FailedPreconditionError where there are too few."""
    num_wanted = sum(group.shape.num_devices for group in groups)
    with_engine = [worker for worker in workers if worker.hardware.engine is engine]
    named, _ = split_device_name(device)
    fitting = [worker for worker in with_engine if catalogue.device_of(worker.hardware).name == named]
    if len(fitting) < num_wanted:
        if len(with_engine) < min(num_wanted, len(workers)):
            raise FailedPreconditionError(
                f"The placement needs {num_wanted} workers that compute with {engine}; of these there are "
                f"{len(with_engine)}.",
                hint="Start the stack with more of them: headway up --engine.",
                field="workers",
            )
        kinds = Counter(worker.hardware.label for worker in workers)
        there = ", ".join(f"{count} x {kind}" for kind, count in kinds.items()) or "none"
        raise FailedPreconditionError(
            f"The placement needs {num_wanted} workers with {device}; of these there are {len(fitting)} (all workers: "
            f"{there}).",
            hint=f"Start {num_wanted}, or place the models on what there is: headway plan serve --cluster live.",
            field="workers",
        )
    return sorted(fitting, key=lambda worker: (worker.machine, len(worker.worker_id), worker.worker_id))


def _no_workers(
    cluster: ServingCluster, groups: Sequence[PlacedGroup], workers: Sequence[PlanWorker]
) -> FailedPreconditionError:
    shapes = ", ".join(f"{count} of {shape}" for shape, count in Counter(group.shape for group in groups).items())
    machines = Counter(worker.machine for worker in workers)
    alone = " and without across_nodes, as no group is served across machines" if cluster.across_nodes else ""
    return FailedPreconditionError(
        f"Groups of {shapes} do not fit {len(workers)} workers with {cluster.device}, of which the machines "
        f"have {', '.join(map(str, machines.values()))}: a group is of equal workers on one machine.",
        hint=f"Place the models again with devices_per_node as it is{alone}: headway plan serve --cluster live.",
        field="workers",
    )
