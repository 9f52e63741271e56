"""The dynamic programs of the stage cut, compiled.

Both go over states (stages, first layer, devices left): what the layers from `first` on take when they are cut into so
many stages on so many devices. A stage that `s` others follow takes its fastest variant that memory allows with them.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]


@njit(cache=True, nogil=True)
def undominated(latency_s: Floats, successors: Ints, once_s: Floats) -> tuple[Ints, Ints]:
    """Finds the variants that no pipeline can do without: of two the one is left out that is no faster, lets no more
    stages follow and takes no less once an iteration. Of alike ones the first stays.

    Returns:
        [layers, layers, submeshes, variants], the indices of those that stay, by their latency, and then any others;
        and [layers, layers, submeshes], how many stay.
    """
    num_layers, _, num_submeshes, _ = latency_s.shape
    kept = np.zeros(latency_s.shape, np.int32)
    num_kept = np.zeros((num_layers, num_layers, num_submeshes), np.int32)
    for first in range(num_layers):
        for last in range(first, num_layers):
            for submesh in range(num_submeshes):
                own_s = latency_s[first, last, submesh]
                own_successors, own_once_s = successors[first, last, submesh], once_s[first, last, submesh]
                count = 0
                for variant in np.argsort(own_s, kind="mergesort"):
                    is_needed = np.isfinite(own_s[variant])
                    at = 0
                    while is_needed and at < count:
                        other = kept[first, last, submesh, at]
                        replaces = own_successors[other] >= own_successors[variant]
                        is_needed = not (replaces and own_once_s[other] <= own_once_s[variant])
                        at += 1
                    if is_needed:
                        kept[first, last, submesh, count] = variant
                        count += 1
                num_kept[first, last, submesh] = count
    return kept, num_kept


@njit(cache=True, nogil=True)
def fastest_variants(latency_s: Floats, successors: Ints, num_following: int, bound_s: float) -> tuple[Floats, Ints]:
    """Finds the fastest variant within the bound of each run of layers on each submesh: its latency and its index."""
    num_layers, _, num_submeshes, num_variants = latency_s.shape
    fastest = np.full((num_layers, num_layers, num_submeshes), np.inf)
    which = np.zeros((num_layers, num_layers, num_submeshes), np.int32)
    for first in range(num_layers):
        for last in range(first, num_layers):
            for submesh in range(num_submeshes):
                for variant in range(num_variants):
                    seconds = latency_s[first, last, submesh, variant]
                    is_allowed = seconds <= bound_s and successors[first, last, submesh, variant] >= num_following
                    if is_allowed and seconds < fastest[first, last, submesh]:
                        fastest[first, last, submesh] = seconds
                        which[first, last, submesh] = variant
    return fastest, which


@njit(cache=True, nogil=True)
def least_bottleneck(
    latency_s: Floats, successors: Ints, sizes: Ints, num_devices: int, min_stages: int, max_stages: int
) -> float:
    """The least latency that the slowest stage can have; infinite where no cut uses all the devices."""
    num_layers = latency_s.shape[0]
    later = np.full((num_layers + 1, num_devices + 1), np.inf)
    later[num_layers, 0] = 0.0
    best = np.inf
    for stage in range(max_stages):
        fastest, _ = fastest_variants(latency_s, successors, stage, np.inf)
        now = np.full((num_layers + 1, num_devices + 1), np.inf)
        for first in range(num_layers):
            for last in range(first, num_layers):
                for submesh in range(sizes.shape[0]):
                    seconds = fastest[first, last, submesh]
                    if seconds >= best:
                        continue
                    size = sizes[submesh]
                    for devices in range(size, num_devices + 1):
                        slowest = max(seconds, later[last + 1, devices - size])
                        now[first, devices] = min(now[first, devices], slowest)
        if stage + 1 >= min_stages:
            best = min(best, now[0, num_devices])
        later = now
    return best


@njit(cache=True, nogil=True)
def least_sum(
    latency_s: Floats,
    successors: Ints,
    sizes: Ints,
    num_devices: int,
    min_stages: int,
    max_stages: int,
    bound_s: float,
) -> tuple[int, Ints]:
    """Finds the least sum of latencies of which none is above the bound (equation 3.3).

    Returns:
        The number of stages, 0 where there is no such cut, and [stages, 4]: first and last layer, submesh, variant.
    """
    num_layers = latency_s.shape[0]
    num_submeshes = sizes.shape[0]
    sums = np.full((max_stages + 1, num_layers + 1, num_devices + 1), np.inf)
    sums[0, num_layers, 0] = 0.0
    choice = np.full((max_stages + 1, num_layers + 1, num_devices + 1), -1, np.int32)
    best_stages, best_s = 0, np.inf
    for stage in range(1, max_stages + 1):
        fastest, _ = fastest_variants(latency_s, successors, stage - 1, bound_s)
        for first in range(num_layers):
            for last in range(first, num_layers):
                for submesh in range(num_submeshes):
                    seconds = fastest[first, last, submesh]
                    if seconds >= best_s:
                        continue
                    size = sizes[submesh]
                    code = last * num_submeshes + submesh
                    for devices in range(size, num_devices + 1):
                        total = seconds + sums[stage - 1, last + 1, devices - size]
                        if total < sums[stage, first, devices]:
                            sums[stage, first, devices] = total
                            choice[stage, first, devices] = code
        if stage >= min_stages and sums[stage, 0, num_devices] < best_s:
            best_stages, best_s = stage, sums[stage, 0, num_devices]
    stages = np.empty((best_stages, 4), np.int32)
    first, devices = 0, num_devices
    for row in range(best_stages):
        stage = best_stages - row
        code = choice[stage, first, devices]
        last, submesh = code // num_submeshes, code % num_submeshes
        _, which = fastest_variants(
            latency_s[first : first + 1, last : last + 1, submesh : submesh + 1],
            successors[first : first + 1, last : last + 1, submesh : submesh + 1],
            stage - 1,
            bound_s,
        )
        stages[row, 0], stages[row, 1], stages[row, 2], stages[row, 3] = first, last, submesh, which[0, 0, 0]
        first, devices = last + 1, devices - sizes[submesh]
    return best_stages, stages
