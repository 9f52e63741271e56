"""Assigns live workers to the groups of a placement: as much as possible stays where it is. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from headway.core.cluster import PlanWorker
from headway.core.placement import GroupShape, PlacedGroup
from headway.core.plan.serving import ServingPlan
from headway.planner.serving.grouping import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldGroup:
    """Workers that serve together.

    Attributes:
        worker_ids: by rank.
    """

    worker_ids: tuple[str, ...]
    shape: GroupShape
    models: frozenset[str]


def held_groups(plan: ServingPlan | None) -> tuple[HeldGroup, ...]:
    """The groups of a plan; those with cache shards are left out, as no placement has such."""
    held: dict[tuple[str, ...], HeldGroup] = {}
    for assignment in plan.assignments if plan is not None else ():
        parallel, known = assignment.parallel, held.get(assignment.worker_ids)
        if parallel.cp == 1:
            held[assignment.worker_ids] = HeldGroup(
                worker_ids=assignment.worker_ids,
                shape=GroupShape(pp=parallel.pp, op=parallel.tp),
                models=(known.models if known else frozenset()) | {assignment.model},
            )
    return tuple(held.values())


def assign_workers(
    groups: Sequence[PlacedGroup], workers: Sequence[PlanWorker], *, held: Iterable[HeldGroup] = ()
) -> list[Group] | None:
    """Finds workers for each group, in the groups' order; None where they cannot be had without a group that spans
    machines.

    A group is put where most of its models are already, in a group of the same shape. The others take idle workers
    first, so that what is to be drained can go on until its successor is there. Where that leaves one without a place,
    all are assigned anew, at last by trying.

    Args:
        workers: in the order in which those of one machine are neighbours; all of one kind of device.
        held: what is there already.
    """
    by_id = {worker.worker_id: worker for worker in workers}
    there = [group for group in held if by_id.keys() >= set(group.worker_ids)]
    return _assign_workers(groups, by_id, there) or _assign_workers(groups, by_id, []) or _pack(groups, workers)


def _assign_workers(
    groups: Sequence[PlacedGroup], workers: Mapping[str, PlanWorker], held: Sequence[HeldGroup]
) -> list[Group] | None:
    worker_groups = {index: tuple(workers[name] for name in ids) for index, ids in _stay(groups, held).items()}
    free = dict(workers)
    for group in worker_groups.values():
        for worker in group:
            del free[worker.worker_id]
    busy = {name for group in held for name in group.worker_ids}
    largest_first = sorted(range(len(groups)), key=lambda index: (-groups[index].shape.num_devices, index))
    for index in largest_first:
        if index in worker_groups:
            continue
        taken = _take(groups[index].shape.num_devices, tuple(free.values()), busy)
        if taken is None:
            return None
        worker_groups[index] = taken
        for worker in taken:
            del free[worker.worker_id]
    return [worker_groups[index] for index in range(len(groups))]


def _stay(groups: Sequence[PlacedGroup], held: Sequence[HeldGroup]) -> dict[int, tuple[str, ...]]:
    """Matches groups to held groups: those with most models in common first, and of these those that differ least."""
    pairs = sorted(
        (-len(common), len(there.models.symmetric_difference(group.models)), index, place)
        for index, group in enumerate(groups)
        for place, there in enumerate(held)
        if there.shape == group.shape and (common := there.models.intersection(group.models))
    )
    stays: dict[int, tuple[str, ...]] = {}
    taken: set[int] = set()
    for _, _, index, place in pairs:
        if index not in stays and place not in taken:
            stays[index] = held[place].worker_ids
            taken.add(place)
    return stays


def _take(size: int, free: Sequence[PlanWorker], busy: Collection[str]) -> Group | None:
    """Takes equal workers of one machine: with as few busy ones as possible, then where the fewest are left over."""
    candidates: list[tuple[int, int, int, Group]] = []
    for cell in _cells(free):
        chosen = sorted(cell, key=lambda worker: worker.worker_id in busy)[:size]
        if len(chosen) == size:
            num_busy = sum(worker.worker_id in busy for worker in chosen)
            candidates.append((num_busy, len(cell) - size, len(candidates), tuple(chosen)))
    return min(candidates)[3] if candidates else None


def _cells(workers: Sequence[PlanWorker]) -> list[list[PlanWorker]]:
    """Sorts workers into cells: equal workers of one machine."""
    cells: dict[tuple[str, str], list[PlanWorker]] = {}
    for worker in workers:
        cells.setdefault((worker.machine, worker.hardware.content_hash), []).append(worker)
    return list(cells.values())


def _pack(groups: Sequence[PlacedGroup], workers: Sequence[PlanWorker]) -> list[Group] | None:
    """Finds any assignment; None where there is none."""
    cells = _cells(workers)
    order = sorted(range(len(groups)), key=lambda index: -groups[index].shape.num_devices)
    sizes = [groups[index].shape.num_devices for index in order]
    chosen = _choose(sizes, [len(cell) for cell in cells], set())
    if chosen is None:
        return None
    left = [iter(cell) for cell in cells]
    worker_groups = {
        index: tuple(islice(left[cell], size)) for index, size, cell in zip(order, sizes, chosen, strict=True)
    }
    return [worker_groups[index] for index in range(len(groups))]


def _choose(
    sizes: Sequence[int], room: Sequence[int], vain: set[tuple[int, tuple[int, ...]]]
) -> tuple[int, ...] | None:
    """Chooses a cell for each by backtracking; cells with equal room are alike, and what was in vain is not tried
    again."""
    if not sizes:
        return ()
    state = len(sizes), tuple(sorted(room))
    if state in vain:
        return None
    for free in sorted({free for free in room if free >= sizes[0]}):
        cell = room.index(free)
        rest = _choose(sizes[1:], [*room[:cell], free - sizes[0], *room[cell + 1 :]], vain)
        if rest is not None:
            return (cell, *rest)
    vain.add(state)
    return None
