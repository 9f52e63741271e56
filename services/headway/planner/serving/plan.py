"""The serving plan for given models and workers. Pure: the same inputs give the same plan."""

from collections import Counter
from collections.abc import Mapping, Sequence

from headway.core.cluster import PlanWorker
from headway.core.errors import InvalidArgumentError
from headway.core.plan import Assignment, EngineLimits, ModelDeployment, ServingPlan
from headway.core.profile import Profile
from headway.planner.serving.allocation import allocate, unseated
from headway.planner.serving.memory import Shortfall
from headway.planner.serving.refusal import no_common_allocation, no_worker_fits, too_few_workers
from headway.planner.serving.replica import size_replica


def make_plan(
    models: Sequence[ModelDeployment],
    workers: Sequence[PlanWorker],
    *,
    limits: EngineLimits,
    profiles: Mapping[str, Profile],
    plan_id: str,
    created_at_s: float,
    current: ServingPlan | None = None,
) -> ServingPlan:
    """Gives every worker a model and every model at least one worker.

    Args:
        profiles: measured ones, by id.
        current: workers keep the models that this plan gives them, if that leaves no model without one.

    Raises:
        InvalidArgumentError: models, workers or limits make no sense.
        FailedPreconditionError: there are too few workers, or they have too little memory.
    """
    _check(models, workers)
    workers = sorted(workers, key=lambda worker: _natural(worker.worker_id))
    if len(workers) < len(models):
        raise too_few_workers(models, workers)
    sizings = [
        [size_replica(model, worker, limits=limits, profiles=profiles) for worker in workers] for model in models
    ]
    _check_fits(models, workers, sizings)
    rates = [[_rate(sizing) for sizing in row] for row in sizings]
    model_of = allocate(rates, keep=_kept(models, workers, current))
    if model_of is None:
        raise no_common_allocation([models[index] for index in unseated(rates)], models, workers)
    assignments = (sizings[model_of[index]][index] for index in sorted(model_of))
    return ServingPlan(
        plan_id=plan_id,
        created_at_s=created_at_s,
        models=tuple(models),
        workers=tuple(workers),
        assignments=tuple(sizing for sizing in assignments if isinstance(sizing, Assignment)),
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


def _check_fits(
    models: Sequence[ModelDeployment],
    workers: Sequence[PlanWorker],
    sizings: Sequence[Sequence[Assignment | Shortfall]],
) -> None:
    for model, row in zip(models, sizings, strict=True):
        shortfalls = {
            worker.worker_id: sizing
            for worker, sizing in zip(workers, row, strict=True)
            if isinstance(sizing, Shortfall)
        }
        if len(shortfalls) == len(workers):
            raise no_worker_fits(model, workers, shortfalls)


def _rate(sizing: Assignment | Shortfall) -> float:
    """A model that does not generate counts by its input tokens."""
    if not isinstance(sizing, Assignment):
        return 0.0
    return sizing.prediction.output_tokens_per_s or sizing.prediction.input_tokens_per_s


def _kept(
    models: Sequence[ModelDeployment], workers: Sequence[PlanWorker], current: ServingPlan | None
) -> dict[int, int]:
    if current is None:
        return {}
    model_at = {model.name: index for index, model in enumerate(models)}
    worker_at = {worker.worker_id: index for index, worker in enumerate(workers)}
    return {
        worker_at[assignment.worker_id]: model_at[assignment.model]
        for assignment in current.assignments
        if assignment.worker_id in worker_at and assignment.model in model_at
    }


def _natural(worker_id: str) -> tuple[str, int, str]:
    """'worker-2' before 'worker-10'."""
    stem = worker_id.rstrip("0123456789")
    digits = worker_id[len(stem) :]
    return stem, int(digits or -1), worker_id
