"""The stages of a training plan as a placement of pipeline tasks: a stage's mesh is one device of the pipeline."""

from headway.core.errors import FailedPreconditionError
from headway.core.plan.training import TrainingPlan
from headway.core.schedule import Dependency, Placement, Task, TaskKind


def training_placement(plan: TrainingPlan, *, splits_backward: bool = False) -> Placement:
    """Times are seconds, memory is the activations that a device keeps of one micro-batch, in bytes.

    Each stage has for them what it leaves beside everything else. A backward pass waits for those of all successors;
    communication takes half of the handover either way.

    Args:
        splits_backward: whether gradients of weights are tasks of their own; they free the memory then.

    Raises:
        FailedPreconditionError: a stage has nothing to split., or micro-batches are cut into slices of their tokens.
    """
    if plan.slices:
        raise FailedPreconditionError(
            f"The plan cuts micro-batches into {len(plan.slices)} slices of tokens, and schedules are of whole ones.",
            hint="Plan with `headway plan train --method alpa`.",
        )
    count = len(plan.stages)
    back = {stage: count + place for place, stage in enumerate(reversed(range(count)))}
    tasks = [
        Task(name=f"F{i}", devices=(i,), time=stage.forward_s, memory=kept_bytes(plan, i))
        for i, stage in enumerate(plan.stages)
    ]
    tasks += [_gradient(plan, i, splits_backward=splits_backward) for i in reversed(range(count))]
    dependencies = []
    for i, later in enumerate(plan.successors):
        lag = plan.stages[i].handover_s / 2
        dependencies += [Dependency(before=i, after=j, lag=lag) for j in later]
        dependencies += [Dependency(before=back[j], after=back[i], lag=lag) for j in later]
        dependencies += [] if later else [Dependency(before=i, after=back[i])]
    for i in reversed(range(count)) if splits_backward else ():
        dependencies.append(Dependency(before=back[i], after=len(tasks)))
        tasks.append(_weights(plan, i))
    return Placement(
        name=plan.model,
        num_devices=count,
        tasks=tuple(tasks),
        dependencies=tuple(dependencies),
        memory=tuple(_room(plan, i) for i in range(count)),
    )


def kept_bytes(plan: TrainingPlan, number: int) -> float:
    """What a device of a stage keeps of one micro-batch."""
    stage = plan.stages[number]
    return stage.memory.activations_bytes / max(stage.in_flight, 1)


def _gradient(plan: TrainingPlan, number: int, *, splits_backward: bool) -> Task:
    stage = plan.stages[number]
    if not splits_backward:
        kept = kept_bytes(plan, number)
        return Task(
            name=f"B{number}", devices=(number,), time=stage.backward_s, memory=0.0 - kept, kind=TaskKind.BACKWARD
        )
    if not 0 < stage.weight_gradients_s < stage.backward_s:
        raise FailedPreconditionError(
            f"Stage {number} has no gradients of weights that could be computed apart.",
            hint="Take a schedule that leaves the backward pass whole, such as 1f1b.",
            field="schedule",
        )
    time = stage.backward_s - stage.weight_gradients_s
    return Task(name=f"I{number}", devices=(number,), time=time, kind=TaskKind.INPUT)


def _weights(plan: TrainingPlan, number: int) -> Task:
    time, kept = plan.stages[number].weight_gradients_s, kept_bytes(plan, number)
    return Task(name=f"W{number}", devices=(number,), time=time, memory=0.0 - kept, kind=TaskKind.WEIGHT)


def _room(plan: TrainingPlan, number: int) -> float:
    """What a device of a stage has for activations."""
    stage = plan.stages[number]
    others = stage.memory.total_bytes - stage.memory.activations_bytes
    return float(max(plan.cluster.groups[stage.group].memory_bytes - others, 0))
