"""Forms groups of workers that serve a model together."""

from collections.abc import Collection, Iterable, Sequence

from headway.core.cluster import PlanWorker

Group = tuple[PlanWorker, ...]
"""Workers by rank; the first leads."""


def in_order(workers: Iterable[PlanWorker]) -> list[PlanWorker]:
    """Workers by their names, those of one machine beside each other: 'worker-2' comes before 'worker-10'."""
    return sorted(workers, key=lambda worker: _natural(worker.worker_id))


def form_groups(workers: Sequence[PlanWorker], *, size: int, keep: Collection[tuple[str, ...]] = ()) -> list[Group]:
    """Forms groups of `size` neighbours with equal hardware: a group is as fast as its slowest worker.

    As many groups as possible are on one machine each. Workers that are left over are in no group.

    Args:
        workers: in the order in which those of one machine are neighbours, and in which the groups come.
        keep: ids, by rank, of groups that stay together if their workers still are there and equal.
    """
    by_id = {worker.worker_id: worker for worker in workers}
    kept = [tuple(by_id[worker_id] for worker_id in ids) for ids in keep if by_id.keys() >= set(ids)]
    groups = [group for group in kept if len(group) == size and _are_equal(group)]
    taken = {worker.worker_id for group in groups for worker in group}
    alike: dict[str, list[PlanWorker]] = {}
    for worker in workers:
        if worker.worker_id not in taken:
            alike.setdefault(worker.hardware.content_hash, []).append(worker)
    for equals in alike.values():
        left_over = []
        for neighbours in _by_machine(equals):
            num_grouped = len(neighbours) - len(neighbours) % size
            groups += _cut(neighbours[:num_grouped], size)
            left_over += neighbours[num_grouped:]
        groups += _cut(left_over, size)
    position = {worker.worker_id: index for index, worker in enumerate(workers)}
    return sorted(groups, key=lambda group: position[group[0].worker_id])


def _by_machine(workers: Sequence[PlanWorker]) -> list[list[PlanWorker]]:
    machines: dict[str, list[PlanWorker]] = {}
    for worker in workers:
        machines.setdefault(worker.machine, []).append(worker)
    return list(machines.values())


def _cut(workers: Sequence[PlanWorker], size: int) -> list[Group]:
    return [tuple(workers[start : start + size]) for start in range(0, len(workers) - size + 1, size)]


def _are_equal(group: Group) -> bool:
    return len({worker.hardware.content_hash for worker in group}) == 1


def _natural(worker_id: str) -> tuple[str, int, str]:
    stem = worker_id.rstrip("0123456789")
    digits = worker_id[len(stem) :]
    return stem, int(digits or -1), worker_id
