"""The order in which ranks run the parts of their stages. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from headway.core.errors import InvalidArgumentError
from headway.core.execution.execution import ActionKind, StageSpec
from headway.core.plan.training import longest_ways
from headway.core.schedule import Schedule, TaskKind, TaskPlacement

METHODS = ("1f1b", "gpipe")
"""Orders that follow from the stages alone."""


@dataclass(frozen=True, slots=True)
class StageTask:
    """One stage's work of one kind on one of its micro-batches."""

    stage: int
    kind: ActionKind
    micro_batch: int


Order = tuple[StageTask, ...]


def stage_orders(
    method: str,
    stages: Sequence[StageSpec],
    successors: Sequence[Sequence[int]],
    *,
    batch: int,
    splits: bool = False,
    num_slices: int = 1,
) -> list[Order]:
    """What each stage runs by itself, in order; stages form a graph and may have micro-batches of their own sizes.

    'gpipe' runs all forward passes first. '1f1b' (GraphPipe section 6) starts with as many as there are stages from
    this one on, counted in examples where sizes differ; then each backward pass frees one forward pass.

    Where micro-batches are cut into slices, these are what is counted: a micro-batch's run forward in order and
    backward in reverse.

    Args:
        stages: of the plan.
        splits: whether gradients of weights are apart; they come right after those of inputs.
        num_slices: of a micro-batch; slice j of stage i is stage i x `num_slices` + j in the orders.
    """
    ahead = longest_ways(successors, [float(stage.micro_batch) for stage in stages])
    orders = []
    for number, stage in enumerate(stages):
        count = batch // stage.micro_batch
        units = [(number * num_slices + at, m) for m in range(count) for at in range(num_slices)]
        back = [(number * num_slices + at, m) for m in range(count) for at in reversed(range(num_slices))]
        least = num_slices - 1 + max(1, -(-int(ahead[number]) // stage.micro_batch))
        warm_up = len(units) if method == "gpipe" else min(len(units), least)
        kinds = (ActionKind.INPUT, ActionKind.WEIGHT) if splits else (ActionKind.BACKWARD,)
        order = [StageTask(at, ActionKind.FORWARD, m) for at, m in units[:warm_up]]
        for place, (at, m) in enumerate(back):
            order += [StageTask(at, kind, m) for kind in kinds]
            order += [StageTask(at, ActionKind.FORWARD, m) for at, m in units[warm_up + place : warm_up + place + 1]]
        orders.append(tuple(order))
    return orders


def scheduled_orders(schedule: Schedule) -> list[Order]:
    """What each device of a schedule runs, in order. Stages are the placement's forward tasks, numbered as these come;
    they form any graph, and may be on several devices.

    Raises:
        InvalidArgumentError: there are no backward tasks, or one that mirrors no forward task.
    """
    if not schedule.placement.is_training:
        raise InvalidArgumentError("A schedule without backward tasks trains nothing.", field="schedule")
    stages = _task_stages(schedule.placement)
    kinds = [ActionKind(task.kind.value) for task in schedule.placement.tasks]
    return [
        tuple(StageTask(stages[run.task], kinds[run.task], run.micro_batch) for run in runs)
        for runs in schedule.runs_by_device
    ]


def _task_stages(placement: TaskPlacement) -> dict[int, int]:
    """The stage of each task: the gradients' graph is that of the forward tasks turned around."""
    kinds = [task.kind for task in placement.tasks]
    forwards = [at for at, kind in enumerate(kinds) if kind is TaskKind.FORWARD]
    found = {at: number for number, at in enumerate(forwards)}
    before: dict[int, list[int]] = {at: [] for at in range(len(kinds))}
    users: dict[int, set[int]] = {at: set() for at in forwards}
    for each in placement.dependencies:
        before[each.after].append(each.before)
        if each.before in users and each.after in users:
            users[each.before].add(found[each.after])
    left = [at for at, kind in enumerate(kinds) if kind is not TaskKind.FORWARD]
    while left:
        at = next(at for at in left if all(each in found for each in before[at]))
        left.remove(at)
        behind = {found[each] for each in before[at] if kinds[each] is not TaskKind.FORWARD}
        if kinds[at] is TaskKind.WEIGHT and len(behind) == 1:
            found[at] = behind.pop()
            continue
        mirrored = (
            each
            for each in forwards
            if users[each] == behind
            and placement.tasks[each].devices == placement.tasks[at].devices
            and (behind or each in before[at])
        )
        own = next(mirrored, None)
        if own is None:
            raise InvalidArgumentError(
                f"{placement.name}: the backward task {placement.tasks[at].name} mirrors no forward task.",
                hint="Let it be on a forward task's devices and need the gradients of what needs that one.",
                field="placement",
            )
        found[at] = found[own]
        forwards.remove(own)
    return found
