"""Models into groups by even load, without a simulation."""

from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace

from headway.planner.placement.search.problem import Groups, Problem, bits


def fill(problem: Problem, shapes: Sequence[int], models: int) -> Groups:
    """Groups of these shapes with each model once, then with replicas of what weighs most while memory lasts.

    Args:
        shapes: of the groups.
        models: a set; what fits nowhere stays out.
    """
    if not shapes:
        return ()
    filling = _Filling(problem, shapes)
    for model in sorted(bits(models), key=filling.size_of, reverse=True):
        filling.add(model)
    growing = [(-filling.share_of(model), model) for model in bits(models) if filling.replicas[model]]
    heapify(growing)
    while growing:
        model = growing[0][1]
        if filling.add(model):
            heapreplace(growing, (-filling.share_of(model), model))
        else:
            heappop(growing)
    return tuple(sorted(zip(shapes, filling.masks, strict=True)))


class _Filling:
    def __init__(self, problem: Problem, shapes: Sequence[int]) -> None:
        self.problem = problem
        self.shapes = shapes
        self.masks = [0] * len(shapes)
        self.free_bytes = [problem.memory_bytes[shape] for shape in shapes]
        self.busy = [0.0] * len(shapes)
        self.replicas: list[list[int]] = [[] for _ in range(problem.num_models)]
        self.load = {shape: problem.load[shape].tolist() for shape in set(shapes)}
        self.total_load = {shape: sum(load) or 1.0 for shape, load in self.load.items()}

    def size_of(self, model: int) -> float:
        """Returns a model's share of the devices' memory or of the load, whichever is the larger."""
        weights, memory_bytes = self.problem.weights, self.problem.memory_bytes
        roomiest = min(set(self.shapes), key=lambda shape: weights[shape][model] / memory_bytes[shape])
        load = max((self.load[shape][model] / self.total_load[shape] for shape in set(self.shapes)), default=0.0)
        return max(weights[roomiest][model] / (memory_bytes[roomiest] * len(self.shapes)), load)

    def share_of(self, model: int) -> float:
        """Load of each of its replicas."""
        groups = self.replicas[model]
        return float(self.load[self.shapes[groups[0]]][model] / len(groups))

    def add(self, model: int) -> bool:
        """Into the least busy group that can take it; False if none can."""
        weights, able, bit = self.problem.weights, self.problem.able, 1 << model
        best = -1
        for g, shape in enumerate(self.shapes):
            if (
                self.free_bytes[g] >= weights[shape][model]
                and able[shape] & bit
                and not self.masks[g] & bit
                and (best < 0 or self.busy[g] < self.busy[best])
            ):
                best = g
        if best < 0:
            return False
        holders = self.replicas[model]
        for g in holders:
            self.busy[g] -= self.load[self.shapes[g]][model] / len(holders)
        holders.append(best)
        for g in holders:
            self.busy[g] += self.load[self.shapes[g]][model] / len(holders)
        self.masks[best] |= bit
        self.free_bytes[best] -= weights[self.shapes[best]][model]
        return True
