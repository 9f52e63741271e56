"""Captured graphs at another batch, against graphs that were captured with it."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from headway.core.batching import at_batch
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.graph import Graph, TensorRole
from tests.profiler.capture.modules import CASES, graph_of
from tests.profiler.capture.test_unknown import Mysterious
from tests.profiler.capture.zoo import FAMILIES, captured


def comparable(graph: Graph) -> Graph:
    """Without the operators' attributes: a view's or a constant's sizes stay in them as they were captured."""
    return replace(graph, operators=tuple(replace(operator, attributes={}) for operator in graph.operators))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_training_step_grows_as_it_would_be_captured(name: str) -> None:
    assert comparable(at_batch(captured(name), 6)) == comparable(captured(name, batch=6))


@pytest.mark.parametrize("name", ["qwen3-30b-a3b-small", "tessel-mt5-1.8b-small"])
def test_a_forward_pass_grows_as_it_would_be_captured(name: str) -> None:
    smaller, larger = captured(name, train=False), captured(name, batch=6, train=False)
    assert comparable(at_batch(smaller, 6)) == comparable(larger)
    assert comparable(at_batch(larger, 2)) == comparable(smaller)


def test_sizes_that_do_not_divide_are_rounded_up() -> None:
    grown = at_batch(captured("qwen3-30b-a3b-small", batch=6), 5)
    assert {tensor.shape[:1] for tensor in grown.tensors if tensor.role is TensorRole.INPUT} == {(5,)}
    (capacity,) = {operator.space.dims[1].size for operator in grown.operators if operator.name == "bmm"}  # type: ignore[union-attr]
    assert capacity == -(-48 * 5 // 6)


def test_an_operator_without_loops_grows_as_what_it_reads() -> None:
    small, large = (graph_of(Mysterious(), torch.zeros(batch, 4)) for batch in (3, 12))
    assert small.operators[-1].space is None
    assert comparable(at_batch(replace(small, batch=3), 12)) == comparable(replace(large, batch=12))


def test_its_own_batch_is_the_graph_itself() -> None:
    graph = captured("alpa-gpt3-350m-small")
    assert at_batch(graph, 2) is graph


@pytest.mark.parametrize("batch", [0, 1])
def test_one_example_does_not_tell_what_grows(batch: int) -> None:
    make, inputs = CASES["convnet"]
    graph = replace(graph_of(make(), inputs[0][:1]), batch=batch)
    with pytest.raises(FailedPreconditionError, match="captured with") as error:
        at_batch(graph, 4)
    assert "two examples or more" in error.value.hint


def test_no_examples_are_refused() -> None:
    with pytest.raises(InvalidArgumentError) as error:
        at_batch(captured("alpa-gpt3-350m-small"), 0)
    assert error.value.field == "batch"


class PerExample(nn.Module):
    """Has a parameter for each example of its batch."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


def test_a_parameter_of_the_batch_is_named() -> None:
    graph = replace(graph_of(PerExample(), torch.zeros(4, 8)), batch=4)
    with pytest.raises(FailedPreconditionError, match="operator mul it would change the size of scale"):
        at_batch(graph, 8)


def test_an_input_must_have_the_batch() -> None:
    graph = replace(graph_of(PerExample(), torch.zeros(4, 8)), batch=8)
    with pytest.raises(FailedPreconditionError, match="No input of 'test' has its 8 examples"):
        at_batch(graph, 16)
