"""Checks the micro-batches in flight and the predicted times."""

import math
from collections.abc import Iterator

from headway.core.plan.training import TrainingPlan, TrainingStage
from headway.planner.certify.training.slices import held_micro_batches, least_pipeline_s
from headway.planner.certify.training.task_orders import own_size_violations, task_order_violations

_ROUNDING = 1e-6


def schedule_violations(plan: TrainingPlan) -> Iterator[str]:
    """For plans whose stages wait for later ones only; see `graph_violations`."""
    for number, stage in enumerate(plan.stages):
        if plan.schedule is None and not plan.has_own_sizes:
            yield from (f"Stage {number}: {fault}" for fault in _flight_faults(plan, number))
        yield from (f"Stage {number}: {fault}" for fault in _time_faults(stage))
    for number, stage in enumerate(plan.stages):
        if not plan.successors[number] and stage.handover_s != 0:
            yield f"Stage {number} is the last one, and hands over in {stage.handover_s} s."
    yield from _iteration_violations(plan)
    yield from task_order_violations(plan)
    yield from own_size_violations(plan)


def graph_violations(plan: TrainingPlan) -> Iterator[str]:
    """Stages wait for earlier ones only, so that none waits for itself."""
    for number, later in enumerate(plan.successors):
        for other in later:
            if not number < other < len(plan.stages):
                yield f"Stage {other} waits for stage {number}, and is none of the {len(plan.stages)} stages behind it."


def _flight_faults(plan: TrainingPlan, number: int) -> Iterator[str]:
    """1F1B: a stage has begun as many micro-batches as there are stages on the longest way from it on, or all, when
    the first returns."""
    in_flight, after = plan.stages[number].in_flight, _num_after(plan, number)
    needed = held_micro_batches(plan, after - 1) if plan.slices else min(after, plan.num_micro_batches)
    if in_flight < needed:
        yield f"{in_flight} micro-batches are in flight, and 1F1B needs {needed}."
    elif in_flight > max(plan.num_micro_batches, 1):
        yield f"{in_flight} micro-batches are in flight, and there are {plan.num_micro_batches}."


def _num_after(plan: TrainingPlan, number: int) -> int:
    return 1 + max((_num_after(plan, later) for later in plan.successors[number]), default=0)


def _way_s(plan: TrainingPlan, number: int) -> float:
    stage = plan.stages[number]
    own_s = stage.forward_s + stage.backward_s + stage.handover_s
    return own_s + max((_way_s(plan, later) for later in plan.successors[number]), default=0.0)


def _time_faults(stage: TrainingStage) -> Iterator[str]:
    for field in ("forward_s", "backward_s", "weight_gradients_s", "handover_s", "once_s"):
        seconds = getattr(stage, field)
        if not math.isfinite(seconds) or seconds < 0 or (seconds == 0 and field in ("forward_s", "backward_s")):
            yield f"{field} is {seconds}."
    if stage.weight_gradients_s > stage.backward_s:
        yield f"gradients of weights take {stage.weight_gradients_s} s of a backward pass of {stage.backward_s} s."


def _iteration_violations(plan: TrainingPlan) -> Iterator[str]:
    """Equation 3.2: one micro-batch's longest way through the stages, and the slowest stage for every other one; of
    slices equation 2.5."""
    if not (math.isfinite(plan.iteration_s) and plan.iteration_s > 0):
        yield f"The iteration takes {plan.iteration_s} s."
        return
    latencies = [stage.forward_s + stage.backward_s + stage.handover_s for stage in plan.stages]
    if plan.has_own_sizes:
        least_s, rule = _least_of_sizes_s(plan), "the work of its stages"
    elif plan.slices:
        least_s, rule = least_pipeline_s(plan), "equation 2.5"
    else:
        least_s, rule = max(_way_s(plan, number) for number in range(len(plan.stages))), "equation 3.2"
        least_s += (plan.num_micro_batches - 1) * max(latencies)
    least_s += max(stage.once_s for stage in plan.stages)
    if plan.iteration_s < least_s * (1 - _ROUNDING):
        slowest = latencies.index(max(latencies))
        yield (
            f"The iteration takes {plan.iteration_s:.6g} s, and by {rule} it takes {least_s:.6g} s at least: "
            f"stage {slowest} is the slowest with {latencies[slowest]:.6g} s for each micro-batch."
        )


def _least_of_sizes_s(plan: TrainingPlan) -> float:
    """The longest way of an example through the stages, or all micro-batches of one stage."""
    ways = [_way_s(plan, number) for number in range(len(plan.stages))]
    busy = [plan.num_passes(stage) * (stage.forward_s + stage.backward_s + stage.handover_s) for stage in plan.stages]
    return max(*ways, *busy)
