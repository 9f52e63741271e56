"""Layers lie between modules that a model repeats."""

from headway.core.precision import Precision
from headway.planner.inter.layers import make_layers
from headway.planner.training.step import training_graph
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
