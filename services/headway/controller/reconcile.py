"""Compares the plan with the workers as they are, and returns the actions to take, in order. Pure.

What is loaded or drained is a model on a group of workers; most groups are of one, and a group may have several models.
Order keeps models served: what takes nobody's place is loaded first, all groups at once and each model by model, also
beside what is to go where memory has room for both; then
what is in the way of others gives way to them, of each model one group after the other, those first that are served
elsewhere; only then what is not needed is drained.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from headway.core.load_order import DEFAULT_STEP_TIMEOUT_S, LoadOrder
from headway.core.plan.serving import Assignment, ModelDeployment, RankShare, ServingPlan

_MARGIN = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Workers are to give up works for another that they share, beside what they go on serving; None is no work.

    Attributes:
        worker_ids: by rank.
        before: what any of them is to give up.
        kept: what they go on serving meanwhile.
    """

    worker_ids: tuple[str, ...]
    before: tuple[LoadOrder, ...]
    after: LoadOrder | None
    kept: tuple[LoadOrder, ...] = ()

    @property
    def involved(self) -> tuple[str, ...]:
        """The workers, and those that share what one of them serves: it ends for all."""
        return tuple(dict.fromkeys((*self.worker_ids, *(mate for work in self.before for mate in work.worker_ids))))

    @property
    def models(self) -> frozenset[str]:
        """Those that it loads, ends, or does both with."""
        return frozenset(work.model for work in (*self.before, *((self.after,) if self.after else ())))

    @property
    def ended(self) -> tuple[str, ...]:
        """Workers of groups that fall apart: with no other model there, and none to come."""
        staying = {work.worker_ids for work in (*self.kept, *((self.after,) if self.after else ()))}
        apart = (work.worker_ids for work in self.before if work.is_in_group and work.worker_ids not in staying)
        return tuple(dict.fromkeys(worker_id for worker_ids in apart for worker_id in worker_ids))

    def __str__(self) -> str:
        workers, models = ", ".join(self.worker_ids), list(dict.fromkeys(work.model for work in self.before))
        if self.after is None:
            return f"{workers}: drain {', '.join(models)}"
        size = f"{self.after.num_blocks} blocks" + (f", {self.after.parallel}" if self.after.is_in_group else "")
        if not models:
            return f"{workers}: load {self.after.model} ({size})"
        if models == [self.after.model]:
            return f"{workers}: reload {self.after.model} ({size}, before {self.before[0].num_blocks})"
        return f"{workers}: drain {', '.join(models)}, load {self.after.model} ({size})"


def load_orders_of(plan: ServingPlan) -> dict[str, tuple[LoadOrder, ...]]:
    """Each worker's works, the same for all workers of a group; predictions are no part of them."""
    models = {model.name: model for model in plan.models}
    works: dict[str, tuple[LoadOrder, ...]] = {}
    for assignment in plan.assignments:
        work = _work(assignment, models[assignment.model])
        works |= {worker_id: (*works.get(worker_id, ()), work) for worker_id in work.worker_ids}
    return works


def is_served(work: LoadOrder, serving: Mapping[str, Collection[LoadOrder]]) -> bool:
    """Whether the whole group serves it."""
    return all(work in serving.get(worker_id, ()) for worker_id in work.worker_ids)


def reconcile(
    wanted: Mapping[str, Collection[LoadOrder]],
    *,
    serving: Mapping[str, Collection[LoadOrder]],
    memory_bytes: Mapping[str, int] | None = None,
) -> list[Action]:
    """Returns the actions to take on the workers that are there; groups of which one is away are left alone.

    Args:
        wanted: the plan's load orders, by worker id.
        serving: what each live worker serves.
        memory_bytes: the memory of each worker; without it, nothing is loaded beside what is to go.
    """
    room = memory_bytes or {}
    unwanted = {
        worker_id: tuple(work for work in works if work not in wanted.get(worker_id, ()))
        for worker_id, works in serving.items()
    }
    loads = [
        _action(work.worker_ids, _in_the_way(work, unwanted, serving, room), work, serving)
        for work in _distinct(wanted, wanted)
        if serving.keys() >= set(work.worker_ids) and not is_served(work, serving)
    ]
    giving_way = {work for load in loads for work in load.before}
    awaiting = {
        name
        for work in _distinct(wanted, wanted)
        if not serving.keys() >= set(work.worker_ids)
        for name in work.worker_ids
    }
    drains = [
        _action(tuple(m for m in work.worker_ids if work in serving.get(m, ())), (work,), None, serving)
        for work in _distinct(unwanted, unwanted)
        if work not in giving_way and awaiting.isdisjoint(work.worker_ids)
    ]
    return loads + drains


def startable(
    actions: Sequence[Action],
    *,
    wanted: Mapping[str, Collection[LoadOrder]],
    serving: Mapping[str, Collection[LoadOrder]],
    busy: Collection[str],
) -> list[Action]:
    """The actions that may start now; the others wait for those that run.

    Args:
        busy: workers that an action involves which runs.
    """
    idle = [action for action in actions if set(action.involved).isdisjoint(busy)]
    fresh = [action for action in idle if not action.before]
    if fresh or busy:
        return _disjoint(fresh)
    replacements = [action for action in idle if action.after is not None]
    if not replacements:
        return _disjoint([action for action in idle if _can_leave(action, wanted, serving)])
    ready = [action for action in replacements if _can_leave(action, wanted, serving)]
    if not ready and wanted.keys() <= serving.keys():
        return replacements[:1]  # they trade models, so one must go first
    return _one_of_each_model(ready)


