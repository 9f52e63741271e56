"""Checks plans whose micro-batches are cut into slices of their tokens: that it may be, what is in flight, and sums."""

import math
from collections import deque
from collections.abc import Iterator, Sequence

from headway.core.graph import OperatorKind, TensorRole
from headway.core.plan.training import TrainingPlan, TrainingStage
from headway.planner.certify.training.step import PlannedStep

_ROUNDING = 1e-6


def slice_violations(step: PlannedStep) -> Iterator[str]:
    """Checks slices against the model: they are whole sequences, and no token reads later ones."""
    plan = step.plan
    if not plan.slices:
        yield from (
            f"Stage {i} has slices, and the plan has none." for i, each in enumerate(plan.stages) if each.slices
        )
        return
    lengths = {each.shape[1] for each in step.graph.tensors if each.role is TensorRole.INPUT and len(each.shape) > 1}
    if min(plan.slices) < 1 or sum(plan.slices) not in lengths:
        yield f"The slices are {_text(plan.slices)} tokens, and sequences have {_text(sorted(lengths)) or 'none'}."
    for operator in step.graph.operators:
        if operator.kind is OperatorKind.ATTENTION and operator.attributes.get("is_causal") != "True":
            yield f"Micro-batches are cut along their tokens, and those of '{operator.name}' read later ones."
            return
    for number, stage in enumerate(plan.stages):
        yield from (f"Stage {number}: {fault}" for fault in _stage_faults(plan, stage))


def held_micro_batches(plan: TrainingPlan, after: int) -> int:
    """Micro-batches whose tokens a stage keeps at most under 1F1B of slices: it is ahead of what has come back by one
    slice for each of the stages behind it, and a whole micro-batch.
    """
    tokens, most = plan.slices, 0
    begun: deque[list[int]] = deque()
    for _ in range(min(plan.num_micro_batches, after + 4)):
        begun.append([])
        for size in tokens:
            begun[-1].append(size)
            most = max(most, sum(map(sum, begun)))
            if sum(map(len, begun)) == after + len(tokens):
                begun[0].pop()  # the last slice comes back first
                if not begun[0]:
                    begun.popleft()
    return math.ceil(most / sum(tokens))


def least_pipeline_s(plan: TrainingPlan) -> float:
    """Equation 2.5: all slices of all micro-batches on the slowest stage, and the slowest slice on each other one."""
    sums = [sum(_seconds(stage)) for stage in plan.stages]
    slowest = sums.index(max(sums))
    others = (max(_seconds(stage)) for number, stage in enumerate(plan.stages) if number != slowest)
    return plan.num_micro_batches * sums[slowest] + sum(others)


def _stage_faults(plan: TrainingPlan, stage: TrainingStage) -> Iterator[str]:
    if len(stage.slices) != len(plan.slices):
        yield f"it has times for {len(stage.slices)} slices, and micro-batches have {len(plan.slices)}."
        return
    for field in ("forward_s", "backward_s", "handover_s"):
        parts = [getattr(each, field) for each in stage.slices]
        if any(not math.isfinite(part) or part < 0 for part in parts):
            yield f"a slice's {field} is {next(part for part in parts if not math.isfinite(part) or part < 0)}."
        elif not math.isclose(sum(parts), getattr(stage, field), rel_tol=_ROUNDING, abs_tol=1e-12):
            yield f"{field} is {getattr(stage, field):.6g}, and its slices sum up to {sum(parts):.6g}."


def _seconds(stage: TrainingStage) -> list[float]:
    return [each.forward_s + each.backward_s + each.handover_s for each in stage.slices]


def _text(tokens: Sequence[int]) -> str:
    return ", ".join(map(str, tokens))
