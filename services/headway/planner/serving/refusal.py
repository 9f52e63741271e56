"""Why there is no plan, and the nearest thing that works."""

from collections.abc import Sequence

from headway.core.cluster import PlanWorker
from headway.core.errors import FailedPreconditionError
from headway.core.mesh import ParallelConfig
from headway.core.plan import ModelDeployment
from headway.core.units import format_bytes
from headway.planner.serving.grouping import Group
from headway.planner.serving.memory import Shortfall


def too_few_workers(
    models: Sequence[ModelDeployment], workers: Sequence[PlanWorker], parallel: ParallelConfig, *, num_groups: int
) -> FailedPreconditionError:
    """There are fewer groups than models."""
    num_needed = len(models) * parallel.num_ranks
    ways = [f"start {num_needed} workers (--workers {num_needed})", "serve fewer models"]
    if parallel.num_ranks == 1:
        reason = f"{len(models)} models need {num_needed} workers or more, and there are {len(workers)}"
    elif len(workers) < num_needed:
        reason = f"{len(models)} models with {parallel} need {num_needed} workers or more; there are {len(workers)}"
    else:
        reason = (
            f"The workers of a group have equal hardware, and {len(workers)} workers make {num_groups} groups with "
            f"{parallel}, for {len(models)} models"
        )
        ways[0] = "start more workers of one kind"
    return FailedPreconditionError(f"{reason}.", hint=_sentence(ways), field="workers")


def no_group_fits(
    model: ModelDeployment, shortfalls: Sequence[Shortfall], parallel: ParallelConfig, *, fitting: ParallelConfig | None
) -> FailedPreconditionError:
    """`model` fits no group; `shortfalls` of all of them.

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
    """Each model fits some group, but they compete for the large ones."""
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
