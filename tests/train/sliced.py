"""Pipelines whose micro-batches are cut into slices of their tokens."""

import copy
from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor, nn

from headway.core.execution.compiler import compile_execution
from headway.core.execution.execution import Execution, StageSpec
from headway.core.execution.mixed import in_bfloat16, with_casts
from headway.core.execution.orders import stage_orders
from headway.core.execution.slices import SlicedStep, slice_step
from headway.core.program import Program
from headway.profiler.capture.program import build_program
from headway.profiler.capture.tokens import first_tokens
from headway.profiler.capture.trace import trace
from tests.train.models import gpt_stage, inputs
from tests.train.runs import BATCH, Captured, stages_of

COUNT = 2


def program_of(model: nn.Module, given: Sequence[Tensor], targets: Tensor | None = None) -> Program:
    return build_program(trace(copy.deepcopy(model), given, train=True, targets=targets, report=lambda _: None))


def sliced_step(
    model: nn.Module, given: Sequence[Tensor], slices: Sequence[int], targets: Tensor | None, *, is_mixed: bool = False
) -> SlicedStep:
    """Args:
    is_mixed: whether it computes in bfloat16.
    """
    shorter = {count: program_of(model, *first_tokens((tuple(given), targets), count)) for count in set(slices)}
    whole = program_of(model, given, targets)
    if is_mixed:
        whole, shorter = in_bfloat16(whole), {count: in_bfloat16(each) for count, each in shorter.items()}
    return slice_step(whole, shorter, slices)


def pipeline(
    step: Captured,
    ranks: Sequence[tuple[int, ...]],
    slices: Sequence[int],
    *,
    method: str,
    is_mixed: bool = False,
    zero: int = 0,
    **options: bool,
) -> tuple[Captured, Execution]:
    """Stages of micro-batches of two examples a rank, all in slices."""
    plan = stages_of(
        step.graph, lambda m: gpt_stage(m, len(ranks)), ranks, [COUNT * len(each) for each in ranks], **options
    )
    plan = [replace(stage, zero=zero) for stage in plan]
    if is_mixed:
        plan = list(with_casts(plan, in_bfloat16(step.programs[COUNT])))
    return sliced_execution(step, [plan] * len(slices), slices, method=method, is_mixed=is_mixed)


def sliced_execution(
    step: Captured,
    stages: Sequence[Sequence[StageSpec]],
    slices: Sequence[int],
    *,
    method: str,
    is_mixed: bool = False,
) -> tuple[Captured, Execution]:
    """Args:
    stages: of each slice those of the plan, a chain.
    """
    sliced = sliced_step(step.model, tuple(inputs(step.model, COUNT).values()), slices, None, is_mixed=is_mixed)
    successors = [(number + 1,) for number in range(len(stages[0]) - 1)] + [()]
    execution = compile_execution(
        {COUNT: sliced.program},
        sliced.stages(stages),
        stage_orders(method, stages[0], successors, batch=BATCH, num_slices=len(slices)),
        batch=BATCH,
        splits=False,
        slices=slices,
        sums_losses=sliced.sums_losses,
    )
    return replace(step, programs={COUNT: sliced.program}), execution
