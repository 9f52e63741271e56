"""Sizes models for groups of workers. Groups that are alike are sized once: a fleet has few kinds of them."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

from headway.core.cluster import PlanWorker
from headway.core.plan.serving import Assignment, ModelDeployment
from headway.planner.serving.grouping import Group
from headway.planner.serving.memory import Shortfall
from headway.planner.serving.replica import group_of

Sizing = Assignment | Shortfall
Size = Callable[[ModelDeployment, Group], Sizing]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKinds:
    """Groups, and which of them are alike.

    Attributes:
        kinds: of each group, counted from 0.
        examples: the first group of each kind.
    """

    groups: Sequence[Group]
    kinds: tuple[int, ...]
    examples: tuple[Group, ...]

    @classmethod
    def of(cls, groups: Sequence[Group]) -> "GroupKinds":
        numbers: dict[Hashable, int] = {}
        kinds = tuple(numbers.setdefault(_kind_of(group), len(numbers)) for group in groups)
        return cls(groups=groups, kinds=kinds, examples=tuple(groups[kinds.index(kind)] for kind in numbers.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizings:
    """A model's assignments to groups, or why it does not fit."""

    groups: GroupKinds
    of_kinds: tuple[Sizing, ...]

    @classmethod
    def make(cls, model: ModelDeployment, groups: GroupKinds, *, size: Size) -> "Sizings":
        """Args:
        size: says it of one group, by nothing of its workers but their hardware and which of them share a machine.
        """
        return cls(groups=groups, of_kinds=tuple(size(model, example) for example in groups.examples))

    def like(self, index: int) -> Sizing:
        """That of a group of the same kind: it differs in the workers' names."""
        return self.of_kinds[self.groups.kinds[index]]

    def of(self, index: int) -> Sizing:
        """That of a group."""
        return _moved(self.like(index), self.groups.examples[self.groups.kinds[index]], self.groups.groups[index])


def _kind_of(group: Group) -> Hashable:
    machines = [worker.machine for worker in group]
    return tuple(
        (worker.hardware.content_hash, worker.hardware.memory_bytes, machines.index(worker.machine)) for worker in group
    )


def _moved(sizing: Sizing, before: Group, group: Group) -> Sizing:
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
