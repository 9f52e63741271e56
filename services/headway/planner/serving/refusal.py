"""Errors that say why there is no plan, and the nearest thing that works."""

from collections.abc import Sequence

from headway.core.cluster import PlanWorker
from headway.core.errors import FailedPreconditionError
from headway.core.parallel_config import ParallelConfig
from headway.core.plan.serving import ModelDeployment
from headway.core.units import format_bytes
from headway.planner.serving.grouping import Group
from headway.planner.serving.memory import Shortfall


def too_few_workers(workers: Sequence[PlanWorker], parallel: ParallelConfig) -> FailedPreconditionError:
    """The error where there is no worker, or too few of one kind for a group."""
    num_needed = parallel.num_ranks
    if len(workers) < num_needed:
        reason = (
            f"{parallel} needs {num_needed} worker{'s' if num_needed > 1 else ''} or more; there are {len(workers)}"
        )
        ways = [f"start {num_needed} workers (--workers {num_needed})"]
    else:
        reason = f"The workers of a group have equal hardware, and no {num_needed} of {len(workers)} have"
        ways = ["start more workers of one kind"]
    if num_needed > 1:
        ways.append("use lone workers (leave out --tp, --pp and --cp)")
    return FailedPreconditionError(f"{reason}.", hint=_sentence(ways), field="workers")


def too_few_groups(models: Sequence[ModelDeployment], groups: Sequence[Group]) -> FailedPreconditionError:
    """The error where models are to have more replicas than there are groups."""
    num_each, num_wanted = len(groups[0]), sum(model.min_replicas or 1 for model in models)
    listed = ", ".join(f"'{model.name}' {model.min_replicas or 1}" for model in models)
    kind = "workers" if num_each == 1 else f"groups of {num_each} workers"
    return FailedPreconditionError(
        f"{num_wanted} replicas are the least that is wanted ({listed}), and there are {len(groups)} {kind}.",
        hint=_sentence([f"start {num_wanted * num_each} workers", "ask for fewer replicas (replicas.min)"]),
        field="models.replicas",
    )


def no_room_together(
    models: Sequence[ModelDeployment], needs: Sequence[int], groups: Sequence[Group], *, runtime_bytes: int
) -> FailedPreconditionError:
    """The error where each model fits a group by itself, and there are too few groups for all.

    Args:
        needs: least bytes of each worker that each model takes, beside `runtime_bytes` once.
    """
    num_workers = len(models) * len(groups[0])
    rooms = ", ".join(
        f"{group[0].worker_id} {format_bytes(min(worker.hardware.memory_bytes for worker in group))}"
        for group in groups
    )
    listed = ", ".join(
        f"'{model.name}' {format_bytes(need_bytes)}" for model, need_bytes in zip(models, needs, strict=True)
    )
    kind = "worker" if len(groups[0]) == 1 else "group"
    ways = [f"start {num_workers} workers (--workers {num_workers}), one {kind} for each model"]
    if len(groups) == 1:
        ways.append(f"give a worker {format_bytes(sum(needs) + runtime_bytes)} of memory")
    ways.append("serve fewer models, or shorter sequences (max_model_len)")
    return FailedPreconditionError(
        f"{len(models)} models have no room together on {len(groups)} {kind}{'s' if len(groups) > 1 else ''}: they "
        f"need {listed} at least, and {format_bytes(runtime_bytes)} for the runtime of each worker; there is: {rooms}.",
        hint=_sentence(ways),
        field="workers",
    )


def no_group_fits(
    model: ModelDeployment, shortfalls: Sequence[Shortfall], parallel: ParallelConfig, *, fitting: ParallelConfig | None
) -> FailedPreconditionError:
    """The error where `model` fits no group; `shortfalls` are those of all groups.

    Args:
        fitting: a split over more workers like the nearest that would fit; None where there is none.
    """
    shortfall = min(shortfalls, key=lambda shortfall: shortfall.missing_bytes)
    memory_bytes = shortfall.worker.hardware.memory_bytes
    ways = [f"give a worker {format_bytes(memory_bytes + shortfall.missing_bytes)} of memory"]
    longest_len = max(shortfall.longest_len for shortfall in shortfalls)
    if model.max_model_len is not None and 0 < longest_len < model.max_model_len:
        ways.insert(0, f"set max_model_len to {longest_len} or less")
    if fitting is not None:
        ways.append(f"split it over {fitting.num_ranks} workers of {format_bytes(memory_bytes)} each ({fitting.flags})")
    place = "worker" if parallel.num_ranks == 1 else f"group of {parallel.num_ranks} workers ({parallel})"
    return FailedPreconditionError(
        f"Model '{model.name}' fits no {place}: {shortfall.worker.worker_id}, the nearest, may use "
        f"{format_bytes(memory_bytes)} and lacks {format_bytes(shortfall.missing_bytes)} "
        f"({shortfall.missing_bytes} bytes).",
        hint=_sentence(ways),
        field="models",
    )


def no_common_allocation(
    left_over: Sequence[ModelDeployment], models: Sequence[ModelDeployment], groups: Sequence[Group]
) -> FailedPreconditionError:
    """The error where each model fits some group, but they compete for the large ones."""
    names = ", ".join(f"'{model.name}'" for model in left_over)
    kind = "workers" if len(groups[0]) == 1 else "groups"
    largest_bytes = max(min(worker.hardware.memory_bytes for worker in group) for group in groups)
    return FailedPreconditionError(
        f"{len(models)} models cannot share {len(groups)} {kind}: the {kind} that {names} would fit are taken by "
        "models that fit no other.",
        hint=_sentence(
            [
                f"give more workers the {format_bytes(largest_bytes)} that the largest one has",
                f"serve {len(models) - len(left_over)} models",
            ]
        ),
        field="workers",
    )


def _sentence(ways: Sequence[str]) -> str:
    text = ", or ".join(ways) + "."
    return text[0].upper() + text[1:]
