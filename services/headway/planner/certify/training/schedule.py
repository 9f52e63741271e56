"""Checks the micro-batches in flight and the predicted times."""

import math
from collections.abc import Iterator

from headway.core.plan.training import TrainingPlan, TrainingStage

_ROUNDING = 1e-6


def schedule_violations(plan: TrainingPlan) -> Iterator[str]:
    for number, stage in enumerate(plan.stages):
        yield from (f"Stage {number}: {fault}" for fault in _flight_faults(plan, number))
        yield from (f"Stage {number}: {fault}" for fault in _time_faults(stage))
    last = len(plan.stages) - 1
    if plan.stages[last].handover_s != 0:
        yield f"Stage {last} is the last one, and hands over in {plan.stages[last].handover_s} s."
    yield from _iteration_violations(plan)


def _flight_faults(plan: TrainingPlan, number: int) -> Iterator[str]:
    """1F1B: a stage has begun as many micro-batches as there are stages from it on, or all, when the first returns."""
    in_flight, after = plan.stages[number].in_flight, len(plan.stages) - number
    needed = min(after, plan.num_micro_batches)
    if in_flight < needed:
        yield f"{in_flight} micro-batches are in flight, and 1F1B needs {needed}."
    elif in_flight > max(plan.num_micro_batches, 1):
        yield f"{in_flight} micro-batches are in flight, and there are {plan.num_micro_batches}."


def _time_faults(stage: TrainingStage) -> Iterator[str]:
    for field, may_be_zero in (("forward_s", False), ("backward_s", False), ("handover_s", True), ("once_s", True)):
        seconds = getattr(stage, field)
        if not math.isfinite(seconds) or seconds < 0 or (seconds == 0 and not may_be_zero):
            yield f"{field} is {seconds}."


def _iteration_violations(plan: TrainingPlan) -> Iterator[str]:
    """Equation 3.2: one micro-batch's way through all stages, and the slowest stage for every other one."""
    if not (math.isfinite(plan.iteration_s) and plan.iteration_s > 0):
        yield f"The iteration takes {plan.iteration_s} s."
        return
    latencies = [stage.forward_s + stage.backward_s + stage.handover_s for stage in plan.stages]
    least_s = sum(latencies) + (plan.num_micro_batches - 1) * max(latencies)
    least_s += max(stage.once_s for stage in plan.stages)
    if plan.iteration_s < least_s * (1 - _ROUNDING):
        slowest = latencies.index(max(latencies))
        yield (
            f"The iteration takes {plan.iteration_s:.6g} s, and by equation 3.2 it takes {least_s:.6g} s at least: "
            f"stage {slowest} is the slowest with {latencies[slowest]:.6g} s for each micro-batch."
        )
