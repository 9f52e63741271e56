"""Decides how many workers `headway up` starts."""

from headway.core.engine_kind import EngineKind
from headway.core.errors import InvalidArgumentError
from headway.core.parallel_config import SINGLE, ParallelConfig
from headway.core.plan.serving import EngineLimits, ModelDeployment
from headway.core.roles import check_roles, num_role_workers
from headway.core.shard import check_parallel, nearest_parallel


def count_workers(wanted: int | None, models: tuple[ModelDeployment, ...], limits: EngineLimits) -> int:
    """Returns `wanted`, or the fewest workers with which no model shares one.

    Raises:
        InvalidArgumentError: a model cannot be split as the limits say, or there are too few workers for a group, or
            not as many as have a role.
    """
    check_roles(models, limits)
    parallel = limits.parallel
    if limits.is_disaggregated:
        return _count_role_workers(wanted, num_role_workers(limits))
    num_needed = sum(_num_workers(model, parallel) for model in models)
    num_workers = num_needed if wanted is None else wanted
    if parallel != SINGLE:
        for model in models:
            if not model.profile:  # else the profiles say which layouts there are
                check_parallel(model.spec, parallel, num_workers=parallel.num_ranks)
    if num_workers < min(_num_workers(model, parallel) for model in models):
        way = f" or more, or {_widest(models, parallel, num_workers).flags}" if num_workers else ""
        raise InvalidArgumentError(
            f"{parallel} needs {parallel.num_ranks} workers, not {wanted}.",
            hint=f"Give --workers {parallel.num_ranks}{way}.",
            field="--workers",
        )
    return num_workers


def _num_workers(model: ModelDeployment, parallel: ParallelConfig) -> int:
    """Of a group: vLLM splits layers over the devices of one worker."""
    return 1 if model.engine is EngineKind.VLLM else parallel.num_ranks


def count_vllm(wanted: int | None, models: tuple[ModelDeployment, ...], limits: EngineLimits) -> int:
    """Returns how many of the workers compute with vLLM: all, where it computes every model, else its models' share.

    Raises:
        InvalidArgumentError: they are fewer than its models, or leave none for the others.
    """
    num_models = sum(model.engine is EngineKind.VLLM for model in models)
    num_others = len(models) - num_models
    if wanted is None or num_models == 0:
        return num_models
    group_size = limits.parallel.num_ranks
    num_vllm = min(wanted * num_models // len(models), wanted - min(num_others, 1) * group_size)
    if num_vllm < num_models:
        raise InvalidArgumentError(
            f"{wanted} workers are too few: each model on vllm needs one of its own, and there are {num_models}.",
            hint=f"Give --workers {num_models + num_others * group_size} or more.",
            field="--workers",
        )
    return num_vllm


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
    layout = nearest_parallel(models[0].spec, parallel, num_workers=num_workers)
    while True:
        nearest = layout
        for model in models:
            nearest = nearest_parallel(model.spec, nearest, num_workers=num_workers)
        if nearest == layout:
            return layout
        layout = nearest
