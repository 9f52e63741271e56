"""Fits the models of one group in its memory: those that are there already stay as they are, others take what is left.
Pure.

    |<--------------------------- memory_bytes --------------------------->|
    | runtime | those that stay | weights, activations of profiled | others |

A model that got more or fewer blocks would have to be loaded again, so none that stays does while the others find room.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from headway.core.errors import FailedPreconditionError
from headway.core.held_memory import runtime_bytes_of
from headway.core.parallel_config import ParallelConfig
from headway.core.plan.serving import Assignment, ModelDeployment
from headway.planner.serving.grouping import Group
from headway.planner.serving.memory import Shortfall
from headway.planner.serving.refusal import no_group_fits
from headway.planner.serving.sharing import Size, share_groups


def fill_group(
    models: Sequence[ModelDeployment],
    group: Group,
    *,
    size: Size,
    parallel: ParallelConfig,
    there: Mapping[str, Assignment],
) -> list[Assignment]:
    """Makes one assignment for each model, in their order; the first has reserved the runtime's memory too.

    Args:
        size: makes a model's assignment to a group that has nothing else.
        parallel: the group's axes.
        there: assignments that may stay, by model, none of them with the runtime's memory.

    Raises:
        FailedPreconditionError: they have no room together.
    """
    if there:
        try:
            return _fill(models, group, size=size, parallel=parallel, there=there)
        except FailedPreconditionError:
            pass  # without room beside those that are there all are sized anew
    return _fill(models, group, size=size, parallel=parallel, there={})


def without_runtime(assignment: Assignment, group: Group) -> Assignment:
    """Takes the runtime's memory out of an assignment that has reserved it."""
    return _reserving(assignment, -_runtime(group))


def _fill(
    models: Sequence[ModelDeployment],
    group: Group,
    *,
    size: Size,
    parallel: ParallelConfig,
    there: Mapping[str, Assignment],
) -> list[Assignment]:
    assigned = dict(there)
    left = group
    for stays in there.values():
        left = _beside(left, stays)
    for model in models:
        if model.profile and model.name not in assigned:
            assignment = size(model, left)
            assigned[model.name] = without_runtime(_fitting(assignment, model, parallel), group)
            left = _beside(left, assigned[model.name])
    others = [model for model in models if model.name not in assigned]
    if others:
        assigned |= {each.model: each for each in _share(others, left, size=size, parallel=parallel)}
    first, *rest = (assigned[model.name] for model in models)
    return [_reserving(first, _runtime(group)), *rest]


def _share(
    models: Sequence[ModelDeployment], group: Group, *, size: Size, parallel: ParallelConfig
) -> list[Assignment]:
    """Makes the assignments of models that share a group, none of them with the runtime's memory."""
    if len(models) > 1:
        first, *rest = share_groups(models, [group], size=size, keep=(tuple(range(len(models))),))
        return [without_runtime(first, group), *rest]
    return [without_runtime(_fitting(size(models[0], group), models[0], parallel), group)]


def _fitting(sizing: Assignment | Shortfall, model: ModelDeployment, parallel: ParallelConfig) -> Assignment:
    if isinstance(sizing, Shortfall):
        raise no_group_fits(model, [sizing], parallel, fitting=None)
    return sizing


def _beside(group: Group, assignment: Assignment) -> Group:
    """The workers with the memory that an assignment leaves of them."""
    return tuple(
        replace(worker, hardware=replace(worker.hardware, memory_bytes=worker.hardware.memory_bytes - used_bytes))
        for worker, used_bytes in zip(group, _used_bytes(assignment, group), strict=True)
    )


def _used_bytes(assignment: Assignment, group: Group) -> Iterator[int]:
    for share, worker in zip(assignment.shares, group, strict=True):
        on_host = share.host_cache_bytes if worker.hardware.device == "cpu" else 0  # the same memory there
        yield share.weight_bytes + share.kv_cache_bytes + share.reserved_bytes + on_host


def _reserving(assignment: Assignment, more_bytes: int) -> Assignment:
    return replace(
        assignment,
        reserved_bytes=assignment.reserved_bytes + more_bytes,
        ranks=tuple(replace(share, reserved_bytes=share.reserved_bytes + more_bytes) for share in assignment.ranks),
    )


def _runtime(group: Group) -> int:
    return runtime_bytes_of(group[0].hardware)
