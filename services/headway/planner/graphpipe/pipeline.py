"""A pipeline whose stages form a graph. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from headway.planner.graphpipe.problem import PipelineProblem
from headway.planner.graphpipe.schedule import ScheduledStage, kfkb, stage_ends
from headway.planner.graphpipe.stage import StageLoad, stage_load


@dataclass(frozen=True, slots=True)
class StageChoice:
    """Operators on so many devices."""

    operators: tuple[int, ...]
    num_devices: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphStage:
    """Attributes:
    operators: in their order.
    micro_batch: samples, over all its devices.
    in_flight: samples whose activations it holds at the same time.
    """

    operators: tuple[int, ...]
    num_devices: int
    micro_batch: int
    in_flight: int


@dataclass(frozen=True, kw_only=True)
class GraphPipeline:
    """Stages and what they take.

    Attributes:
        stages: each behind those that it waits for.
        successors: of each stage those that wait for it: E_S.
    """

    problem: PipelineProblem
    stages: tuple[GraphStage, ...]
    successors: tuple[tuple[int, ...], ...]

    @cached_property
    def loads(self) -> tuple[StageLoad, ...]:
        return tuple(stage_load(self.problem, stage.operators) for stage in self.stages)

    @cached_property
    def time_per_sample(self) -> float:
        """Of the slowest stage: what equation 1 minimises."""
        return max(
            load.time_per_sample(self.problem, micro_batch=stage.micro_batch, num_devices=stage.num_devices)
            for stage, load in zip(self.stages, self.loads, strict=True)
        )

    @cached_property
    def device_bytes(self) -> tuple[float, ...]:
        """What each device of each stage holds."""
        return tuple(
            load.device_bytes(in_flight=stage.in_flight, num_devices=stage.num_devices)
            for stage, load in zip(self.stages, self.loads, strict=True)
        )

    @cached_property
    def iteration_s(self) -> float:
        """Simulated, 1F1B in each stage, until the last gradients are synchronised."""
        passes = [
            load.pass_s(self.problem, micro_batch=stage.micro_batch, num_devices=stage.num_devices)
            for stage, load in zip(self.stages, self.loads, strict=True)
        ]
        scheduled = [
            ScheduledStage(
                micro_batch=stage.micro_batch,
                forward_s=forward_s,
                backward_s=backward_s,
                passes=kfkb(self.problem.batch // stage.micro_batch, warm_up=stage.in_flight // stage.micro_batch),
                successors=successors,
            )
            for stage, (forward_s, backward_s), successors in zip(self.stages, passes, self.successors, strict=True)
        ]
        sync_s = [
            load.sync_s(self.problem, num_devices=stage.num_devices)
            for stage, load in zip(self.stages, self.loads, strict=True)
        ]
        return max(end_s + own_s for end_s, own_s in zip(stage_ends(scheduled), sync_s, strict=True))

    @property
    def depth(self) -> int:
        """Stages on the longest way."""
        return max(depths(self.successors))

    @property
    def num_devices(self) -> int:
        return sum(stage.num_devices for stage in self.stages)


def depths(successors: Sequence[Sequence[int]]) -> list[int]:
    """Of each stage the number of stages on the longest way from it on, itself included."""
    found = [0] * len(successors)
    for stage in reversed(range(len(successors))):
        found[stage] = 1 + max((found[later] for later in successors[stage]), default=0)
    return found


def stage_graph(
    edges: Sequence[tuple[int, int]], stages: Sequence[Sequence[int]]
) -> tuple[list[int], tuple[tuple[int, ...], ...]]:
    """Orders stages so that each comes behind those that it waits for.

    Returns:
        The stages' indices in this order, and of each of them its successors by their places in it.

    Raises:
        ValueError: stages wait for each other in a circle.
    """
    stage_of = {at: number for number, stage in enumerate(stages) for at in stage}
    after = [set[int]() for _ in stages]
    for first, second in edges:
        if stage_of[first] != stage_of[second]:
            after[stage_of[first]].add(stage_of[second])
    waiting = [0] * len(stages)
    for later in after:
        for stage in later:
            waiting[stage] += 1
    order = [stage for stage in sorted(range(len(stages)), key=lambda s: min(stages[s])) if not waiting[stage]]
    for stage in order:
        for later_stage in sorted(after[stage]):
            waiting[later_stage] -= 1
            if not waiting[later_stage]:
                order.append(later_stage)
    if len(order) < len(stages):
        raise ValueError("stages wait for each other in a circle")
    place = {stage: at for at, stage in enumerate(order)}
    return order, tuple(tuple(sorted(place[later] for later in after[stage])) for stage in order)


def make_pipeline(problem: PipelineProblem, choices: Sequence[StageChoice], micro_batch: int) -> GraphPipeline:
    """1F1B: each stage holds as many micro-batches as there are stages from it on."""
    order, successors = stage_graph(problem.edges, [choice.operators for choice in choices])
    return GraphPipeline(
        problem=problem,
        stages=tuple(
            GraphStage(
                operators=choices[number].operators,
                num_devices=choices[number].num_devices,
                micro_batch=micro_batch,
                in_flight=min(depth * micro_batch, problem.batch),
            )
            for number, depth in zip(order, depths(successors), strict=True)
        ),
        successors=successors,
    )


def make_chain(problem: PipelineProblem, choices: Sequence[StageChoice], micro_batch: int) -> GraphPipeline:
    """Stages one after another in the given order, whether they wait for each other or not."""
    last = len(choices) - 1
    return GraphPipeline(
        problem=problem,
        stages=tuple(
            GraphStage(
                operators=choice.operators,
                num_devices=choice.num_devices,
                micro_batch=micro_batch,
                in_flight=min((last + 1 - number) * micro_batch, problem.batch),
            )
            for number, choice in enumerate(choices)
        ),
        successors=tuple(() if number == last else (number + 1,) for number in range(last + 1)),
    )
