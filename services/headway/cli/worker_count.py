"""How many workers `headway up` starts."""

from headway.core.errors import InvalidArgumentError
from headway.core.mesh import SINGLE, ParallelConfig
from headway.core.plan import EngineLimits, ModelDeployment
from headway.core.roles import check_roles, num_role_workers
from headway.core.shard import check_parallel, nearest_parallel


def count_workers(wanted: int | None, models: tuple[ModelDeployment, ...], limits: EngineLimits) -> int:
    """`wanted`, or as many as the models need.

    Raises:
        InvalidArgumentError: a model cannot be split as the limits say, or there are too few workers for it, or not as
            many as have a role.
    """
    check_roles(models, limits)
    parallel = limits.parallel
    if limits.is_disaggregated:
        return _count_role_workers(wanted, num_role_workers(limits))
    num_needed = len(models) * parallel.num_ranks
    num_workers = num_needed if wanted is None else wanted
    if parallel != SINGLE:
        for model in models:
            check_parallel(model.spec, parallel, num_workers=parallel.num_ranks)
    if num_workers < len(models):
        raise InvalidArgumentError(
            f"{len(models)} models need {num_needed} workers, not {wanted}: a worker serves one model.",
            hint=f"Give --workers {num_needed} or more.",
            field="--workers",
        )
    if num_workers < num_needed:
        what = f"{len(models)} models with {parallel} need" if len(models) > 1 else f"{parallel} needs"
        raise InvalidArgumentError(
            f"{what} {num_needed} workers, not {wanted}.",
            hint=f"Give --workers {num_needed} or more, or {_widest(models, parallel, num_workers).flags}.",
            field="--workers",
        )
    return num_workers


def _count_role_workers(wanted: int | None, num_needed: int) -> int:
    if wanted not in (None, num_needed):
        raise InvalidArgumentError(
            f"--prefill-workers and --decode-workers are {num_needed} workers together, not {wanted}.",
            hint=f"Give --workers {num_needed}, or leave it out.",
            field="--workers",
        )
    return num_needed


def _widest(models: tuple[ModelDeployment, ...], parallel: ParallelConfig, num_workers: int) -> ParallelConfig:
    """The nearest layout that all models allow and that there are workers for."""
    num_ranks = num_workers // len(models)
    layout = nearest_parallel(models[0].spec, parallel, num_workers=num_ranks)
    while True:
        nearest = layout
        for model in models:
            nearest = nearest_parallel(model.spec, nearest, num_workers=num_ranks)
        if nearest == layout:
            return layout
        layout = nearest
