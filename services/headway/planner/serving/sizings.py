"""Sizes models for groups of workers. Groups that are alike are sized once: a fleet has few kinds of them."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from headway.core.cluster import PlanWorker
from headway.core.plan.serving import Assignment, ModelDeployment
from headway.planner.serving.grouping import Group
from headway.planner.serving.memory import Shortfall
from headway.planner.serving.replica import group_of

Size = Callable[[ModelDeployment, Group], Assignment | Shortfall]


def size_each(model: ModelDeployment, groups: Sequence[Group], *, size: Size) -> list[Assignment | Shortfall]:
    """The assignment of a model to each of the groups, or why it does not fit, in the groups' order.

    Args:
        size: says it of one group, by nothing of its workers but their hardware and which of them share a machine.
    """
    sized: dict[Hashable, tuple[Group, Assignment | Shortfall]] = {}
    sizings = []
    for group in groups:
        kind = _kind_of(group)
        if kind not in sized:
            sized[kind] = group, size(model, group)
        like, sizing = sized[kind]
        sizings.append(_moved(sizing, like, group))
    return sizings


def _kind_of(group: Group) -> Hashable:
    machines = [worker.machine for worker in group]
    return tuple(
        (worker.hardware.content_hash, worker.hardware.memory_bytes, machines.index(worker.machine)) for worker in group
    )


def _moved(sizing: Assignment | Shortfall, before: Group, group: Group) -> Assignment | Shortfall:
    """The same of a group that is like the one before."""
    if isinstance(sizing, Shortfall):
        return replace(sizing, worker=group[before.index(sizing.worker)])
    instead: dict[str, PlanWorker] = {old.worker_id: new for old, new in zip(before, group, strict=True)}
    return replace(
        sizing,
        group_id=group_of(group[0].worker_id),
        worker_id=instead[sizing.worker_id].worker_id,
        ranks=tuple(replace(share, worker_id=instead[share.worker_id].worker_id) for share in sizing.ranks),
    )
