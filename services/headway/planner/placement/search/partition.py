"""Algorithm 4: partitions models into buckets, gives each bucket devices, and groups these.

Buckets share no group, so each is evaluated alone and only once for each number of devices; which buckets together are
best is then a sum, found by dynamic programming over the models in the order of their size.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise, product

import numpy as np

from headway.core.device_kind import first_fit, most_groups
from headway.planner.placement.search.evaluator import Evaluator
from headway.planner.placement.search.problem import Groups, Problem, mask_of
from headway.planner.placement.search.search_state import union

Select = Callable[[Evaluator, tuple[int, ...], int], Groups]
"""Models (a set) for groups of these shapes."""

Used = tuple[int, ...]
"""Numbers of devices of each kind."""

SIZE_RATIO = 1.25
"""Models whose latencies differ by less are of one size."""
MOST_SIZES = 4
NUM_SHARES = 5
"""Numbers of devices tried for a bucket beside others, around its share of the load."""
NUM_SHAPES = 3
"""Shapes tried at each of them: the best ones at its share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Groups for a set of models, and their cost: requests missed, those of models left out included."""

    groups: Groups
    cost: float


def partitions(
    evaluator: Evaluator, select: Select, should_stop: Callable[[], bool], *, buckets: bool
) -> Iterator[Partition]:
    """Yields partitions: all models together in groups of one shape on each kind of device, then buckets of like sizes
    apart, each on devices of one kind."""
    problem = evaluator.problem
    yield from _together(evaluator, select, should_stop)
    if should_stop():
        return
    sizes = model_sizes(problem) if buckets else []
    best: list[dict[Used, Partition]] = [{(0,) * len(problem.kinds): Partition(groups=(), cost=0.0)}]
    for end in range(1, len(sizes) + 1):
        options: dict[Used, Partition] = {}
        for begin in range(end):
            if end - begin == len(sizes):
                continue
            for bucket in _bucket(evaluator, select, mask_of_all(sizes[begin:end])):
                if should_stop():
                    return
                for before in best[begin].values():
                    _offer(problem, options, before, bucket)
        best.append(options)
    yield from best[-1].values() if len(sizes) > 1 else ()


def _together(evaluator: Evaluator, select: Select, should_stop: Callable[[], bool]) -> Iterator[Partition]:
    """Yields groups of one shape on one kind of device, then of the best shapes of all kinds side by side."""
    problem = evaluator.problem
    alone: dict[int, Partition] = {}
    for shape in range(len(problem.shapes)):
        alone[shape] = _evaluate(evaluator, select, uniform(problem, shape), problem.everything)
        yield alone[shape]
        if should_stop():
            return
    if len(problem.kinds) == 1:
        return
    of_kinds = (problem.shapes_on(kind) for kind in range(len(problem.kinds)))
    best = [sorted(shapes, key=lambda shape: alone[shape].cost)[:NUM_SHAPES] for shapes in of_kinds if shapes]
    for chosen in product(*best):
        shapes = tuple(chain.from_iterable(uniform(problem, shape) for shape in chosen))
        yield _evaluate(evaluator, select, shapes, problem.everything)
        if should_stop():
            return


def uniform(problem: Problem, shape: int, num_devices: int | None = None) -> tuple[int, ...]:
    """Makes as many groups of a shape as fit `num_devices` of its kind, or all; what is left over in a node goes to the
    largest shapes that fit."""
    kind = problem.kind_of[shape]
    devices = problem.kinds[kind].num_devices if num_devices is None else num_devices
    by_size = sorted(problem.shapes_on(kind), key=lambda each: -problem.shapes[each].num_devices)
    rooms: list[int] = []
    for node in problem.kinds[kind].nodes:
        rooms.append(min(node, devices))
        devices -= rooms[-1]
    parts = problem.spans[shape]
    shapes = [shape] * (most_groups(parts, rooms) if len(parts) > 1 else 0)
    for room in first_fit(sorted(parts * len(shapes), reverse=True), rooms) or ():
        left = room
        for each in (shape, *by_size):
            count, left = divmod(left, problem.shapes[each].num_devices)
            shapes += [each] * count
    return tuple(shapes)


def model_sizes(problem: Problem) -> list[int]:
    """Sorts models into sets of one size, by rising latency; the closest sizes are merged while there are too many. One
    that generates is never with one that does not."""
    latency_s = np.min(problem.latencies.total_s, axis=0, initial=np.inf)
    generates = [model in problem.generating for model in range(problem.num_models)]
    models = sorted(
        (model for model in range(problem.num_models) if problem.everything >> model & 1),
        key=lambda model: (generates[model], latency_s[model]),
    )
    sizes: list[list[int]] = []
    for model in models:
        is_like = bool(sizes) and generates[model] == generates[sizes[-1][0]]
        if is_like and latency_s[model] <= SIZE_RATIO * latency_s[sizes[-1][0]]:
            sizes[-1].append(model)
        else:
            sizes.append([model])
    while len(sizes) > MOST_SIZES:
        ratios = [
            latency_s[high[0]] / latency_s[low[-1]] if generates[low[0]] == generates[high[0]] else np.inf
            for low, high in pairwise(sizes)
        ]
        closest = int(np.argmin(ratios))
        sizes[closest : closest + 2] = [sizes[closest] + sizes[closest + 1]]
    return [mask_of(size) for size in sizes]


def mask_of_all(masks: list[int]) -> int:
    union_of = 0
    for mask in masks:
        union_of |= mask
    return union_of


def _bucket(evaluator: Evaluator, select: Select, models: int) -> Iterator[Partition]:
    """Tries a bucket on numbers of devices around its share of each kind, in the shapes that suit it best."""
    problem = evaluator.problem
    for kind, there in enumerate(problem.kinds):
        shapes = problem.shapes_on(kind)
        if not shapes:
            continue
        most = there.num_devices - (len(problem.kinds) == 1)  # other buckets need some too
        share = _share(problem, models, shapes, there.num_devices, most)
        found = {
            shape: _evaluate(evaluator, select, uniform(problem, shape, share), models)
            for shape in shapes
            if problem.shapes[shape].num_devices <= share
        }
        yield from found.values()
        suited = sorted(found, key=lambda shape: found[shape].cost)[:NUM_SHAPES]
        step = max(1, there.num_devices // 16)
        around = range(share - step * (NUM_SHARES // 2), share + step * (NUM_SHARES // 2) + 1, step)
        for devices in around:
            if 0 < devices <= most and devices != share:
                for shape in suited:
                    yield _evaluate(evaluator, select, uniform(problem, shape, devices), models)


def _share(problem: Problem, models: int, shapes: list[int], num_devices: int, most: int) -> int:
    """The number of devices of a kind in proportion to load and to memory, whichever is more; at least one."""
    load = np.nanmin(np.where(problem.load[shapes] > 0, problem.load[shapes], np.nan), axis=0)
    members = np.array([bool(models >> model & 1) for model in range(problem.num_models)])
    share = float(np.nansum(load[members]) / max(np.nansum(load), 1e-12))
    return min(max(round(share * num_devices), 1), max(most, 1))


def _evaluate(evaluator: Evaluator, select: Select, shapes: tuple[int, ...], models: int) -> Partition:
    groups = select(evaluator, shapes, models)
    components = [evaluator.weigh(each) for each in evaluator.split(groups)]
    absent = evaluator.missing(models & ~union(groups))[-1]
    return Partition(groups=groups, cost=float(absent) + sum(each.cost for each in components if each is not None))


def _offer(problem: Problem, options: dict[Used, Partition], before: Partition, bucket: Partition) -> None:
    """Keeps a bucket after those before it, if it is the best that uses so many devices."""
    groups = tuple(sorted((*before.groups, *bucket.groups)))
    devices = tuple(problem.devices_on(kind, groups) for kind in range(len(problem.kinds)))
    cost = before.cost + bucket.cost
    if devices in options and options[devices].cost <= cost:
        return
    if problem.packs([shape for shape, _ in groups]):
        options[devices] = Partition(groups=groups, cost=cost)
