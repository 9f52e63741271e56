"""Every family of the zoo is captured whole: no unknown operator, FLOPs as torch counts them."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from headway.profiler.zoo.model import ZooModel
from headway.profiler.zoo.network import make_network
from headway.profiler.zoo.registry import models
from tests.profiler.capture.modules import graph_of

FAMILIES = list({model.family: model.small() for model in models()}.values())


@pytest.mark.parametrize("model", FAMILIES, ids=lambda model: model.family)
def test_a_model_of_the_zoo_is_captured(model: ZooModel) -> None:
    module, inputs = make_network(model).train(), model.example_inputs(batch=2)
    num_parameters = sum(parameter.numel() for parameter in module.parameters())
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(*inputs)
    graph = graph_of(module, *inputs, train=True)
    assert graph.parameters == num_parameters
    assert graph.forward_flops == counter.get_total_flops()
    assert graph.flops > 2 * graph.forward_flops
    assert graph.unknown_operators == {}
    assert graph.trained
