"""Shares groups among models, because there are fewer groups than models. Pure.

Each model gets one group: the largest first, each where most room is left. Of what then remains in a group every model
has a part in proportion to what a token keeps, so that all have room for equally many more tokens:

    |<----------------------- memory_bytes ----------------------->|
    | runtime | weights, activations, shortest sequence | of each  |  the rest, by bytes per token |
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from headway.core.cluster import PlanWorker
from headway.core.held_memory import runtime_bytes_of
from headway.core.plan.serving import Assignment, ModelDeployment
from headway.planner.serving.grouping import Group
from headway.planner.serving.memory import Shortfall
from headway.planner.serving.refusal import no_room_together

Size: TypeAlias = Callable[[ModelDeployment, Group], Assignment | Shortfall]
CoLocation: TypeAlias = tuple[tuple[int, ...], ...]
"""For each group the models on it, by their place in the plan's order."""


def share_groups(
    models: Sequence[ModelDeployment], groups: Sequence[Group], *, size: Size, keep: CoLocation = ()
) -> list[Assignment]:
    """Makes one assignment for each model on each of its groups, those of a group one after the other.

    Args:
        size: makes a model's assignment to a group that has nothing else.
        keep: the models that each group has already; they stay, if those that none has find room beside them.

    Raises:
        FailedPreconditionError: they have no room together.
    """
    needs = [[_need(size, model, group) for group in groups] for model in models]
    rooms = [_room(group) for group in groups]
    co_location = pack(needs, rooms, keep=keep) or pack(needs, rooms)
    if co_location is None:
        raise no_room_together(models, [min(row) for row in needs], groups, runtime_bytes=_runtime(groups[0]))
    return [
        assignment
        for index, (group, there) in enumerate(zip(groups, co_location, strict=True))
        for assignment in _share(
            [models[model] for model in there], group, size=size, needs=[needs[model][index] for model in there]
        )
    ]


def pack(needs: Sequence[Sequence[int]], rooms: Sequence[int], *, keep: CoLocation = ()) -> CoLocation | None:
    """Packs the largest model first, each where most room is left; None where one then finds no room.

    Args:
        needs: `needs[model][group]`, bytes of each worker.
        rooms: bytes of each worker, by group.
        keep: models that stay where they are, by group.
    """
    co_location = [list(there) for there in keep or [()] * len(rooms)]
    left = [
        room - sum(needs[model][group] for model in there)
        for group, (room, there) in enumerate(zip(rooms, co_location, strict=True))
    ]
    kept = {model for there in keep for model in there}
    for model in sorted(set(range(len(needs))) - kept, key=lambda model: (-min(needs[model]), model)):
        group = max(range(len(rooms)), key=lambda group: (left[group] - needs[model][group], -group))
        left[group] -= needs[model][group]
        co_location[group].append(model)
    return tuple(tuple(sorted(there)) for there in co_location) if min(left) >= 0 else None


def _share(models: Sequence[ModelDeployment], group: Group, *, size: Size, needs: Sequence[int]) -> list[Assignment]:
    """Makes the assignments of models that fit a group together; the runtime is reserved with the first."""
    spare_bytes, runtime_bytes = _room(group) - sum(needs), _runtime(group)
    appetites = [model.spec.kv_bytes_per_token for model in models]
    assignments: list[Assignment] = []
    for model, need_bytes, appetite in zip(models, needs, appetites, strict=True):
        part_bytes = spare_bytes * appetite // max(1, sum(appetites))
        assignment = size(model, _with_memory(group, need_bytes + runtime_bytes + part_bytes))
        assert isinstance(assignment, Assignment), "what a model needs was found out"
        assignments.append(_without(assignment, runtime_bytes) if assignments else assignment)
    return assignments


def _need(size: Size, model: ModelDeployment, group: Group) -> int:
    """Bytes of each worker beside the runtime that a model needs for sequences as long as they have to be."""
    shortfall = size(model, _with_memory(group, 0))
    assert isinstance(shortfall, Shortfall), "a model takes memory"
    return shortfall.missing_bytes - _runtime(group)


def _room(group: Group) -> int:
    return min(worker.hardware.memory_bytes for worker in group) - _runtime(group)


def _runtime(group: Group) -> int:
    return runtime_bytes_of(group[0].hardware)


def _with_memory(group: Group, memory_bytes: int) -> Group:
    def limited(worker: PlanWorker) -> PlanWorker:
        return replace(worker, hardware=replace(worker.hardware, memory_bytes=memory_bytes))

    return tuple(map(limited, group))


def _without(assignment: Assignment, runtime_bytes: int) -> Assignment:
    """An assignment without the runtime's memory, which another one on the same workers has reserved."""
    return replace(
        assignment,
        reserved_bytes=assignment.reserved_bytes - runtime_bytes,
        ranks=tuple(replace(share, reserved_bytes=share.reserved_bytes - runtime_bytes) for share in assignment.ranks),
    )
