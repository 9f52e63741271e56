"""The stages of a training plan as a placement of pipeline tasks: a stage's mesh is one device of the pipeline.

Where stages have micro-batches of several sizes, the placement's micro-batch is the largest of them, and a stage with
smaller ones has a task for each of its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from headway.core.errors import FailedPreconditionError
from headway.core.plan.training import TrainingPlan
from headway.core.schedule import Dependency, Task, TaskKind, TaskPlacement

_KINDS = {"F": TaskKind.FORWARD, "B": TaskKind.BACKWARD, "I": TaskKind.INPUT, "W": TaskKind.WEIGHT}


@dataclass(frozen=True, slots=True)
class StageTask:
    """A pass of a stage.

    Attributes:
        letter: F and B; I and W where gradients of inputs and of weights are apart.
        part: which of the stage's micro-batches within one of the plan's.
    """

    letter: str
    stage: int
    part: int = 0


def training_placement(plan: TrainingPlan, *, splits_backward: bool = False) -> TaskPlacement:
    """Times are seconds, memory is the activations that a device keeps of one micro-batch, in bytes.

    Each stage has for them what it leaves beside everything else. A backward pass waits for those of all successors;
    communication takes half of the handover either way. Tasks are those of `stage_tasks`.

    Args:
        splits_backward: whether gradients of weights are tasks of their own; they free the memory then.

    Raises:
        FailedPreconditionError: a stage has nothing to split, or micro-batches are cut into slices of their tokens.
    """
    if plan.slices:
        raise FailedPreconditionError(
            f"The plan cuts micro-batches into {len(plan.slices)} slices of tokens, and schedules are of whole ones.",
            hint="Plan with `headway plan train --method alpa`.",
        )
    tasks = stage_tasks(plan, splits_backward=splits_backward)
    place = {task: at for at, task in enumerate(tasks)}
    return TaskPlacement(
        name=plan.model,
        num_devices=len(plan.stages),
        tasks=tuple(_task(plan, task) for task in tasks),
        dependencies=tuple(
            Dependency(before=place[before], after=place[after], lag=lag_s)
            for before, after, lag_s in _waits(plan, tasks)
        ),
        memory=tuple(_room(plan, i) for i in range(len(plan.stages))),
    )


def stage_tasks(plan: TrainingPlan, *, splits_backward: bool = False) -> list[StageTask]:
    """Forward passes, backward passes from the last stage on, and last the gradients of weights."""
    there = range(len(plan.stages))
    back = there[::-1]
    order = [("F", there), *([("I", back), ("W", back)] if splits_backward else [("B", back)])]
    return [
        StageTask(letter, stage, part) for letter, stages in order for stage in stages for part in _parts(plan, stage)
    ]


def kept_bytes(plan: TrainingPlan, number: int) -> float:
    """What a device of a stage keeps of one micro-batch."""
    stage = plan.stages[number]
    return stage.memory.activations_bytes / max(stage.in_flight, 1)


def _parts(plan: TrainingPlan, number: int) -> range:
    """A stage's micro-batches within one of the plan's."""
    return range(plan.micro_batch // plan.micro_batch_of(plan.stages[number]))


def _waits(plan: TrainingPlan, tasks: list[StageTask]) -> Iterator[tuple[StageTask, StageTask, float]]:
    """What waits for what, and the seconds of communication between them."""
    backward = "I" if any(task.letter == "I" for task in tasks) else "B"
    for i, later in enumerate(plan.successors):
        lag_s = plan.stages[i].handover_s / 2
        for part in _parts(plan, i):
            for j in later:
                for theirs in _overlapping(plan, i, part, j):
                    yield StageTask("F", i, part), StageTask("F", j, theirs), lag_s
                    yield StageTask(backward, j, theirs), StageTask(backward, i, part), lag_s
            if not later:
                yield StageTask("F", i, part), StageTask(backward, i, part), 0.0
    for task in tasks:
        if task.letter == "W":
            yield StageTask("I", task.stage, task.part), task, 0.0


def _overlapping(plan: TrainingPlan, stage: int, part: int, other: int) -> range:
    """The micro-batches of another stage that have examples of one of a stage's."""
    own, theirs = (plan.micro_batch_of(plan.stages[number]) for number in (stage, other))
    return range(part * own // theirs, -(-(part + 1) * own // theirs))


def _task(plan: TrainingPlan, task: StageTask) -> Task:
    number, kept = task.stage, kept_bytes(plan, task.stage)
    memory = {"F": kept, "I": 0.0}.get(task.letter, 0.0 - kept)
    name = f"{task.letter}{number}"
    return Task(
        name=f"{name}.{task.part}" if len(_parts(plan, number)) > 1 else name,
        devices=(number,),
        time=_seconds(plan, task),
        memory=memory,
        kind=_KINDS[task.letter],
    )


def _seconds(plan: TrainingPlan, task: StageTask) -> float:
    stage = plan.stages[task.stage]
    if task.letter in "FB":
        return stage.forward_s if task.letter == "F" else stage.backward_s
    if not 0 < stage.weight_gradients_s < stage.backward_s:
        raise FailedPreconditionError(
            f"Stage {task.stage} has no gradients of weights that could be computed apart.",
            hint="Take a schedule that leaves the backward pass whole, such as 1f1b.",
            field="schedule",
        )
    return stage.weight_gradients_s if task.letter == "W" else stage.backward_s - stage.weight_gradients_s


def _room(plan: TrainingPlan, number: int) -> float:
    """What a device of a stage has for activations."""
    stage = plan.stages[number]
    others = stage.memory.total_bytes - stage.memory.activations_bytes
    return float(max(plan.cluster.groups[stage.group].memory_bytes - others, 0))
