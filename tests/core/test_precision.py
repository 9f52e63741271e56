"""What a precision makes of a captured training step."""

import pytest
import torch
from torch import nn

from headway.core.graph import Graph, TensorRole
from headway.core.precision import Precision, cast_graph
from tests.profiler.capture.modules import CASES, VOCAB, graph_of

HALVES = (Precision.BFLOAT16, Precision.FLOAT16)


@pytest.fixture(scope="module")
def graph() -> Graph:
    make, inputs = CASES["transformer"]
    return graph_of(make(), *inputs, train=True)


@pytest.mark.parametrize(
    ("precision", "num_bytes"), [(Precision.FLOAT32, (4, 4, 8)), *((p, (2, 4, 12)) for p in HALVES)]
)
def test_a_parameter_costs_weights_gradients_and_adams_state(precision: Precision, num_bytes: tuple[int, ...]) -> None:
    assert (precision.weight_bytes, precision.gradient_bytes, precision.optimizer_bytes) == num_bytes


@pytest.mark.parametrize("precision", Precision)
def test_the_cast_graph_counts_the_same_bytes(graph: Graph, precision: Precision) -> None:
    cast = cast_graph(graph, precision)
    assert cast.parameter_bytes == graph.parameters * precision.weight_bytes
    assert cast.optimizer_bytes == graph.parameters * precision.optimizer_bytes
    assert {cast.tensors_by_name()[name].dtype for name in cast.gradients} == {precision.value}
    assert cast.flops == graph.flops


def test_float32_is_the_graph_itself(graph: Graph) -> None:
    assert cast_graph(graph, Precision.FLOAT32) is graph


def stack() -> nn.Module:
    return nn.Sequential(nn.Embedding(VOCAB, 8), nn.Linear(8, 24), nn.GELU(), nn.LayerNorm(24), nn.Linear(24, 4))


@pytest.mark.parametrize("precision", HALVES)
def test_a_cast_graph_is_what_the_cast_module_is_captured_as(precision: Precision) -> None:
    """But for the ids, which stay, every byte halves."""
    ids = torch.zeros(3, 5, dtype=torch.int64)
    captured = graph_of(stack(), ids)
    cast = cast_graph(captured, precision)
    expected = graph_of(stack().to(getattr(torch, precision.value)), ids)
    # Statistics of the norm are float32 on some devices and not read in a forward pass.
    compared = [at for at, operator in enumerate(expected.operators) if "layer_norm" not in operator.target]
    for at in compared:
        assert cast.operators[at] == expected.operators[at]
    assert len(compared) == len(captured.operators) - 1


def test_losses_stay_in_float32(graph: Graph) -> None:
    cast = cast_graph(graph, Precision.BFLOAT16).tensors_by_name()
    outputs = {operator.target: operator.outputs for operator in graph.operators}
    for target in (
        "aten._log_softmax.default",
        "aten.nll_loss_forward.default",
        "aten.nll_loss_backward.default",
        "aten._log_softmax_backward_data.default",
    ):
        assert {cast[name].dtype for name in outputs[target]} == {"float32"}
    (loss,) = (tensor.name for tensor in graph.tensors if tensor.role is TensorRole.OUTPUT)
    assert cast[loss].dtype == "float32"
