"""The partitioner beside all graphs of stages that there are of a few operators."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest

from headway.planner.graphpipe.partitioner import Partitioner
from headway.planner.graphpipe.pipeline import depths, stage_graph
from headway.planner.graphpipe.problem import Flow, PipelineProblem
from headway.planner.graphpipe.series_parallel import Parallel, Part, Series, decompose, leaves
from headway.planner.graphpipe.stage import stage_load
from tests.planner.graphpipe.problems import alike, branched, random_problem

Stages = tuple[frozenset[int], ...]


def elements_of(part: Part) -> tuple[Part, ...]:
    return part.parts if isinstance(part, Series) else (part,)


def stages_of(chain: Sequence[Part]) -> Iterator[frozenset[int]]:
    """All sets that can be a stage: runs of a chain; branches together; and the same in each branch of a fork, with
    the operators before and behind it as its first and last."""
    for start in range(len(chain)):
        for stop in range(start + 1, len(chain) + 1):
            yield frozenset(leaf for part in chain[start:stop] for leaf in leaves(part))
    for at, part in enumerate(chain):
        if not isinstance(part, Parallel):
            continue
        head = [each for each in chain[max(0, at - 1) : at] if isinstance(each, int)]
        tail = [each for each in chain[at + 1 : at + 2] if isinstance(each, int)]
        for chosen in range(1, 1 << len(part.parts)):
            group = [leaf for i, branch in enumerate(part.parts) if chosen >> i & 1 for leaf in leaves(branch)]
            yield from (frozenset([*group, *more]) for more in ([], head, tail))
        for branch in part.parts:
            yield from stages_of([*head, *elements_of(branch), *tail])


def partitions(left: frozenset[int], allowed: Sequence[frozenset[int]]) -> Iterator[Stages]:
    if not left:
        yield ()
        return
    first = min(left)
    for stage in allowed:
        if first in stage and stage <= left:
            yield from ((stage, *rest) for rest in partitions(left - stage, allowed))


def brute_force(problem: PipelineProblem, tree: Part, added: Sequence[tuple[int, int]], micro_batch: int) -> float:
    """The least time per sample of any graph of stages."""
    edges = [*problem.edges, *added]
    allowed = sorted(set(stages_of(elements_of(tree))), key=sorted)
    powers = [1 << power for power in range(problem.num_devices.bit_length())]
    best = np.inf
    for stages in partitions(frozenset(range(problem.num_operators)), allowed):
        try:
            order, successors = stage_graph(edges, [sorted(stage) for stage in stages])
        except ValueError:
            continue
        loads = [stage_load(problem, stages[number]) for number in order]
        in_flight = [min(depth * micro_batch, problem.batch) for depth in depths(successors)]
        options = [
            [
                (devices, load.time_per_sample(problem, micro_batch=micro_batch, num_devices=devices))
                for devices in powers
                if load.device_bytes(in_flight=held, num_devices=devices) <= problem.memory_bytes
            ]
            for load, held in zip(loads, in_flight, strict=True)
        ]
        for choice in product(*options):
            if sum(devices for devices, _ in choice) <= problem.num_devices:
                best = min(best, max(seconds for _, seconds in choice))
    return best


def compare(problem: PipelineProblem, micro_batch: int) -> None:
    found = decompose(problem.forward_s[:, 0].tolist(), problem.edges)
    best = brute_force(problem, found.root, found.added, micro_batch)
    pipeline = Partitioner(problem, found.root).fastest(micro_batch)
    if pipeline is None:
        assert best == np.inf
        return
    assert pipeline.time_per_sample == pytest.approx(best, rel=1e-9)
    assert sorted(at for stage in pipeline.stages for at in stage.operators) == list(range(problem.num_operators))
    assert pipeline.num_devices <= problem.num_devices
    assert max(pipeline.device_bytes) <= problem.memory_bytes


@pytest.mark.parametrize("is_tight", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_any_graph_is_cut_as_well_as_all_ways(seed: int, is_tight: bool) -> None:
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, size=6, num_devices=4, share=rng.uniform(0.15, 0.6), is_tight=is_tight)
    compare(problem, int(rng.choice([2, 4])))


@pytest.mark.parametrize("is_alike", [False, True])
@pytest.mark.parametrize("is_tight", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_branches_are_cut_as_well_as_all_ways(seed: int, is_tight: bool, is_alike: bool) -> None:
    rng = np.random.default_rng(1000 + seed)
    size = 7
    problem = random_problem(rng, size=size, num_devices=5, share=0.0, is_tight=is_tight)
    flows = tuple(Flow(producer=a, consumers=(b,), bytes_per_sample=1.0) for a, b in branched(rng, size=size))
    problem = replace(problem, flows=flows)
    compare(alike(problem) if is_alike else problem, int(rng.choice([1, 2, 4])))


@pytest.mark.parametrize("seed", range(20))
def test_a_chain_is_cut_as_well_as_all_ways(seed: int) -> None:
    rng = np.random.default_rng(2000 + seed)
    problem = random_problem(rng, size=7, num_devices=6, share=0.0, is_tight=True)
    flows = tuple(Flow(producer=a, consumers=(b,), bytes_per_sample=1.0) for a, b in pairwise(range(7)))
    compare(replace(problem, flows=flows), 2)


def test_a_stage_is_cut_where_memory_needs_it() -> None:
    rng = np.random.default_rng(7)
    problem = random_problem(rng, size=6, num_devices=4, share=0.3, is_tight=False)
    roomy = Partitioner(problem, decompose([1.0] * 6, problem.edges).root).fastest(2)
    assert roomy is not None
    tight = replace(problem, memory_bytes=max(roomy.device_bytes) - 1e-3)
    less = Partitioner(tight, decompose([1.0] * 6, problem.edges).root).fastest(2)
    assert less is None or less.time_per_sample >= roomy.time_per_sample
