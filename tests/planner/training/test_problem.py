"""Questions that a search does not take: no step, no order, no division, and costs that are no numbers."""

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest

from headway.core.catalogue.roofline import OperatorTime
from headway.core.cost.costs import Costs
from headway.core.cost.sharded import WHOLE, Splits
from headway.core.errors import InvalidArgumentError
from headway.core.graph import Graph, Operator, TensorSpec
from headway.planner.training.alpa import AlpaSearch
from tests.planner.training.steps import V100, mlp, problem_of


class BrokenCosts:
    """Costs whose times of products on several devices are no durations."""

    name = "broken"

    def __init__(self, seconds: float, *, only_split: bool) -> None:
        self._seconds, self._only_split = seconds, only_split

    def times(self, graph: Graph) -> list[OperatorTime]:
        tensors = graph.tensors_by_name()
        return [self.time(operator, tensors) for operator in graph.operators]

    def time(self, operator: Operator, tensors: Mapping[str, TensorSpec], splits: Splits = WHOLE) -> OperatorTime:
        found = V100.time(operator, tensors, splits)
        is_broken = "mm" in operator.name and (splits or not self._only_split)
        return replace(found, seconds=self._seconds) if is_broken else found


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0])
@pytest.mark.parametrize("only_split", [False, True])
def test_a_cost_that_is_no_duration_is_told_with_its_operator(seconds: float, *, only_split: bool) -> None:
    costs: list[Costs] = [BrokenCosts(seconds, only_split=only_split)]
    problem = problem_of()
    with pytest.raises(InvalidArgumentError, match=r"mm\S* \(aten\.\S+\) takes \S+ s on broken"):
        AlpaSearch(problem, costs).with_micro_batches(4)


def test_a_cycle_is_told_with_the_operators_that_it_goes_through() -> None:
    graph = mlp()
    first, second, *rest = graph.operators
    cycle = replace(graph, operators=(replace(first, inputs=(*first.inputs, *second.outputs)), second, *rest))
    with pytest.raises(
        InvalidArgumentError, match=rf"{first.name} reads {second.outputs[0]}, which {second.name} makes"
    ) as caught:
        problem_of(graph=cycle)
    assert caught.value.field == "graph"


def test_an_operator_that_reads_what_it_makes_is_a_cycle() -> None:
    graph = mlp()
    first, *rest = graph.operators
    cycle = replace(graph, operators=(replace(first, inputs=(*first.inputs, *first.outputs)), *rest))
    with pytest.raises(InvalidArgumentError, match=f"{first.name} reads"):
        problem_of(graph=cycle)


def test_micro_batches_have_to_divide_the_batch() -> None:
    with pytest.raises(InvalidArgumentError, match="does not divide into 3 micro-batches"):
        problem_of(micro_batches=(3,))


def test_a_forward_pass_alone_is_no_step() -> None:
    with pytest.raises(InvalidArgumentError, match="no training step"):
        problem_of(graph=replace(mlp(), is_training=False))
