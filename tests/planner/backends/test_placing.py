"""The op-level optimiser against trying every cover."""

import random

import pytest

from headway.core.backend import Backend
from headway.core.errors import FailedPreconditionError
from headway.planner.backends.engines import merged
from headway.planner.backends.network import Network
from headway.planner.backends.placing import Cover, Kernel, place
from tests.planner.backends.graphs import covers, legal_sets, make_graph, random_graph

BACKENDS = (Backend(name="eager"), Backend(name="openvino"), Backend(name="inductor"))


def random_kernels(network: Network, seed: int) -> list[Kernel]:
    """Every operator on the first backend, and half of the larger legal sets on some."""
    generator = random.Random(seed)
    kernels = []
    for operators in legal_sets(network, most=4):
        for backend in BACKENDS:
            is_offered = generator.random() < 0.5 or (len(operators) == 1 and backend == BACKENDS[0])
            if is_offered:
                seconds = generator.uniform(0.5, 1.0) * len(operators) ** 0.8
                kernels.append(Kernel(operators, backend, seconds, switch_s=generator.uniform(0.0, 0.2)))
    return kernels


def check_is_cover(network: Network, cover: Cover) -> None:
    """Every operator once, and nothing reads what comes later."""
    done: set[int] = set()
    for kernel in cover.kernels:
        assert not done & kernel.operators
        for at in kernel.operators:
            assert set(network.predecessors[at]) <= done | kernel.operators
        done |= kernel.operators
    assert done == set(range(len(network.graph.operators)))


@pytest.mark.parametrize("first_seed", range(0, 400, 20))
def test_no_cover_is_cheaper(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 20):
        network = Network(random_graph(seed))
        kernels = random_kernels(network, seed)
        found = place(network, kernels)
        check_is_cover(network, found)
        everything = frozenset(range(len(network.graph.operators)))
        best_s = min(sum(each.cost_s for each in cover) for cover in covers(kernels, everything))
        assert found.seconds == pytest.approx(best_s)
        assert sum(each.cost_s for each in found.kernels) == pytest.approx(found.seconds)


def test_an_operator_that_nothing_runs_is_named() -> None:
    network = Network(make_graph([[], [0], [1]]))
    kernels = [Kernel(frozenset({at}), BACKENDS[0], 1.0) for at in (0, 2)]
    with pytest.raises(FailedPreconditionError, match=r"No backend runs op1 \(aten\.relu\.default\)"):
        place(network, kernels)


def test_a_dear_switch_makes_kernels_larger() -> None:
    network = Network(make_graph([[], [0]]))
    for switch_s, count in ((0.1, 2), (1.0, 1)):
        kernels = [Kernel(frozenset({at}), BACKENDS[0], 1.0, switch_s) for at in (0, 1)]
        kernels.append(Kernel(frozenset({0, 1}), BACKENDS[1], 2.5, switch_s))
        assert len(place(network, kernels).kernels) == count


@pytest.mark.parametrize("first_seed", range(0, 200, 20))
def test_engines_run_everything_once_without_cycles(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 20):
        network = Network(random_graph(seed))
        generator = random.Random(seed)
        cover = place(network, random_kernels(network, seed))
        choices = [(each.operators, generator.choice(BACKENDS)) for each in cover.kernels]
        engines = merged(network, choices)
        backend_of = {at: backend for operators, backend in choices for at in operators}
        assert {at: backend for operators, backend in engines for at in operators} == backend_of
        check_is_cover(network, Cover(tuple(Kernel(operators, each, 0.0) for operators, each in engines), 0.0))


def test_one_backend_is_one_engine() -> None:
    network = Network(make_graph([[], [0], [0], [1, 2]]))
    choices = [(frozenset({at}), BACKENDS[1]) for at in range(4)]
    assert merged(network, choices) == ((frozenset({0, 1, 2, 3}), BACKENDS[1]),)
