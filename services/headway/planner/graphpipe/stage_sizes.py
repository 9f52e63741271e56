"""Micro-batches of other sizes in some stages of a graph of stages (GraphPipe, section 6; thesis section 3.6). Pure.

A stage with a large micro-batch computes its samples faster, and lets its neighbours wait and hold more. Stages and
their devices stay; sizes change one stage, or one and a neighbour of it, at a time, as long as the simulated iteration
gets shorter.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from headway.planner.graphpipe.in_flight import shortest_warm_up
from headway.planner.graphpipe.pipeline import GraphPipeline, GraphStage
from headway.planner.graphpipe.schedule import ScheduledStage, in_front, kfkb

_GAIN = 1 - 1e-6


def with_stage_sizes(pipeline: GraphPipeline) -> GraphPipeline:
    """The pipeline with the sizes that no single change makes faster; the same one where its own are."""
    best, tried = pipeline, {_sizes(pipeline)}
    is_better = True
    while is_better:
        is_better = False
        for sizes in _neighbours(best):
            if sizes in tried:
                continue
            tried.add(sizes)
            found = at_sizes(pipeline, sizes)
            if found is not None and found.iteration_s < best.iteration_s * _GAIN:
                best, is_better = found, True
                break
    return best


def at_sizes(pipeline: GraphPipeline, sizes: Sequence[int]) -> GraphPipeline | None:
    """The pipeline with a size of micro-batches for each stage, which holds as few of them as lets it end as early as
    it can; None where it does not fit, or a device would have no whole number of samples.
    """
    problem = pipeline.problem
    behind: list[ScheduledStage] = []
    stages: list[GraphStage] = []
    for number in reversed(range(len(sizes))):
        stage, load, size = pipeline.stages[number], pipeline.loads[number], sizes[number]
        forward_s, backward_s = load.pass_s(problem, micro_batch=size, num_devices=stage.num_devices)
        if not np.isfinite(forward_s):
            return None
        scheduled = ScheduledStage(
            micro_batch=size,
            forward_s=forward_s,
            backward_s=backward_s,
            passes=(),
            successors=tuple(each - number - 1 for each in pipeline.successors[number]),
        )
        warm_up = shortest_warm_up(scheduled, behind, batch=problem.batch)
        if load.device_bytes(in_flight=warm_up * size, num_devices=stage.num_devices) > problem.memory_bytes:
            return None
        behind = in_front(replace(scheduled, passes=kfkb(problem.batch // size, warm_up=warm_up)), behind)
        stages.insert(0, replace(stage, micro_batch=size, in_flight=warm_up * size))
    return replace(pipeline, stages=tuple(stages))


def _sizes(pipeline: GraphPipeline) -> tuple[int, ...]:
    return tuple(stage.micro_batch for stage in pipeline.stages)


def _neighbours(pipeline: GraphPipeline) -> Iterator[tuple[int, ...]]:
    """Twice or half of the size in one stage, or in one and a successor of it."""
    own, allowed = _sizes(pipeline), set(pipeline.problem.micro_batches())
    groups = [(number,) for number in range(len(own))]
    pairs = [(number, later) for number, others in enumerate(pipeline.successors) for later in others]
    for group in (*groups, *pairs):
        for double in (True, False):
            sizes = tuple(
                (size * 2 if double else size // 2) if number in group else size for number, size in enumerate(own)
            )
            if set(sizes) <= allowed:
                yield sizes
