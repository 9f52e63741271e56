"""From the plan and the workers as they are to what must be done, and in which order. Pure.

What is loaded or drained is a group of workers; most groups are of one. Order keeps models served: groups of workers
that serve nothing are loaded first, all at once; then groups with workers that change are reloaded one by one, those
first whose models are served elsewhere; only then workers that are not needed are drained.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from headway.core.mesh import SINGLE, ParallelConfig
from headway.core.plan import Assignment, ModelDeployment, ServingPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What the workers of a group are told to load; the fields are those of `LoadModelRequest`.

    Attributes:
        worker_ids: the group's, by rank; the first leads.
    """

    model: str
    directory: str
    dtype: str
    num_blocks: int
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    enable_prefix_cache: bool
    max_num_prefill_tokens: int | None = None
    num_host_blocks: int = 0
    preemption: str = "auto"
    num_draft_tokens: int = 0
    quantization: str = ""
    parallel: ParallelConfig = SINGLE
    worker_ids: tuple[str, ...]
    group_id: str

    @property
    def leader(self) -> str:
        return self.worker_ids[0]

    @property
    def is_shared(self) -> bool:
        """Whether several workers do it together."""
        return len(self.worker_ids) > 1

    def continues(self, other: "Work") -> bool:
        """Whether it answers as the other does, so that a request can go from that to this."""
        mine = (self.model, self.directory, self.dtype, self.quantization)
        return mine == (other.model, other.directory, other.dtype, other.quantization)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Workers are to go from their works to another that they share; None is no work.

    Attributes:
        worker_ids: by rank.
        before: what any of them serves.
    """

    worker_ids: tuple[str, ...]
    before: tuple[Work, ...]
    after: Work | None

    @property
    def involved(self) -> tuple[str, ...]:
        """The workers, and those that share what one of them serves: it ends for all."""
        return tuple(dict.fromkeys((*self.worker_ids, *(mate for work in self.before for mate in work.worker_ids))))

    @property
    def ended(self) -> tuple[str, ...]:
        """Workers of groups that fall apart."""
        stays = () if self.after is None else self.after.worker_ids
        apart = (work.worker_ids for work in self.before if work.is_shared and work.worker_ids != stays)
        return tuple(worker_id for worker_ids in apart for worker_id in worker_ids)

    def __str__(self) -> str:
        workers, models = ", ".join(self.worker_ids), list(dict.fromkeys(work.model for work in self.before))
        if self.after is None:
            return f"{workers}: drain {', '.join(models)}"
        size = f"{self.after.num_blocks} blocks" + (f", {self.after.parallel}" if self.after.is_shared else "")
        if not models:
            return f"{workers}: load {self.after.model} ({size})"
        if models == [self.after.model]:
            return f"{workers}: reload {self.after.model} ({size}, before {self.before[0].num_blocks})"
        return f"{workers}: drain {', '.join(models)}, load {self.after.model} ({size})"


def work_of(plan: ServingPlan) -> dict[str, Work]:
    """Each worker's work, the same for all workers of a group; predictions are no part of it."""
    models = {model.name: model for model in plan.models}
    works = [_work(assignment, models[assignment.model]) for assignment in plan.assignments]
    return {worker_id: work for work in works for worker_id in work.worker_ids}


def is_served(work: Work, serving: Mapping[str, Work | None]) -> bool:
    """Whether the whole group serves it."""
    return all(serving.get(worker_id) == work for worker_id in work.worker_ids)


def reconcile(wanted: Mapping[str, Work], *, serving: Mapping[str, Work | None]) -> list[Action]:
    """What must change on the workers that are there; groups of which one is away are left alone.

    Args:
        wanted: the plan's, by worker id.
        serving: what each live worker serves.
    """
    loads = [
        Action(worker_ids=work.worker_ids, before=_works(work.worker_ids, serving), after=work)
        for work in dict.fromkeys(wanted.values())
        if serving.keys() >= set(work.worker_ids) and not is_served(work, serving)
    ]
    drains = [
        Action(worker_ids=tuple(m for m in work.worker_ids if serving.get(m) == work), before=(work,), after=None)
        for work in _works(serving, serving)
        if wanted.keys().isdisjoint(work.worker_ids)
    ]
    return loads + drains


def startable(
    actions: Sequence[Action],
    *,
    wanted: Mapping[str, Work],
    serving: Mapping[str, Work | None],
    busy: Collection[str],
) -> list[Action]:
    """The actions that may start now; the others wait for those that run.

    Args:
        busy: workers that an action involves which runs.
    """
    idle = [action for action in actions if set(action.involved).isdisjoint(busy)]
    fresh = [action for action in idle if not action.before]
    if fresh or busy:
        return fresh
    replacements = [action for action in idle if action.after is not None]
    if not replacements:
        return [action for action in idle if _can_leave(action, wanted, serving)]
    ready = [action for action in replacements if _can_leave(action, wanted, serving)]
    if not ready and wanted.keys() <= serving.keys():
        ready = replacements  # they trade models, so one must go first
    return ready[:1]


def _can_leave(action: Action, wanted: Mapping[str, Work], serving: Mapping[str, Work | None]) -> bool:
    """Whether each model that ends is not wanted any more, or is served by others, one of which is to serve it."""
    return all(_can_end(work.model, action, wanted, serving) for work in action.before)


def _can_end(model: str, action: Action, wanted: Mapping[str, Work], serving: Mapping[str, Work | None]) -> bool:
    homes = [worker_id for worker_id, work in wanted.items() if work.model == model]
    others = (serving.get(worker_id) for worker_id in homes if worker_id not in action.involved)
    return not homes or any(work is not None and work.model == model and is_served(work, serving) for work in others)


def _works(worker_ids: Collection[str], serving: Mapping[str, Work | None]) -> tuple[Work, ...]:
    """What any of the workers serves, each once."""
    works = (serving[worker_id] for worker_id in worker_ids)
    return tuple(dict.fromkeys(work for work in works if work is not None))


def _work(assignment: Assignment, model: ModelDeployment) -> Work:
    return Work(
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
        parallel=assignment.parallel,
        worker_ids=assignment.worker_ids,
        group_id=assignment.group_id,
    )
