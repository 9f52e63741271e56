"""Chains of downsets beside all chains there are of a few operators, and beside PipeDream's and GraphPipe's."""

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from headway.core.errors import FailedPreconditionError
from headway.planner.graphpipe.piper import search_downsets
from headway.planner.graphpipe.problem import PipelineProblem
from headway.planner.graphpipe.search import search_chain, search_graph
from headway.planner.graphpipe.stage import stage_load
from tests.planner.graphpipe.problems import random_problem


def chains(problem: PipelineProblem, left: frozenset[int]) -> Iterator[tuple[frozenset[int], ...]]:
    """All ways to run what is left as stages one after another."""
    if not left:
        yield ()
        return
    members = sorted(left)
    for chosen in range(1, 1 << len(members)):
        stage = frozenset(at for i, at in enumerate(members) if chosen >> i & 1)
        if all(before not in left - stage for before, after in problem.edges if after in stage):
            yield from ((stage, *rest) for rest in chains(problem, left - stage))


def brute_force(problem: PipelineProblem, micro_batch: int) -> float:
    best = np.inf
    powers = [1 << power for power in range(problem.num_devices.bit_length())]
    for stages in chains(problem, frozenset(range(problem.num_operators))):
        if len(stages) > problem.num_devices:
            continue
        options = []
        for number, stage in enumerate(stages):
            load, in_flight = stage_load(problem, stage), min((len(stages) - number) * micro_batch, problem.batch)
            options.append(
                [
                    (devices, load.time_per_sample(problem, micro_batch=micro_batch, num_devices=devices))
                    for devices in powers
                    if load.device_bytes(in_flight=in_flight, num_devices=devices) <= problem.memory_bytes
                ]
            )
        for choice in product(*options):
            if sum(devices for devices, _ in choice) <= problem.num_devices:
                best = min(best, max(seconds for _, seconds in choice))
    return best


@pytest.mark.parametrize("is_tight", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_no_chain_is_faster(seed: int, is_tight: bool) -> None:
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, size=5, num_devices=4, share=rng.uniform(0.1, 0.6), is_tight=is_tight)
    found = search_downsets(problem, 2)
    best = brute_force(problem, 2)
    assert (np.inf if found is None else found.time_per_sample) == pytest.approx(best, rel=1e-9)
    assert found is None or max(found.device_bytes) <= problem.memory_bytes


@pytest.mark.parametrize("seed", range(20))
def test_its_space_holds_the_others(seed: int) -> None:
    """Without a bound on memory, in which chains are deeper than graphs."""
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, size=9, num_devices=6, share=0.2, is_tight=False)
    found, graph, chain = search_downsets(problem, 4), search_graph(problem, [4]), search_chain(problem, [4])
    assert found is not None
    assert graph is not None
    assert found.time_per_sample <= graph.least.time_per_sample * (1 + 1e-9)
    assert graph.least.time_per_sample <= chain[0].time_per_sample * (1 + 1e-9)


def test_branches_multiply_downsets() -> None:
    rng = np.random.default_rng(0)
    problem = random_problem(rng, size=13, num_devices=2, share=0.0, is_tight=False)
    with pytest.raises(FailedPreconditionError, match="3000 downsets"):
        search_downsets(problem, 2)
