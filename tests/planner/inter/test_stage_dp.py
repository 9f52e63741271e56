"""The stage cut beside all cuts there are, and beside recorded optima of a public implementation."""

from collections.abc import Iterator

import numpy as np
import pytest

from headway.core.errors import InvalidArgumentError
from headway.planner.inter.equal_layers import cut_equally
from headway.planner.inter.stage_dp import StageCosts, StageCut, cut_stages


def all_pipelines(costs: StageCosts, *, first: int, devices: int) -> Iterator[tuple[tuple[int, int, int, int], ...]]:
    """Every way to run the layers from `first` on, on exactly so many devices, memory left aside."""
    num_layers, _, num_submeshes, num_variants = costs.latency_s.shape
    if first == num_layers:
        if devices == 0:
            yield ()
        return
    for last in range(first, num_layers):
        for submesh in range(num_submeshes):
            for rest in all_pipelines(costs, first=last + 1, devices=devices - int(costs.num_devices[submesh])):
                for variant in range(num_variants):
                    yield ((first, last, submesh, variant), *rest)


def brute_force(
    costs: StageCosts, *, num_devices: int, num_micro_batches: int, max_stages: int, min_stages: int = 1
) -> float:
    best = np.inf
    for stages in all_pipelines(costs, first=0, devices=num_devices):
        fits = all(costs.max_successors[s] >= len(stages) - 1 - i for i, s in enumerate(stages))
        latencies = [costs.latency_s[s] for s in stages]
        if min_stages <= len(stages) <= max_stages and fits and np.isfinite(latencies).all():
            once_s = 0.0 if costs.once_s is None else max(costs.once_s[s] for s in stages)
            best = min(best, sum(latencies) + (num_micro_batches - 1) * max(latencies) + once_s)
    return float(best)


def check(costs: StageCosts, cut: StageCut, *, num_devices: int, num_micro_batches: int) -> None:
    """The cut is a pipeline, and its figures are those of its stages."""
    indices = [(s.first, s.last, s.submesh, s.variant) for s in cut.stages]
    assert [first for first, *_ in indices] == [0, *(last + 1 for _, last, *_ in indices[:-1])]
    assert indices[-1][1] == costs.latency_s.shape[0] - 1
    assert sum(costs.num_devices[submesh] for *_, submesh, _ in indices) == num_devices
    assert all(costs.max_successors[s] >= len(indices) - 1 - i for i, s in enumerate(indices))
    latencies = [costs.latency_s[s] for s in indices]
    assert cut.pipeline_s == pytest.approx(sum(latencies) + (num_micro_batches - 1) * max(latencies))


@pytest.mark.parametrize("seed", range(300))
def test_equals_the_best_of_all_pipelines(seed: int) -> None:
    rng = np.random.default_rng(seed)
    num_layers, num_variants = int(rng.integers(1, 6)), int(rng.integers(1, 3))
    num_devices = np.array([[1, 2, 4], [2, 4, 6], [1, 3, 4]][seed % 3], dtype=np.int32)
    shape = (num_layers, num_layers, 3, num_variants)
    latency_s = rng.integers(1, 12, shape) * np.arange(1, num_layers + 1)[None, :, None, None] / 4
    latency_s[rng.random(shape) < 0.2] = np.inf
    costs = StageCosts(
        latency_s=latency_s,
        max_successors=rng.integers(-1, 5, shape).astype(np.int32),
        num_devices=num_devices,
        once_s=rng.integers(0, 20, shape) / 2 if seed % 2 else None,
    )
    cluster, num_micro_batches = int(rng.integers(1, 9)), int(rng.integers(1, 9))
    max_stages = int(rng.integers(1, num_layers + 1))
    cut = cut_stages(costs, num_devices=cluster, num_micro_batches=num_micro_batches, max_stages=max_stages)
    expected = brute_force(costs, num_devices=cluster, num_micro_batches=num_micro_batches, max_stages=max_stages)
    if cut is None:
        assert expected == np.inf
    else:
        check(costs, cut, num_devices=cluster, num_micro_batches=num_micro_batches)
        assert cut.iteration_s == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(40))
def test_makes_exactly_so_many_stages_where_that_is_wanted(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (5, 5, 2, 2)
    costs = StageCosts(
        latency_s=rng.integers(1, 12, shape) / 4,
        max_successors=rng.integers(0, 5, shape).astype(np.int32),
        num_devices=np.array([1, 2], dtype=np.int32),
        once_s=rng.integers(0, 20, shape) / 2,
    )
    wanted = int(rng.integers(1, 6))
    cut = cut_stages(costs, num_devices=6, num_micro_batches=4, min_stages=wanted, max_stages=wanted)
    expected = brute_force(costs, num_devices=6, num_micro_batches=4, min_stages=wanted, max_stages=wanted)
    assert (np.inf if cut is None else cut.iteration_s) == pytest.approx(expected)
    assert cut is None or len(cut.stages) == wanted


@pytest.mark.parametrize("seed", range(40))
def test_equals_the_best_of_all_pipelines_among_variants_of_which_many_are_dominated(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (3, 3, 2, 6)
    costs = StageCosts(
        latency_s=rng.integers(1, 5, shape) / 4,
        max_successors=rng.integers(-1, 3, shape).astype(np.int32),
        num_devices=np.array([1, 2], dtype=np.int32),
        once_s=rng.integers(0, 4, shape) / 2,
    )
    cut = cut_stages(costs, num_devices=4, num_micro_batches=3)
    expected = brute_force(costs, num_devices=4, num_micro_batches=3, max_stages=3)
    assert (np.inf if cut is None else cut.iteration_s) == pytest.approx(expected)
    if cut is not None:
        check(costs, cut, num_devices=4, num_micro_batches=3)


@pytest.mark.parametrize("seed", range(40))
def test_equal_stages_are_the_best_of_all_that_have_equally_many_layers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (5, 5, 2, 2)
    costs = StageCosts(
        latency_s=rng.integers(1, 12, shape) / 4,
        max_successors=rng.integers(0, 5, shape).astype(np.int32),
        num_devices=np.array([1, 2], dtype=np.int32),
    )
    cut = cut_equally(costs, num_devices=4, num_micro_batches=4)
    best = np.inf
    for stages in all_pipelines(costs, first=0, devices=4):
        sizes = [last - first + 1 for first, last, *_ in stages]
        if max(sizes) - min(sizes) <= 1 and all(
            costs.max_successors[s] >= len(stages) - 1 - i for i, s in enumerate(stages)
        ):
            latencies = [costs.latency_s[s] for s in stages]
            best = min(best, sum(latencies) + 3 * max(latencies))
    assert (np.inf if cut is None else cut.iteration_s) == pytest.approx(best)


def test_says_what_is_wrong_with_its_arguments() -> None:
    latency_s = np.ones((2, 2, 1, 1))
    fits = np.ones((2, 2, 1, 1), dtype=np.int32)
    with pytest.raises(InvalidArgumentError, match="max_successors does not fit"):
        StageCosts(latency_s=latency_s, max_successors=fits[0], num_devices=np.ones(1, dtype=np.int32))
    costs = StageCosts(latency_s=latency_s, max_successors=fits, num_devices=np.ones(1, dtype=np.int32))
    with pytest.raises(InvalidArgumentError, match="num_micro_batches is 0"):
        cut_stages(costs, num_devices=1, num_micro_batches=0)
