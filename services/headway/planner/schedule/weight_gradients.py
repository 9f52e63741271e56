"""What part of a stage's backward pass computes gradients of weights only: what zero-bubble schedules run later."""

from collections.abc import Sequence
from dataclasses import replace

from headway.core.batching import at_batch
from headway.core.cost.costs import Costs
from headway.core.dataflow import Dataflow
from headway.core.gradients import is_accumulation
from headway.core.graph import Graph
from headway.core.plan.training import OperatorSharding, TrainingPlan, TrainingStage


def with_weight_gradients(plan: TrainingPlan, graph: Graph, costs: Sequence[Costs]) -> TrainingPlan:
    """The plan with the seconds of each stage's gradients of weights, as operators are split in it. Their communication
    counts as part of the other gradients.

    Args:
        graph: of one micro-batch, in the plan's precision.
        costs: of each group of nodes.
    """
    names = weight_operators(graph)
    graphs = {size: at_batch(graph, size) for size in set(map(plan.micro_batch_of, plan.stages))}
    tensors = {size: of_size.tensors_by_name() for size, of_size in graphs.items()}
    operators = {
        size: {operator.name: operator for operator in of_size.operators if operator.name in names}
        for size, of_size in graphs.items()
    }

    def timed(stage: TrainingStage) -> TrainingStage:
        size = plan.micro_batch_of(stage)
        seconds = sum(
            costs[stage.group]
            .time(operators[size][each.operator], tensors[size], _splits(each, stage.mesh.shape))
            .seconds
            for each in stage.shardings
            if each.operator in names
        )
        return replace(stage, weight_gradients_s=min(seconds, stage.backward_s))

    return replace(plan, stages=tuple(map(timed, plan.stages)))


def weight_operators(graph: Graph) -> frozenset[str]:
    """The backward operators that nothing waits for but the gradient of a weight: all that reads their results, at any
    distance, belongs to the same forward operator, or only adds up gradients of one weight."""
    flow = Dataflow(graph)
    found: set[str] = set()
    for at, operator in reversed(list(enumerate(graph.operators))):
        readers = [graph.operators[reader] for reader in flow.successors(at)] if operator.is_backward else []
        if operator.is_backward and all(
            reader.name in found and (reader.forward == operator.forward or is_accumulation(reader))
            for reader in readers
        ):
            found.add(operator.name)
    return frozenset(found)


def _splits(sharding: OperatorSharding, shape: Sequence[int]) -> dict[str, int]:
    """Parts that each loop is split into."""
    splits: dict[str, int] = {}
    for loop, size in zip(sharding.splits, shape, strict=True):
        if loop:
            splits[loop] = splits.get(loop, 1) * size
    return splits
