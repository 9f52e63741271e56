"""Operators that capture has no rule for are kept, costed by their bytes and named."""

import torch
from torch import Tensor, nn

from headway.core.graph import OperatorKind
from tests.profiler.capture.modules import graph_of


@torch.library.custom_op("headway_test::mystery", mutates_args=())
def mystery(x: Tensor, weight: Tensor) -> Tensor:
    return x * weight.sum()


@mystery.register_fake
def _(x: Tensor, weight: Tensor) -> Tensor:
    return torch.empty_like(x)


class Mysterious(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        return mystery(self.linear(x), self.linear.weight)


def test_a_custom_operator_is_kept_and_named() -> None:
    graph = graph_of(Mysterious(), torch.zeros(3, 4))
    unknown = graph.operators[-1]
    assert graph.unknown_operators == {"headway_test.mystery.default": 1}
    assert unknown.kind is OperatorKind.UNKNOWN
    assert unknown.inputs == (graph.operators[0].outputs[0], "linear.weight")
    assert (unknown.flops, unknown.bytes_read, unknown.bytes_written) == (0, 4 * (18 + 24), 4 * 18)
    assert unknown.space is None


def test_an_operator_without_a_rule_is_decomposed_where_torch_knows_how() -> None:
    graph = graph_of(nn.MSELoss(), torch.zeros(3, 4), torch.zeros(3, 4))
    assert graph.unknown_operators == {}


def test_what_is_written_in_place_is_a_tensor_of_its_own_from_then_on() -> None:
    class Shifted(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x * 2
            y[:2].add_(1)
            return y.exp()

    graph = graph_of(Shifted(), torch.zeros(4))
    double, shift, exp = graph.operators
    assert shift.inputs == double.outputs
    assert set(shift.outputs).isdisjoint(double.outputs)
    assert exp.inputs == shift.outputs
    assert graph.tensors_by_name()[shift.outputs[0]].shape == (4,)
    assert shift.space is not None
    assert [access.tensor for access in shift.space.writes] == list(shift.outputs)
    assert shift.kind is OperatorKind.ELEMENTWISE
