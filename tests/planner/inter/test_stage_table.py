"""Layers that are placed once for several sizes of micro-batches cost what they do when each is placed by itself."""

import numpy as np

from headway.core.precision import Precision
from headway.planner.inter.stage_table import mesh_quantities
from headway.planner.intra.mesh_costs import MeshPricing
from headway.planner.training.alpa import allowed_meshes, memory_prices
from headway.planner.training.space import SearchSpace
from headway.planner.training.step import cut_layers, layered_step, training_graph
from tests.planner.training.steps import COSTS, V100, mlp, nodes_of

_MICRO_BATCHES = {1: 64, 3: 32, 4: 16, 8: 8}  # with the number of them; 3 divides by none of the meshes


def test_sizes_of_micro_batches_that_are_placed_together_cost_what_each_does_alone() -> None:
    graph, space, nodes = mlp(), SearchSpace(), nodes_of(1, 4)
    trainings = [training_graph(graph, size, Precision.FLOAT16) for size in _MICRO_BATCHES]
    layers = cut_layers(trainings[0], 2)
    steps = [layered_step(training, layers, Precision.FLOAT16, space.shardings) for training in trainings]
    prices = [memory_prices(step, number, COSTS) for step, number in zip(steps, _MICRO_BATCHES.values(), strict=True)]
    meshes = list(allowed_meshes(nodes, space, num_devices=nodes.num_devices))
    together = mesh_quantities(steps, meshes, MeshPricing(nodes, V100), prices=prices, recomputes=(False,))
    for step, own, found in zip(steps, prices, together, strict=True):
        [alone] = mesh_quantities([step], meshes, MeshPricing(nodes, V100), prices=[own], recomputes=(False,))
        for expected, quantities in zip(alone, found, strict=True):
            np.testing.assert_allclose(quantities, expected, rtol=1e-12)
