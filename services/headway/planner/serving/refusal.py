"""Why there is no plan, and the nearest thing that works."""

from collections.abc import Mapping, Sequence

from headway.core.cluster import PlanWorker
from headway.core.errors import FailedPreconditionError
from headway.core.plan import ModelDeployment
from headway.core.units import format_bytes
from headway.planner.serving.memory import Shortfall


def too_few_workers(models: Sequence[ModelDeployment], workers: Sequence[PlanWorker]) -> FailedPreconditionError:
    return FailedPreconditionError(
        f"{len(models)} models need {len(models)} workers or more, and there are {len(workers)}.",
        hint=f"Start {len(models)} workers (--workers {len(models)}), or serve fewer models.",
        field="workers",
    )


def no_worker_fits(
    model: ModelDeployment, workers: Sequence[PlanWorker], shortfalls: Mapping[str, Shortfall]
) -> FailedPreconditionError:
    """`model` fits none of `workers`; `shortfalls` by worker id."""
    nearest = min(workers, key=lambda worker: shortfalls[worker.worker_id].missing_bytes)
    shortfall = shortfalls[nearest.worker_id]
    memory_bytes = nearest.hardware.memory_bytes
    ways = [f"give a worker {format_bytes(memory_bytes + shortfall.missing_bytes)} of memory"]
    longest_len = max(shortfall.longest_len for shortfall in shortfalls.values())
    if model.max_model_len is not None and 0 < longest_len < model.max_model_len:
        ways.insert(0, f"set max_model_len to {longest_len} or less")
    return FailedPreconditionError(
        f"Model '{model.name}' fits no worker: {nearest.worker_id}, the nearest, may use "
        f"{format_bytes(memory_bytes)} and lacks {format_bytes(shortfall.missing_bytes)} "
        f"({shortfall.missing_bytes} bytes).",
        hint=_sentence(ways),
        field="models",
    )


def no_common_allocation(
    left_over: Sequence[ModelDeployment], models: Sequence[ModelDeployment], workers: Sequence[PlanWorker]
) -> FailedPreconditionError:
    """Each model fits some worker, but they compete for the large ones."""
    names = ", ".join(f"'{model.name}'" for model in left_over)
    largest_bytes = max(worker.hardware.memory_bytes for worker in workers)
    return FailedPreconditionError(
        f"{len(models)} models cannot share {len(workers)} workers: the workers that {names} would fit are taken by "
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
