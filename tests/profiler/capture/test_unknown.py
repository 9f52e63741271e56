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


def test_operators_in_place_write_what_they_read() -> None:
    class Shifted(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x * 2).add_(1)

    double, shift = graph_of(Shifted(), torch.zeros(3)).operators
    assert shift.inputs == shift.outputs == double.outputs
    assert shift.kind is OperatorKind.ELEMENTWISE
