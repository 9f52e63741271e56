"""The stage cut over groups of different nodes beside all cuts there are: any order, and groups that are left out."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from headway.core.errors import InvalidArgumentError
from headway.planner.inter.stage_dp import StageCosts, cut_stages

Stages = tuple[tuple[int, int, int, int], ...]


def all_pipelines(costs: StageCosts, first: int) -> Iterator[Stages]:
    """Every way to run the layers from `first` on, devices and memory left aside."""
    num_layers, _, num_submeshes, num_variants = costs.latency_s.shape
    if first == num_layers:
        yield ()
        return
    for last in range(first, num_layers):
        for rest in all_pipelines(costs, last + 1):
            for submesh in range(num_submeshes):
                for variant in range(num_variants):
                    yield ((first, last, submesh, variant), *rest)


def iteration_s(costs: StageCosts, stages: Stages, available: Sequence[int], num_micro_batches: int) -> float:
    """Infinite where memory or devices do not allow it: a group is used as a whole or not at all."""
    assert costs.groups is not None
    assert costs.crossing_s is not None
    assert costs.once_s is not None
    used = [0] * len(available)
    latencies = []
    for i, stage in enumerate(stages):
        _, last, submesh, _ = stage
        used[costs.groups[submesh]] += int(costs.num_devices[submesh])
        crossing_s = 0.0 if i == len(stages) - 1 else costs.crossing_s[last, costs.groups[stages[i + 1][2]], submesh]
        latencies.append(costs.latency_s[stage] + crossing_s)
        if costs.max_successors[stage] < len(stages) - 1 - i or not np.isfinite(latencies[-1]):
            return float("inf")
    if any(count not in (0, all_of) for count, all_of in zip(used, available, strict=True)):
        return float("inf")
    return float(sum(latencies) + (num_micro_batches - 1) * max(latencies) + max(costs.once_s[s] for s in stages))


def random_costs(rng: np.random.Generator, num_layers: int) -> StageCosts:
    """Costs on two groups, of which the second has slower devices."""
    groups, sizes = np.array([0, 0, 1, 1], np.int32), np.array([1, 2, 1, 3], np.int32)
    shape = (num_layers, num_layers, 4, 2)
    latency_s = rng.integers(1, 12, shape) * (1 + groups[:, None]) / 4
    latency_s[rng.random(shape) < 0.2] = np.inf
    crossing_s = rng.integers(0, 8, (num_layers, 2, 4)) / 4 * (groups[None, None, :] != np.arange(2)[None, :, None])
    return StageCosts(
        latency_s=latency_s,
        max_successors=rng.integers(-1, 4, shape).astype(np.int32),
        num_devices=sizes,
        once_s=rng.integers(0, 12, shape) / 2,
        groups=groups,
        crossing_s=crossing_s,
    )


@pytest.mark.parametrize("seed", range(200))
def test_equals_the_best_of_all_pipelines_over_two_groups(seed: int) -> None:
    rng = np.random.default_rng(seed)
    costs = random_costs(rng, num_layers=int(rng.integers(1, 4)))
    available, number = (int(rng.integers(1, 4)), int(rng.integers(1, 5))), int(rng.integers(1, 6))
    best = min(iteration_s(costs, stages, available, number) for stages in all_pipelines(costs, 0))
    cut = cut_stages(costs, num_devices=available, num_micro_batches=number)
    assert (np.inf if cut is None else cut.iteration_s) == pytest.approx(best)
    if cut is not None:
        stages = tuple((s.first, s.last, s.submesh, s.variant) for s in cut.stages)
        assert iteration_s(costs, stages, available, number) == pytest.approx(cut.iteration_s)


@pytest.mark.parametrize(("slower", "groups_used"), [(1.0, {0, 1}), (100.0, {0})])
def test_a_group_that_would_make_it_slower_is_left_out(slower: float, groups_used: set[int]) -> None:
    groups = np.array([0, 1], np.int32)
    latency_s = np.zeros((2, 2, 2, 1))
    for first in range(2):
        for last in range(first, 2):
            latency_s[first, last, :, 0] = (last - first + 1) * np.array([1.0, slower])
    costs = StageCosts(
        latency_s=latency_s,
        max_successors=np.full(latency_s.shape, 9, np.int32),
        num_devices=np.ones(2, np.int32),
        groups=groups,
        crossing_s=np.zeros((2, 2, 2)),
    )
    cut = cut_stages(costs, num_devices=(1, 1), num_micro_batches=8)
    assert cut is not None
    assert {int(groups[stage.submesh]) for stage in cut.stages} == groups_used


def test_groups_and_crossings_must_fit_the_submeshes() -> None:
    latency_s, fits = np.ones((2, 2, 1, 1)), np.ones((2, 2, 1, 1), np.int32)
    for changes in ({"groups": np.zeros(2, np.int32)}, {"crossing_s": np.zeros((1, 2, 1))}):
        with pytest.raises(InvalidArgumentError, match=f"{next(iter(changes))} does not fit"):
            StageCosts(latency_s=latency_s, max_successors=fits, num_devices=np.ones(1, np.int32), **changes)
