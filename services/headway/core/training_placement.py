"""The stages of a training plan as a placement of pipeline tasks: a stage's mesh is one device of the pipeline."""

from headway.core.errors import FailedPreconditionError
from headway.core.plan.training import TrainingPlan
from headway.core.schedule import Dependency, Placement, Task, TaskKind


def training_placement(plan: TrainingPlan) -> Placement:
    """Times are seconds, memory is the activations that a device keeps of one micro-batch, in bytes.

    Each device has for them what the fullest stage's leaves beside everything else.

    Raises:
        FailedPreconditionError: micro-batches are cut into slices of their tokens.
    """
    if plan.slices:
        raise FailedPreconditionError(
            f"The plan cuts micro-batches into {len(plan.slices)} slices of tokens, and schedules are of whole ones.",
            hint="Plan with `headway plan train --method alpa`.",
        )
    count = len(plan.stages)
    forwards = [
        Task(name=f"F{i}", devices=(i,), time=stage.forward_s, memory=float(_kept(plan, i)))
        for i, stage in enumerate(plan.stages)
    ]
    backwards = [
        Task(
            name=f"B{i}",
            devices=(i,),
            time=plan.stages[i].backward_s,
            memory=float(-_kept(plan, i)),
            kind=TaskKind.BACKWARD,
        )
        for i in reversed(range(count))
    ]
    lags = [stage.handover_s / 2 for stage in plan.stages]
    there = [Dependency(before=i, after=i + 1, lag=lags[i]) for i in range(count - 1)]
    back = [Dependency(before=2 * count - 1 - i, after=2 * count - i, lag=lags[i - 1]) for i in range(count - 1, 0, -1)]
    turn = Dependency(before=count - 1, after=count)
    return Placement(
        name=plan.model,
        num_devices=count,
        tasks=(*forwards, *backwards),
        dependencies=(*there, turn, *back),
        memory=float(min(_room(plan, i) for i in range(count))),
    )


def _kept(plan: TrainingPlan, number: int) -> int:
    stage = plan.stages[number]
    return stage.memory.activations_bytes // max(stage.in_flight, 1)


def _room(plan: TrainingPlan, number: int) -> int:
    stage = plan.stages[number]
    others = stage.memory.total_bytes - stage.memory.activations_bytes
    return plan.cluster.groups[stage.group].memory_bytes - others