def _action(
    worker_ids: tuple[str, ...],
    before: tuple[LoadOrder, ...],
    after: LoadOrder | None,
    serving: Mapping[str, Collection[LoadOrder]],
) -> Action:
    involved = {*worker_ids, *(mate for work in before for mate in work.worker_ids)}
    kept = dict.fromkeys(work for mate in sorted(involved) for work in serving.get(mate, ()) if work not in before)
    return Action(worker_ids=worker_ids, before=before, after=after, kept=tuple(kept))


def _disjoint(actions: Sequence[Action]) -> list[Action]:
    """Returns the actions that share no worker with an action before them."""
    involved: set[str] = set()
    chosen = []
    for action in actions:
        if involved.isdisjoint(action.involved):
            chosen.append(action)
            involved.update(action.involved)
    return chosen


def _one_of_each_model(actions: Sequence[Action]) -> list[Action]:
    """Returns the actions that end no model and share no worker with one before them."""
    ended: set[str] = set()
    chosen = []
    for action in _disjoint(actions):
        models = {work.model for work in action.before}
        if ended.isdisjoint(models):
            chosen.append(action)
            ended |= models
    return chosen


def _can_leave(
    action: Action, wanted: Mapping[str, Collection[LoadOrder]], serving: Mapping[str, Collection[LoadOrder]]
) -> bool:
    """Whether each model that ends is not wanted any more, or is served by others, one of which is to serve it."""
    return all(_can_end(work.model, action, wanted, serving) for work in action.before)


def _can_end(
    model: str,
    action: Action,
    wanted: Mapping[str, Collection[LoadOrder]],
    serving: Mapping[str, Collection[LoadOrder]],
) -> bool:
    homes = [worker_id for worker_id, works in wanted.items() if any(work.model == model for work in works)]
    others = (work for home in homes if home not in action.involved for work in serving.get(home, ()))
    return not homes or any(work.model == model and is_served(work, serving) for work in others)


def _in_the_way(
    work: LoadOrder,
    unwanted: Mapping[str, Collection[LoadOrder]],
    serving: Mapping[str, Collection[LoadOrder]],
    room: Mapping[str, int],
) -> tuple[LoadOrder, ...]:
    """What its workers have and are not to have, unless it fits beside; and itself, where only some of them have it."""
    is_begun = any(work in serving[worker_id] for worker_id in work.worker_ids)
    to_go = _distinct(work.worker_ids, unwanted)
    apart = tuple(other for other in to_go if not _goes_beside(work, other))
    if _has_room(work, [other for other in serving[work.leader] if other not in (*apart, work)], room):
        to_go = apart
    return (*to_go, *((work,) if is_begun else ()))


def _goes_beside(work: LoadOrder, other: LoadOrder) -> bool:
    """Whether a group can have both for a while, given the memory: as with models that share it, it keeps its axes."""
    axes = [(each.parallel.tp, each.parallel.pp, each.parallel.cp) for each in (work, other)]
    return work.worker_ids == other.worker_ids and axes[0] == axes[1] and work.model != other.model


def _has_room(work: LoadOrder, others: Collection[LoadOrder], room: Mapping[str, int]) -> bool:
    """False where somebody's memory is not known."""
    together = [each.memory_bytes for each in (work, *others)]
    return all(len(each) == len(work.worker_ids) for each in together) and all(
        sum(of_rank) <= room.get(worker_id, 0)
        for worker_id, of_rank in zip(work.worker_ids, zip(*together, strict=True), strict=True)
    )


def _distinct(worker_ids: Collection[str], works: Mapping[str, Collection[LoadOrder]]) -> tuple[LoadOrder, ...]:
    """Those of any of the workers, each once."""
    return tuple(dict.fromkeys(work for worker_id in worker_ids for work in works[worker_id]))


def _work(assignment: Assignment, model: ModelDeployment) -> LoadOrder:
    return LoadOrder(
        model=model.name,
        directory=model.directory,
        dtype=model.spec.dtype,
        num_blocks=assignment.num_blocks,
        block_size=assignment.block_size,
        max_num_seqs=assignment.max_num_seqs,
        max_num_batched_tokens=assignment.max_num_batched_tokens,
        max_model_len=assignment.max_model_len,
        enable_prefix_cache=assignment.enable_prefix_cache,
        max_num_prefill_tokens=assignment.max_num_prefill_tokens,
        num_host_blocks=assignment.num_host_blocks,
        preemption=assignment.preemption,
        num_draft_tokens=assignment.num_draft_tokens,
        quantization=model.spec.quantization or "",
        generation_config=model.generation_config,
        engine=model.engine,
        engine_args=model.engine_args,
        backend=model.backend,
        parallel=assignment.parallel,
        worker_ids=assignment.worker_ids,
        group_id=assignment.group_id,
        stage_latencies=assignment.stage_latencies,
        step_timeout_s=_step_timeout_s(assignment),
        memory_bytes=tuple(
            max(_held_bytes(share) for share in assignment.shares if share.worker_id == worker_id)
            for worker_id in assignment.worker_ids
        ),
    )


def _step_timeout_s(assignment: Assignment) -> float:
    """What no step takes, by far: predictions are good to a factor of two, and a machine may be busy."""
    longest_s = assignment.prediction.latency.step_s(
        prefill_tokens=assignment.max_num_batched_tokens,
        prefill_context=assignment.max_model_len,
        num_decodes=assignment.max_num_seqs,
        context_tokens=assignment.num_blocks * assignment.block_size,
    )
    return max(DEFAULT_STEP_TIMEOUT_S, _MARGIN * longest_s)


def _held_bytes(share: Assignment | RankShare) -> int:
    return share.weight_bytes + share.kv_cache_bytes + share.reserved_bytes + share.host_cache_bytes
