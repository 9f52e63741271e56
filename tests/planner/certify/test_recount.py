"""The certifier's count of memory, against figures that were worked out by hand."""

from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

from headway.core.graph import Graph
from headway.core.plan.training import DeviceMemory
from headway.profiler.capture.graph import build_graph
from headway.profiler.capture.trace import trace
from tests.planner.certify.planned import captured, cluster_of, mesh_of, plan_of

ROWS, NUM_WEIGHTS = 2, 4 * 16 + 16 * 4  # of 8 examples on 4 devices; of two layers of 4 -> 16 -> 4
HIDDEN, OUTPUT, SCALAR = 4 * 16 * ROWS, 4 * 4 * ROWS, 4  # bytes of float32
KEPT, GRADIENT = HIDDEN + SCALAR, 4 * 64  # GRADIENT: of one of the two matrices


@cache
def perceptron() -> Graph:
    module = nn.Sequential(nn.Linear(4, 16, bias=False), nn.ReLU(), nn.Linear(16, 4, bias=False))
    traced = trace(module, (torch.zeros(8, 4),), train=True, report=lambda _: None)
    return build_graph(traced, name="perceptron", is_training=True, batch=8)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # Kept are the hidden activations and the ones that the backward pass begins with. The peak is one matrix's
        # gradient above them.
        ({}, (4 * NUM_WEIGHTS, 4 * NUM_WEIGHTS, 8 * NUM_WEIGHTS, KEPT, GRADIENT)),
        ({"zero_stage": 1}, (4 * NUM_WEIGHTS, 4 * NUM_WEIGHTS, 2 * NUM_WEIGHTS, KEPT, GRADIENT)),
        # Both gradients are whole until they are scattered, beside the gradient behind the activation function.
        ({"zero_stage": 2}, (4 * NUM_WEIGHTS, NUM_WEIGHTS, 2 * NUM_WEIGHTS, KEPT, 2 * GRADIENT - SCALAR)),
        # And so are the parameters.
        ({"zero_stage": 3}, (NUM_WEIGHTS, NUM_WEIGHTS, 2 * NUM_WEIGHTS, KEPT, 4 * GRADIENT - SCALAR)),
        # Half the bytes, with float32 sums of gradients and masters.
        (
            {"zero_stage": 2, "precision": "bfloat16"},
            (2 * NUM_WEIGHTS, NUM_WEIGHTS, 3 * NUM_WEIGHTS, KEPT // 2, GRADIENT - SCALAR // 2),
        ),
        # Kept is what the second layer, the loss, reads; the hidden activations come again.
        ({"layers": 2}, (4 * NUM_WEIGHTS, 4 * NUM_WEIGHTS, 8 * NUM_WEIGHTS, OUTPUT, KEPT + GRADIENT - OUTPUT)),
    ],
    ids=str,
)
def test_memory_is_what_it_is_by_hand(options: dict[str, Any], expected: tuple[int, ...]) -> None:
    plan = plan_of(perceptron(), cluster_of(1, 4), meshes=[mesh_of(1, 4, 4, 1)], **options)
    memory = plan.stages[0].memory
    weights, gradients, optimizer, activations, workspace = expected
    assert memory == DeviceMemory(
        weights_bytes=weights,
        gradients_bytes=gradients,
        optimizer_bytes=optimizer,
        activations_bytes=activations,
        workspace_bytes=workspace,
    )


@pytest.mark.parametrize("model", ["alpa-gpt3-350m-small", "wide-resnet-250m-small", "alpa-moe-380m-small"])
def test_one_device_holds_the_whole_graph(model: str) -> None:
    graph = captured(model)
    (stage,) = plan_of(graph, cluster_of(1, 1), meshes=[mesh_of(1, 1, 1, 1)]).stages
    buffers = stage.memory.weights_bytes - graph.parameter_bytes
    assert 0 <= buffers < 0.2 * graph.parameter_bytes
    assert stage.memory.gradients_bytes == graph.gradient_bytes
    assert stage.memory.optimizer_bytes == graph.optimizer_bytes
    assert stage.memory.activations_bytes == graph.activation_bytes


def test_a_stage_keeps_one_micro_batch_more_for_each_that_follows() -> None:
    graph, meshes = perceptron(), [mesh_of(1, 2, 2, 1), mesh_of(1, 2, 2, 1)]
    first, last = plan_of(graph, cluster_of(1, 4), meshes=meshes, num_micro_batches=4).stages
    (alone, _) = plan_of(graph, cluster_of(1, 4), meshes=meshes, num_micro_batches=1).stages
    assert (first.in_flight, last.in_flight, alone.in_flight) == (2, 1, 1)
    assert first.memory.activations_bytes == 2 * alone.memory.activations_bytes > 0
