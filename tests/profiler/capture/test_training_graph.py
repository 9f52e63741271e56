"""What a captured training step says of gradients, forward operators and dataflow."""

import pytest
from torch import nn

from headway.core.dataflow import Dataflow, is_in_order
from headway.core.graph import Graph, TensorRole
from headway.core.iteration import Reduction
from tests.profiler.capture.modules import CASES, graph_of


@pytest.fixture(scope="module", params=CASES)
def graph(request: pytest.FixtureRequest) -> Graph:
    make, inputs = CASES[request.param]
    return graph_of(make(), *inputs, train=True)


def test_every_trained_parameter_has_a_gradient_of_its_size(graph: Graph) -> None:
    tensors, made = graph.tensors_by_name(), Dataflow(graph).producer
    assert graph.trained
    for parameter, gradient in zip(graph.trained, graph.gradients, strict=True):
        assert tensors[gradient].num_elements == tensors[parameter].num_elements
        assert gradient in made


def test_every_backward_operator_names_a_forward_one_of_its_module(graph: Graph) -> None:
    forward = {operator.name: operator for operator in graph.operators if not operator.is_backward}
    for operator in graph.operators:
        if operator.is_backward:
            assert operator.module == forward[operator.forward].module
        else:
            assert not operator.forward


def test_every_tensor_is_made_once_and_before_it_is_read(graph: Graph) -> None:
    outputs = [name for operator in graph.operators for name in operator.outputs]
    assert len(outputs) == len(set(outputs))
    assert is_in_order(graph.operators)


def test_a_tensor_is_live_from_the_operator_that_makes_it_to_the_last_that_reads_it(graph: Graph) -> None:
    flow = Dataflow(graph)
    for at, live in enumerate(flow.live()):
        made = {name for name, maker in flow.producer.items() if maker <= at}
        needed = {name for name in made if max((flow.producer[name], *flow.consumers.get(name, ()))) >= at}
        assert live == needed | (made & flow.results)
    kept = {t.name for t in graph.tensors if t.role is TensorRole.OUTPUT} | set(graph.gradients)
    assert kept == flow.results


def test_predecessors_and_successors_are_two_sides_of_the_same_edges(graph: Graph) -> None:
    flow = Dataflow(graph)
    edges = {(before, at) for at in range(len(graph.operators)) for before in flow.predecessors(at)}
    assert edges == {(at, after) for at in range(len(graph.operators)) for after in flow.successors(at)}
    first_half = range(len(graph.operators) // 2)
    assert flow.received(first_half) == ()


def test_how_elements_meet_is_told_for_each_result() -> None:
    make, inputs = CASES["convnet"]
    graph = graph_of(make(), *inputs, train=True)
    backward = next(o for o in graph.operators if "convolution_backward" in o.target and len(o.outputs) == 3)
    assert backward.space is not None
    data, weight, bias = backward.space.writes
    assert data.reduced["o"] is weight.reduced["n"] is bias.reduced["n"] is Reduction.SUM
    assert "o" not in weight.reduced
    assert {"n", "y0", "y1"} <= set(bias.reduced)
    assert "i" not in bias.reduced
    norm = graph_of(nn.LayerNorm(4), inputs[0][..., :4], train=False).operators[0]
    assert norm.space is not None
    assert norm.space.writes[0].reduced == {"d3": Reduction.MOMENTS}
