"""Makes the serving plan for given models and workers. Pure: the same inputs give the same plan."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from headway.core.catalogue import Catalogue
from headway.core.cluster import PlanWorker
from headway.core.errors import InvalidArgumentError
from headway.core.hardware.profile import LinkProfile
from headway.core.parallel_config import SINGLE, ParallelConfig
from headway.core.plan.serving import Assignment, EngineLimits, ModelDeployment, ServingPlan
from headway.core.profile import Profile
from headway.core.roles import check_roles
from headway.core.shard import check_parallel
from headway.core.stage_profile import StageProfile
from headway.planner.serving.allocation import allocate, unseated
from headway.planner.serving.grouping import Group, form_groups, in_order
from headway.planner.serving.memory import Shortfall
from headway.planner.serving.refusal import no_common_allocation, no_group_fits, too_few_groups, too_few_workers
from headway.planner.serving.replica import size_replica
from headway.planner.serving.replica_bounds import ReplicaBounds
from headway.planner.serving.roles import with_roles
from headway.planner.serving.sharing import CoLocation, share_groups
from headway.planner.serving.sizings import GroupKinds, Sizing, Sizings

_LARGEST_GROUP = 8
"""That a refusal proposes: as many as GPUs in one machine usually are."""


def make_plan(
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
    """Gives every group of workers a model and every model at least one group.

    Where there are fewer groups than models, some share one.

    Args:
        limits: also how many workers make a group, and what groups are for.
        profiles: measured ones, by id.
        stage_profiles: imported ones, by id; None for none.
        current: groups stay together and keep the models that this plan gives them, if that leaves no model without
            one and they still have room.
        link_profiles: what was measured between workers, which estimates rest on where there is any of their hardware.
        catalogue: that estimates rest on; None for the built-in one.

    Raises:
        InvalidArgumentError: models, workers or limits make no sense, or a model cannot be split as the limits say.
        FailedPreconditionError: there are too few workers, or they have too little memory.
    """
    _check(models, workers)
    check_roles(models, limits)
    workers = in_order(workers)
    groups = _group(models, workers, limits.parallel, current)
    size = partial(
        size_replica,
        limits=limits,
        profiles=profiles,
        stage_profiles=stage_profiles,
        link_profiles=link_profiles,
        catalogue=catalogue,
    )
    kinds = GroupKinds.of(groups)
    sizings = [Sizings.make(model, kinds, size=size) for model in models]
    _check_fits(models, sizings, limits=limits)
    bounds = [ReplicaBounds(least=model.min_replicas or 1, most=model.max_replicas) for model in models]
    co_location = _co_location(models, groups, current)
    if len(groups) < sum(of_model.least for of_model in bounds) > len(models):
        raise too_few_groups(models, groups)
    if len(groups) < len(models) or _stays(co_location, current, bounds):
        shared = share_groups(models, groups, size=size, keep=co_location)
        return _plan(models, workers, shared, plan_id=plan_id, created_at_s=created_at_s)
    rates = [[_rate(row.like(index)) for index in range(len(groups))] for row in sizings]
    model_of = allocate(rates, keep=_kept(models, groups, current), bounds=bounds)
    if model_of is None:
        raise no_common_allocation([models[index] for index in unseated(rates, bounds)], models, groups)
    sized = (sizings[model_of[index]].of(index) for index in sorted(model_of))
    assignments = with_roles([sizing for sizing in sized if isinstance(sizing, Assignment)], limits)
    return _plan(models, workers, assignments, plan_id=plan_id, created_at_s=created_at_s)


def _plan(
    models: Sequence[ModelDeployment],
    workers: Sequence[PlanWorker],
    assignments: Sequence[Assignment],
    *,
    plan_id: str,
    created_at_s: float,
) -> ServingPlan:
    return ServingPlan(
        plan_id=plan_id,
        created_at_s=created_at_s,
        models=tuple(models),
        workers=tuple(workers),
        assignments=tuple(assignments),
    )


def _check(models: Sequence[ModelDeployment], workers: Sequence[PlanWorker]) -> None:
    if not models:
        raise InvalidArgumentError("There is no model to serve.", hint="Name at least one.", field="models")
    names = Counter(model.name for model in models)
    if twice := sorted(name for name, count in names.items() if count > 1):
        raise InvalidArgumentError(
            f"Two models are named '{twice[0]}'.", hint="Give each a name of its own: NAME=DIR.", field="models"
        )
    ids = Counter(worker.worker_id for worker in workers)
    if twice := sorted(worker_id for worker_id, count in ids.items() if count > 1):
        raise InvalidArgumentError(f"Two workers are named '{twice[0]}'.", field="workers")


def _group(
    models: Sequence[ModelDeployment],
    workers: Sequence[PlanWorker],
    parallel: ParallelConfig,
    current: ServingPlan | None,
) -> list[Group]:
    """Forms groups of workers, at least one."""
    if parallel != SINGLE:
        for model in models:
            if not model.profile:  # else the profiles say which layouts there are
                check_parallel(model.spec, parallel, num_workers=len(workers))
    held = dict.fromkeys(assignment.worker_ids for assignment in current.assignments) if current is not None else {}
    groups = form_groups(workers, size=parallel.num_ranks, keep=held)
    if not groups:
        raise too_few_workers(workers, parallel)
    return groups


def _check_fits(models: Sequence[ModelDeployment], sizings: Sequence[Sizings], *, limits: EngineLimits) -> None:
    for model, row in zip(models, sizings, strict=True):
        if all(isinstance(sizing, Shortfall) for sizing in row.of_kinds):
            each = (row.of(index) for index in range(len(row.groups.groups)))
            shortfalls = [sizing for sizing in each if isinstance(sizing, Shortfall)]
            nearest = min(shortfalls, key=lambda shortfall: shortfall.missing_bytes)
            is_fixed = model.profile or nearest.worker.hardware.num_devices > 1
            fitting = None if is_fixed else _fitting(model, nearest.worker, limits)
            raise no_group_fits(model, shortfalls, limits.parallel, fitting=fitting)


def _fitting(model: ModelDeployment, worker: PlanWorker, limits: EngineLimits) -> ParallelConfig | None:
    """Finds the split over the fewest workers like `worker` that fits them, one axis longer; None where none does."""
    tp, pp, cp = (
        range(size + 1, _LARGEST_GROUP + 1) for size in (limits.parallel.tp, limits.parallel.pp, limits.parallel.cp)
    )
    splits = [
        *(replace(limits, tp=size) for size in tp),
        *(replace(limits, pp=size) for size in pp),
        *(replace(limits, cp=size) for size in cp),
    ]
    for wider in sorted(splits, key=lambda limits: limits.parallel.num_ranks):
        group = (worker,) * wider.parallel.num_ranks
        try:
            check_parallel(model.spec, wider.parallel, num_workers=min(len(group), _LARGEST_GROUP))
        except InvalidArgumentError:
            continue
        if isinstance(size_replica(model, group, limits=wider, profiles={}), Assignment):
            return wider.parallel
    return None


def _rate(sizing: Sizing) -> float:
    """The rate that a model is judged by; one that does not generate counts by its input tokens."""
    if not isinstance(sizing, Assignment):
        return 0.0
    return sizing.prediction.output_tokens_per_s or sizing.prediction.input_tokens_per_s


def _kept(models: Sequence[ModelDeployment], groups: Sequence[Group], current: ServingPlan | None) -> dict[int, int]:
    if current is None:
        return {}
    model_at = {model.name: index for index, model in enumerate(models)}
    group_at = {tuple(worker.worker_id for worker in group): index for index, group in enumerate(groups)}
    return {
        group_at[assignment.worker_ids]: model_at[assignment.model]
        for assignment in current.assignments
        if assignment.worker_ids in group_at and assignment.model in model_at
    }


def _co_location(models: Sequence[ModelDeployment], groups: Sequence[Group], current: ServingPlan | None) -> CoLocation:
    """The models of each group in a current plan, of those that there are."""
    model_at = {model.name: index for index, model in enumerate(models)}
    there = {tuple(worker.worker_id for worker in group): set[int]() for group in groups}
    for assignment in current.assignments if current is not None else ():
        if assignment.worker_ids in there and assignment.model in model_at:
            there[assignment.worker_ids].add(model_at[assignment.model])
    return tuple(tuple(sorted(of_group)) for of_group in there.values())


def _stays(co_location: CoLocation, current: ServingPlan | None, bounds: Sequence[ReplicaBounds]) -> bool:
    """Whether a current plan whose models share groups goes on as it is."""
    counts = Counter(model for of_group in co_location for model in of_group)
    is_complete = all(of_model.allows(counts[model]) for model, of_model in enumerate(bounds))
    is_shared = any(len(of_group) > 1 for of_group in co_location)
    return is_complete and is_shared and current is not None and counts.total() == len(current.assignments)
