"""Tables of a layer beside all choices there are: options of nodes, and ZeRO stages of parameters."""

from itertools import product

import numpy as np
import pytest

from headway.planner.intra.layer_problem import LayerProblem, Node
from headway.planner.intra.layer_table import make_table
from headway.planner.intra.parameters import NUM_ZERO_STAGES
from headway.planner.intra.quantities import Floats, Prices, Quantity

_SIZES = (2, 3, 2, 2)  # options of what enters, of two operators, and of what leaves
_PARAMETER_OF = {"weight": 1, "bias": 1, "scale": 2}


def _problem(seed: int, *, has_ends: bool = True) -> LayerProblem:
    random = np.random.default_rng(seed)
    nodes = [Node(name=str(i), quantities=random.random((len(Quantity), size))) for i, size in enumerate(_SIZES)]
    for name, node in _PARAMETER_OF.items():
        nodes[node].parameters[name] = random.random((NUM_ZERO_STAGES, len(Quantity), _SIZES[node]))
    nodes[0].kept_bytes = random.random(_SIZES[0])
    pairs = [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)]
    return LayerProblem(
        mesh_shape=(2, 2),
        nodes=nodes,
        edges={(a, b): random.random((2, _SIZES[a], _SIZES[b])) for a, b in pairs},
        entering=0 if has_ends else None,
        leaving=3 if has_ends else None,
        strategies={},
        specs={},
    )


def _taken(problem: LayerProblem, options: tuple[int, ...], stages: dict[str, int], *, recomputes: bool) -> Floats:
    """[quantities] of one choice, by what they mean."""
    total = np.zeros(len(Quantity))
    for node, option in zip(problem.nodes, options, strict=True):
        own = node.quantities[:, option].copy()
        if recomputes:
            own[Quantity.ACTIVATION_BYTES] = 0.0 if node.kept_bytes is None else node.kept_bytes[option]
        total += own
    for (a, b), seconds in problem.edges.items():
        total[:2] += seconds[:, options[a], options[b]]
    if recomputes:
        total[Quantity.BACKWARD_S] += total[Quantity.FORWARD_S]
    for name, node in _PARAMETER_OF.items():
        total += problem.nodes[node].parameters[name][stages[name], :, options[node]]
    return total


@pytest.mark.parametrize("has_ends", [True, False])
@pytest.mark.parametrize("recomputes", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_equals_the_best_of_all_choices(seed: int, recomputes: bool, has_ends: bool) -> None:
    problem = _problem(seed, has_ends=has_ends)
    prices = Prices.of(num_micro_batches=4, second_per_byte=np.array([0.0, 1.0]), in_flight=np.array([1.0, 3.0]))
    table = make_table(problem, prices, recomputes=recomputes)
    best: dict[tuple[int, int, int], tuple[float, Floats]] = {}
    for options in product(*map(range, _SIZES)):
        for numbers in product(range(NUM_ZERO_STAGES), repeat=len(_PARAMETER_OF)):
            stages = dict(zip(_PARAMETER_OF, numbers, strict=True))
            taken = _taken(problem, options, stages, recomputes=recomputes)
            ends = (options[0], options[3]) if has_ends else (0, 0)
            for price, cost in enumerate(prices.objective(taken)):
                key = *ends, price
                if key not in best or cost < best[key][0]:
                    best[key] = float(cost), taken
    assert table.objective.size == len(best)
    for at, (cost, taken) in best.items():
        assert table.objective[at] == pytest.approx(cost)
        np.testing.assert_allclose(table.quantities[(slice(None), *at)], taken)
        options = tuple(int(chosen[at]) for chosen in table.options)
        stages = {name: int(table.zero_stages[name][options[node], at[2]]) for name, node in _PARAMETER_OF.items()}
        np.testing.assert_allclose(_taken(problem, options, stages, recomputes=recomputes), taken)
