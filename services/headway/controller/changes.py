"""Lists what a plan changes before it is applied. Pure: the way to the plan is gone through as it would be."""

from collections.abc import Collection, Mapping, Sequence

from headway.controller.reconcile import Action, is_served, reconcile, startable
from headway.core.load_order import LoadOrder
from headway.core.plan_change import ChangeKind, PlanChange

Works = Mapping[str, Sequence[LoadOrder]]


def changes_to(wanted: Works, *, serving: Works, memory_bytes: Mapping[str, int]) -> tuple[PlanChange, ...]:
    """Returns what becomes of every model on every group, also of those that stay.

    Args:
        wanted, serving: the models that the plan has on each worker, and those that it serves now.
        memory_bytes: the memory of each worker.
    """
    pausing = paused_models(wanted, serving=serving, memory_bytes=memory_bytes)
    there = {(work.model, work.worker_ids) for work in _distinct(serving)}
    changes = []
    for work in _distinct(wanted):
        kind = ChangeKind.RELOAD if (work.model, work.worker_ids) in there else ChangeKind.LOAD
        changes.append(
            PlanChange(
                kind=ChangeKind.KEEP if is_served(work, serving) else kind,
                model=work.model,
                worker_ids=work.worker_ids,
                memory_bytes=work.memory_bytes,
                pauses=work.model in pausing and not is_served(work, serving),
            )
        )
    places = {(work.model, work.worker_ids) for work in _distinct(wanted)}
    changes += [
        PlanChange(kind=ChangeKind.DRAIN, model=work.model, worker_ids=work.worker_ids)
        for work in _distinct(serving)
        if (work.model, work.worker_ids) not in places
    ]
    return tuple(changes)


def paused_models(wanted: Works, *, serving: Works, memory_bytes: Mapping[str, int]) -> frozenset[str]:
    """Models that are served, and are to be, but not all the time on the way."""
    state = {worker_id: tuple(works) for worker_id, works in serving.items()}
    lasting = {work.model for work in _distinct(wanted)} & _served(state)
    paused: set[str] = set()
    for _ in range(2 * len(_distinct(wanted)) + len(_distinct(serving)) + 1):  # each step settles one work at least
        actions = reconcile(wanted, serving=state, memory_bytes=memory_bytes)
        steps = startable(actions, wanted=wanted, serving=state, busy=())
        if not steps:
            break
        state = _without(state, [work for step in steps for work in step.before])
        paused |= lasting - _served(state)
        state = _with(state, steps)
    return frozenset(paused)


def _served(state: Works) -> set[str]:
    return {work.model for work in _distinct(state) if is_served(work, state)}


def _without(state: Works, ended: Collection[LoadOrder]) -> dict[str, tuple[LoadOrder, ...]]:
    return {worker_id: tuple(work for work in works if work not in ended) for worker_id, works in state.items()}


def _with(state: Works, steps: Sequence[Action]) -> dict[str, tuple[LoadOrder, ...]]:
    loaded = {worker_id: tuple(works) for worker_id, works in state.items()}
    for work in (step.after for step in steps if step.after is not None):
        for worker_id in work.worker_ids:
            loaded[worker_id] = (*loaded[worker_id], work)
    return loaded


def _distinct(works: Works) -> list[LoadOrder]:
    return list(dict.fromkeys(work for of_worker in works.values() for work in of_worker))
