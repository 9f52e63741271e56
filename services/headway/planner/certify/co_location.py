"""Checks how models share workers."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import combinations

from headway.core.cluster import Hardware
from headway.core.plan.serving import Assignment, ServingPlan


def co_location_violations(plan: ServingPlan) -> Iterator[str]:
    """Checks that groups overlap in all of their workers or in none, that what shares a group is laid out alike, and
    that it fits together."""
    for first, second in combinations(plan.assignments, 2):
        yield from _pair_violations(first, second)
    for worker in plan.workers:
        yield from _room_violations(plan.assignments_of(worker.worker_id), worker.worker_id, worker.hardware)


def _pair_violations(first: Assignment, second: Assignment) -> Iterator[str]:
    one, other = f"'{first.model}' on {_place(first)}", f"'{second.model}' on {_place(second)}"
    shared = sorted(set(first.worker_ids) & set(second.worker_ids))
    if not shared:
        if first.group_id == second.group_id:
            yield f"Two groups are called '{first.group_id}': {one} and {other}."
        return
    if first.worker_ids != second.worker_ids:
        yield f"{shared[0]} is in two groups that are not the same workers in the same order: {one} and {other}."
        return
    if first.group_id != second.group_id:
        yield f"The group of {one} is '{first.group_id}' and that of {other} is '{second.group_id}'."
    if _axes(first) != _axes(second):
        yield f"{one} has {first.parallel} and {other} has {second.parallel}: models that share a group share its axes."
    if first.model == second.model:
        yield f"{one} is assigned twice."


def _room_violations(there: tuple[Assignment, ...], worker_id: str, hardware: Hardware) -> Iterator[str]:
    if len(there) < 2:
        return  # it is looked at by itself
    used = Counter[str]()
    for assignment in there:
        used[assignment.model] += _used_bytes(assignment, worker_id, hardware)
    if sum(used.values()) > hardware.memory_bytes:
        yield (
            f"{worker_id}: its models take {sum(used.values())} bytes together ({_listed(used)}) and the worker has "
            f"{hardware.memory_bytes}."
        )


def _used_bytes(assignment: Assignment, worker_id: str, hardware: Hardware) -> int:
    share = assignment.shares[assignment.worker_ids.index(worker_id)]
    on_host = share.host_cache_bytes if hardware.device == "cpu" else 0  # the same memory there
    return share.weight_bytes + share.reserved_bytes + share.kv_cache_bytes + on_host


def _axes(assignment: Assignment) -> tuple[int, int, int, str]:
    """The axes that models of one group must have in common; the layers of the stages are a model's own."""
    parallel = assignment.parallel
    return parallel.tp, parallel.pp, parallel.cp, parallel.cp_ffn


def _place(assignment: Assignment) -> str:
    return ", ".join(assignment.worker_ids)


def _listed(used: Mapping[str, int]) -> str:
    return ", ".join(f"{model} {num_bytes}" for model, num_bytes in used.items())
