"""Layers lie between modules that a model repeats."""

import torch
from torch import Tensor, nn

from headway.core.precision import Precision
from headway.planner.inter.layers import make_layers
from headway.planner.training.step import training_graph
from headway.profiler.capture.graph import build_graph
from headway.profiler.capture.trace import trace
from tests.profiler.capture.zoo import captured


def test_lists_inside_lists_are_cut_between_the_modules_of_the_inner_ones() -> None:
    training = training_graph(captured("wide-resnet-250m-small"), 2, Precision.FLOAT32)
    operators = training.graph.operators
    blocks = {
        ".".join(operator.module.split(".")[:3])
        for operator in operators
        if operator.module.startswith("stages.") and not operator.is_backward
    }
    layers = make_layers(training)
    assert len(layers) >= len(blocks)
    homes: dict[str, set[int]] = {block: set() for block in blocks}
    for number, layer in enumerate(layers):
        for at in layer.forward:
            block = ".".join(operators[at].module.split(".")[:3])
            if block in homes:
                homes[block].add(number)
    assert all(len(numbers) == 1 for numbers in homes.values())


class _Named(nn.Module):
    """Layers with names of their own, none of them repeated."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(8, 32), nn.Linear(32, 32), nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.second(torch.relu(self.first(x))))
        return self.third(hidden).square().mean()  # type: ignore[no-any-return]


def test_a_model_that_repeats_no_module_is_cut_between_its_operators() -> None:
    traced = trace(_Named(), (torch.zeros(2, 8),), train=True, report=lambda _: None)
    graph = build_graph(traced, name="named", is_training=True, batch=2)
    layers = make_layers(training_graph(graph, 2, Precision.FLOAT32))
    operators = [[graph.operators[at] for at in layer.forward] for layer in layers]
    assert [sum(each.flops > 0 for each in own) for own in operators] == [1, 1, 1]
    assert all(layer.backward for layer in layers)
