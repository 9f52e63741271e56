"""From the plan and the workers as they are to what must be done, and in which order. Pure.

Order keeps models served: workers that serve nothing are loaded first, all at once; then workers that change are
reloaded one by one, those first whose model is served elsewhere; only then workers that are not needed are drained.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from headway.core.plan import ServingPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a worker is told to load; the fields are those of `LoadModelRequest`."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A worker is to go from one work to another; None is no work."""

    worker_id: str
    before: Work | None
    after: Work | None

    def __str__(self) -> str:
        if self.after is None:
            return f"{self.worker_id}: drain {self.before.model if self.before else ''}"
        blocks = f"{self.after.num_blocks} blocks"
        if self.before is None:
            return f"{self.worker_id}: load {self.after.model} ({blocks})"
        if self.before.model == self.after.model:
            return f"{self.worker_id}: reload {self.after.model} ({blocks}, before {self.before.num_blocks})"
        return f"{self.worker_id}: drain {self.before.model}, load {self.after.model} ({blocks})"


def work_of(plan: ServingPlan) -> dict[str, Work]:
    """Each worker's work; predictions are no part of it."""
    models = {model.name: model for model in plan.models}
    return {
        assignment.worker_id: Work(
            model=assignment.model,
            directory=models[assignment.model].directory,
            dtype=models[assignment.model].spec.dtype,
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
            quantization=models[assignment.model].spec.quantization or "",
        )
        for assignment in plan.assignments
    }


def reconcile(wanted: Mapping[str, Work], *, serving: Mapping[str, Work | None]) -> list[Action]:
    """What must change on the workers that are there.

    Args:
        wanted: the plan's, by worker id.
        serving: what each live worker serves.
    """
    return [
        Action(worker_id=worker_id, before=before, after=wanted.get(worker_id))
        for worker_id, before in serving.items()
        if before != wanted.get(worker_id)
    ]


def startable(
    actions: Sequence[Action],
    *,
    wanted: Mapping[str, Work],
    serving: Mapping[str, Work | None],
    busy: Collection[str],
) -> list[Action]:
    """The actions that may start now; the others wait for those that run.

    Args:
        busy: workers on which an action runs.
    """
    idle = [action for action in actions if action.worker_id not in busy]
    fresh = [action for action in idle if action.before is None]
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
    """Whether the model that the worker serves is not wanted any more, or is served by another that is to serve it."""
    assert action.before is not None
    model = action.before.model
    homes = [worker_id for worker_id, work in wanted.items() if work.model == model]
    if not homes:
        return True
    others = (serving.get(worker_id) for worker_id in homes if worker_id != action.worker_id)
    return any(work is not None and work.model == model for work in others)
