"""Plans for several engines: each has its own models and workers, and limits that it can keep. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headway.core.cluster import PlanWorker
from headway.core.engine_kind import EngineKind, Feature
from headway.core.engine_limits import lacking
from headway.core.errors import FailedPreconditionError
from headway.core.plan.serving import EngineLimits, ModelDeployment, ServingPlan
from headway.planner.serving.servers import limits_of_servers, model_of_servers, workers_for

_VLLM_BLOCK_SIZE = {"cpu": 32, "cuda": 16}
"""The smallest that vLLM's attention takes: a prefix is found in as many blocks as possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePart:
    """The models that one engine computes, and the workers that have it."""

    models: tuple[ModelDeployment, ...]
    workers: tuple[PlanWorker, ...]
    limits: EngineLimits
    current: ServingPlan | None


def parts_of(
    models: Sequence[ModelDeployment],
    workers: Sequence[PlanWorker],
    *,
    limits: EngineLimits,
    current: ServingPlan | None,
) -> list[EnginePart]:
    """The parts of a plan, Headway's own engine first; a single one for what has a single engine.

    Raises:
        FailedPreconditionError: no worker has the engine of a model.
    """
    found = {*(model.engine for model in models), *(worker.hardware.engine for worker in workers)}
    if len(found) == 1 and EngineKind.VLLM_SERVER not in found:
        kind = models[0].engine if models else EngineKind.HEADWAY
        _check_devices(kind, limits, workers)
        return [
            EnginePart(
                models=tuple(models), workers=tuple(workers), limits=limits_of(kind, limits, workers), current=current
            )
        ]
    kinds = [kind for kind in EngineKind if any(model.engine is kind for model in models)] or [EngineKind.HEADWAY]
    return [
        *(
            _part(kind, models, workers, limits=limits, current=current)
            for kind in kinds
            if kind is not EngineKind.VLLM_SERVER
        ),
        *(
            _server_part(model, workers, limits=limits, current=current)
            for model in models
            if model.engine is EngineKind.VLLM_SERVER
        ),
    ]


def joined(parts: Sequence[ServingPlan], models: Sequence[ModelDeployment]) -> ServingPlan:
    """One plan of all parts, with the models in their order."""
    if len(parts) == 1:
        return parts[0]
    return replace(
        parts[0],
        models=tuple(models),
        workers=tuple(worker for part in parts for worker in part.workers),
        assignments=tuple(assignment for part in parts for assignment in part.assignments),
        alternatives=(),
    )


def engine_of(models: Sequence[ModelDeployment], *, num_devices: int) -> EngineKind:
    """What computes the models of one group.

    Args:
        models: one at least.

    Raises:
        FailedPreconditionError: no engine can do it: they are of several, or vLLM is to share a worker or to take more
            than one.
    """
    kinds = {model.engine for model in models}
    if kinds == {EngineKind.HEADWAY}:
        return EngineKind.HEADWAY
    names = ", ".join(f"'{model.name}'" for model in models)
    if EngineKind.VLLM_SERVER in kinds:
        raise FailedPreconditionError(
            f"The placement has {names}, and what {EngineKind.VLLM_SERVER} serves is where its servers are.",
            hint="Place the other models only.",
            field="placement",
        )
    if len(models) > 1:
        raise FailedPreconditionError(
            f"The placement has {names} on one group, and a model on {EngineKind.VLLM} has its workers to itself.",
            hint="Place it on a group of its own.",
            field="placement",
        )
    if num_devices > 1:
        raise FailedPreconditionError(
            f"The placement has {names} on {num_devices} workers together, and {models[0].engine} lacks "
            f"{Feature.GROUPS} here.",
            hint="Place it on groups of one device.",
            field="placement",
        )
    return models[0].engine


def _server_part(
    model: ModelDeployment, workers: Sequence[PlanWorker], *, limits: EngineLimits, current: ServingPlan | None
) -> EnginePart:
    """A model's servers, which say themselves what they can take.

    Raises:
        FailedPreconditionError: it has none, or they are unlike, or cannot keep a limit.
    """
    own_workers = workers_for(model, workers)
    if workers and not own_workers:
        raise _without_worker(model)
    ids = {worker.worker_id for worker in own_workers}
    return EnginePart(
        models=(model_of_servers(model, own_workers),),
        workers=own_workers,
        limits=limits_of_servers(model, limits_of(model.engine, limits, own_workers), own_workers),
        current=None if current is None else _current(current, {model.name}, ids),
    )


def _without_worker(model: ModelDeployment) -> FailedPreconditionError:
    return FailedPreconditionError(
        f"'{model.name}' is to run on {model.engine}, and no worker has that engine.",
        hint="Start the stack with a worker for it.",
        field="engine",
    )


def _part(
    kind: EngineKind,
    models: Sequence[ModelDeployment],
    workers: Sequence[PlanWorker],
    *,
    limits: EngineLimits,
    current: ServingPlan | None,
) -> EnginePart:
    own_models = tuple(model for model in models if model.engine is kind)
    own_workers = tuple(worker for worker in workers if worker.hardware.engine is kind)
    if workers and not own_workers:
        raise _without_worker(own_models[0])
    _check_devices(kind, limits, own_workers)
    names, ids = {model.name for model in own_models}, {worker.worker_id for worker in own_workers}
    return EnginePart(
        models=own_models,
        workers=own_workers,
        limits=limits_of(kind, limits, own_workers),
        current=None if current is None else _current(current, names, ids),
    )


def _check_devices(kind: EngineKind, limits: EngineLimits, workers: Sequence[PlanWorker]) -> None:
    """FailedPreconditionError where vLLM is to split layers over more devices, or fewer, than a worker has."""
    for worker in workers if kind is EngineKind.VLLM and limits.tp is not None else ():
        if worker.hardware.num_devices != limits.tp:
            raise FailedPreconditionError(
                f"limits.tp is {limits.tp}, and {worker.worker_id} has {worker.hardware.num_devices} devices for "
                f"{kind}.",
                hint="Start its process with as many devices, or leave tp out.",
                field="limits.tp",
            )


def limits_of(kind: EngineKind, limits: EngineLimits, workers: Sequence[PlanWorker]) -> EngineLimits:
    """The limits as an engine can keep them on these workers. Each is a group; how many devices it has is its own.

    Raises:
        FailedPreconditionError: it cannot keep one of them.
    """
    if kind is EngineKind.HEADWAY or not workers:
        return limits
    if (found := lacking(limits, kind)) is not None:
        field, feature = found
        raise FailedPreconditionError(
            f"limits.{field} is set, and a model runs on {kind}, which lacks {feature}.",
            hint="Leave it out, or serve every model with Headway's own engine.",
            field=f"limits.{field}",
        )
    block_size = limits.block_size or _VLLM_BLOCK_SIZE[workers[0].hardware.device]
    return replace(limits, block_size=block_size, tp=1, pp=1, cp=1, cp_ffn=None, stage_layers=())


def _current(current: ServingPlan, models: set[str], workers: set[str]) -> ServingPlan:
    return replace(
        current,
        models=tuple(model for model in current.models if model.name in models),
        workers=tuple(worker for worker in current.workers if worker.worker_id in workers),
        assignments=tuple(
            each for each in current.assignments if each.model in models and workers.issuperset(each.worker_ids)
        ),
    )
