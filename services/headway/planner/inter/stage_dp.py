"""Finds the stage-mesh pairs with the shortest pipeline iteration (dissertation section 3.5.2, equations 3.2 to 3.4).
Pure.

Equation 3.2 adds the stages' latencies and, for every micro-batch but the first, the slowest one's. The least sum
under a bound on the slowest stage is a dynamic program. Instead of all bounds, only those are tried that can lead to
something better: with S the least sum under the last bound, a better pipeline's slowest stage takes less than
(T - S) / (B - 1), and less than the slowest one of what was found under the last bound. The result is exact.

Of a cluster with several groups of alike nodes a stage has devices of one group; groups follow each other in any order,
and one that would make a pipeline slower is left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from headway.core.errors import InvalidArgumentError
from headway.planner.inter.stage_kernel import least_bottleneck, least_sum, undominated


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCosts:
    """Costs of each run of layers on each submesh, in each variant: a logical mesh shape with options.

    Attributes:
        latency_s: [layers, layers, submeshes, variants]; entry [k, i] is of one micro-batch through the layers k to i
            (both included), forward and backward. Infinite or NaN where it is not possible.
        max_successors: the same shape; how many stages may follow before memory runs out (equation 3.5); negative
            where not even the last stage fits.
        once_s: the same shape; what happens once an iteration (gradient synchronisation, optimizer). None: nothing.
        num_devices: [submeshes]; of each submesh.
        groups: [submeshes]; the group of alike nodes that each is in. None: all are in one.
        crossing_s: [layers, groups, submeshes]; what a stage that ends with a layer takes longer when the next one is
            in a group. None: nothing.
    """

    latency_s: NDArray[np.float64]
    max_successors: NDArray[np.int32]
    num_devices: NDArray[np.int32]
    once_s: NDArray[np.float64] | None = None
    groups: NDArray[np.int32] | None = None
    crossing_s: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        num_layers, _, num_submeshes, _ = shape = self.latency_s.shape
        expected = {"max_successors": self.max_successors.shape == shape}
        expected["latency_s"] = shape[1] == num_layers and num_layers > 0
        expected["num_devices"] = self.num_devices.shape == (num_submeshes,) and bool((self.num_devices > 0).all())
        expected["once_s"] = self.once_s is None or self.once_s.shape == shape
        expected["groups"] = self.groups is None or self.groups.shape == (num_submeshes,)
        expected["crossing_s"] = self.crossing_s is None or self.crossing_s.shape[::2] == (num_layers, num_submeshes)
        for field, is_right in expected.items():
            if not is_right:
                raise InvalidArgumentError(
                    f"{field} does not fit latency_s of shape {shape}.",
                    hint="latency_s is [layers, layers, submeshes, variants]; all others follow it.",
                    field=field,
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class StageChoice:
    """A stage: layers `first` to `last` (both included) on a submesh, in a variant, by their indices."""

    first: int
    last: int
    submesh: int
    variant: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCut:
    """A pipeline and its costs.

    Attributes:
        stages: in the order of the layers.
        sum_s: sum of the stages' latencies, which is one micro-batch's way through the pipeline.
        slowest_s: the latency of the slowest stage.
        pipeline_s: time of all micro-batches, by equation 3.2.
        once_s: longest time of a stage for what happens once an iteration.
        num_bounds: how many bounds were tried.
    """

    stages: tuple[StageChoice, ...]
    sum_s: float
    slowest_s: float
    pipeline_s: float
    once_s: float
    num_bounds: int

    @property
    def iteration_s(self) -> float:
        return self.pipeline_s + self.once_s


def cut_stages(
    costs: StageCosts,
    *,
    num_devices: int | Sequence[int],
    num_micro_batches: int,
    min_stages: int = 1,
    max_stages: int | None = None,
) -> StageCut | None:
    """Finds the pipeline that uses all the devices and has the shortest iteration; None where none fits.

    Args:
        num_devices: of the cluster; all of them are used. Of each group, where there are several: all of those of a
            group are used, or none.
        num_micro_batches: B of equation 3.2.
        min_stages, max_stages: at least and at most so many; None: as many as layers.

    Raises:
        InvalidArgumentError: no devices or no micro-batches.
    """
    available = (num_devices,) if isinstance(num_devices, int) else tuple(num_devices)
    for field, value in (("num_devices", min(available)), ("num_micro_batches", num_micro_batches)):
        if value < 1:
            raise InvalidArgumentError(f"{field} is {value}.", hint="It must be 1 or more.", field=field)
    num_stages = min_stages, costs.latency_s.shape[0] if max_stages is None else max_stages
    search = _Search(costs, available=available, num_micro_batches=num_micro_batches, num_stages=num_stages)
    best = found = search.under(np.inf)
    while best is not None and costs.once_s is not None:
        found = search.under(found.once_s) if found else None
        if found is None or found.pipeline_s >= best.iteration_s:
            break
        best = min(best, found, key=lambda cut: cut.iteration_s)
    return best and replace(best, num_bounds=search.num_bounds)


class _Search:
    """The search for the pipelines of one cluster, among the variants that are not dominated."""

    def __init__(
        self, costs: StageCosts, *, available: Sequence[int], num_micro_batches: int, num_stages: tuple[int, int]
    ) -> None:
        num_layers = costs.latency_s.shape[0]
        groups = np.zeros_like(costs.num_devices) if costs.groups is None else costs.groups
        self._groups = [int(group) for group in groups]
        units = [int(np.gcd.reduce([of, *costs.num_devices[groups == g].tolist()])) for g, of in enumerate(available)]
        num_units = [of // unit for of, unit in zip(available, units, strict=True)]
        strides = [prod(each + 1 for each in num_units[:group]) for group in range(len(num_units))]
        self._spans = np.array(
            [
                (group, size // units[group] * strides[group], (num_units[group] + 1) * strides[group])
                for group, size in zip(self._groups, costs.num_devices.tolist(), strict=True)
            ],
            np.int32,
        )
        self._ends = np.array(
            [
                sum(used * each * stride for used, each, stride in zip(all_of, num_units, strides, strict=True))
                for all_of in sorted(product((0, 1), repeat=len(available)), key=lambda each: each[::-1])
            ][1:],
            np.int32,
        )
        self._crossing_s = np.zeros((num_layers, len(available), len(self._groups)))
        if costs.crossing_s is not None:
            self._crossing_s[:-1] = costs.crossing_s[:-1]
        self._later = num_micro_batches - 1
        self._num_stages = num_stages[0], min(num_stages[1], num_layers, sum(num_units))
        self.num_bounds = 0
        is_possible = np.isfinite(costs.latency_s) & (costs.max_successors >= 0)
        latency_s = np.where(is_possible, costs.latency_s, np.inf)
        successors = np.ascontiguousarray(costs.max_successors, dtype=np.int32)
        once_s = np.zeros_like(latency_s) if costs.once_s is None else costs.once_s
        kept, num_kept = undominated(latency_s, successors, once_s)
        self._variants = kept[..., : max(1, num_kept.max())]
        is_kept = np.arange(self._variants.shape[-1]) < num_kept[..., None]
        self._latency_s = np.where(is_kept, np.take_along_axis(latency_s, self._variants, axis=3), np.inf)
        self._successors = np.take_along_axis(successors, self._variants, axis=3)
        self._once_s = np.take_along_axis(once_s, self._variants, axis=3)

    def under(self, once_bound_s: float) -> StageCut | None:
        """Finds the pipeline with the least `pipeline_s` whose stages take less than that for what happens once."""
        latency_s = np.where(self._once_s < once_bound_s, self._latency_s, np.inf)
        floor_s = least_bottleneck(
            latency_s, self._crossing_s, self._successors, self._spans, self._ends, *self._num_stages
        )
        if not np.isfinite(floor_s):
            return None
        best = self._least_sum(latency_s, floor_s)
        assert best is not None
        bound_s = self._next_bound(best, least_sum_s=self._shortest_way_s(latency_s))
        while bound_s > floor_s:
            found = self._least_sum(latency_s, bound_s)
            assert found is not None
            best = min(best, found, key=lambda cut: cut.pipeline_s)
            bound_s = min(np.nextafter(found.slowest_s, 0), self._next_bound(best, least_sum_s=found.sum_s))
        return best

    def _next_bound(self, best: StageCut, *, least_sum_s: float) -> float:
        """The bound that the slowest stage of any better pipeline stays below."""
        gain_s = best.pipeline_s - least_sum_s
        if self._later == 0:
            return np.inf if gain_s > 0 else 0.0
        return float(np.nextafter(gain_s / self._later, 0))

    def _shortest_way_s(self, latency_s: NDArray[np.float64]) -> float:
        cut = self._least_sum(latency_s, np.inf)
        assert cut is not None
        return cut.sum_s

    def _least_sum(self, latency_s: NDArray[np.float64], bound_s: float) -> StageCut | None:
        self.num_bounds += 1
        num_stages, choices = least_sum(
            latency_s, self._crossing_s, self._successors, self._spans, self._ends, *self._num_stages, bound_s
        )
        if num_stages == 0:
            return None
        indices = tuple(choices[stage] for stage in range(num_stages))
        stages = tuple(
            StageChoice(first=int(k), last=int(i), submesh=int(m), variant=int(self._variants[k, i, m, v]))
            for k, i, m, v in indices
        )
        following = [*(self._groups[stage.submesh] for stage in stages[1:]), 0]
        latencies = [
            float(latency_s[tuple(index)] + self._crossing_s[index[1], group, index[2]])
            for index, group in zip(indices, following, strict=True)
        ]
        once_s = max(float(self._once_s[tuple(index)]) for index in indices)
        return StageCut(
            stages=stages,
            sum_s=sum(latencies),
            slowest_s=max(latencies),
            pipeline_s=sum(latencies) + self._later * max(latencies),
            once_s=once_s,
            num_bounds=self.num_bounds,
        )
