"""The dynamic programs of the stage cut, compiled.

Both go over (stages, group of the first of them, first layer, devices): what the layers from `first` on take when they
are cut into so many stages on so many devices. A stage that `s` others follow takes its fastest variant that memory
allows with them.

Devices of several groups are one number: those of each group are a digit of it. A stage takes devices of one group,
which is one digit less, so that what it can be taken from are runs of numbers (`Ints` of `spans`).
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
def fastest_variants(latency_s: Floats, successors: Ints, num_following: int) -> tuple[Floats, Ints]:
    """Finds the fastest variant of each run of layers on each submesh: its latency and its index."""
    num_layers, _, num_submeshes, num_variants = latency_s.shape
    fastest = np.full((num_layers, num_layers, num_submeshes), np.inf)
    which = np.zeros((num_layers, num_layers, num_submeshes), np.int32)
    for first in range(num_layers):
        for last in range(first, num_layers):
            for submesh in range(num_submeshes):
                for variant in range(num_variants):
                    seconds = latency_s[first, last, submesh, variant]
                    is_allowed = successors[first, last, submesh, variant] >= num_following
                    if is_allowed and seconds < fastest[first, last, submesh]:
                        fastest[first, last, submesh] = seconds
                        which[first, last, submesh] = variant
    return fastest, which


@njit(cache=True, nogil=True)
def least_bottleneck(
    latency_s: Floats,
    crossing_s: Floats,
    successors: Ints,
    spans: Ints,
    ends: Ints,
    min_stages: int,
    max_stages: int,
) -> float:
    """The least latency that the slowest stage can have; infinite where no cut ends with the devices that it should.

    Args:
        crossing_s: [layers, groups, submeshes]; what is added where the next stage, behind a layer, is in a group.
        spans: [submeshes, 3]; the group, what its devices are of the number of devices, and the length of a run of
            numbers in which no other group's devices become fewer.
        ends: numbers of devices that a cut may have in all, ascending; the last is all there are.
    """
    num_layers, num_groups = latency_s.shape[0], crossing_s.shape[1]
    later = np.full((num_groups, num_layers + 1, ends[-1] + 1), np.inf)
    later[0, num_layers, 0] = 0.0
    best = np.inf
    for stage in range(max_stages):
        fastest, _ = fastest_variants(latency_s, successors, stage)
        now = np.full(later.shape, np.inf)
        for first in range(num_layers):
            for last in range(first, num_layers):
                for submesh in range(spans.shape[0]):
                    group, taken, run = spans[submesh]
                    for following in range(num_groups):
                        seconds = fastest[first, last, submesh] + crossing_s[last, following, submesh]
                        if seconds < best:
                            _put_slowest(now[group, first], later[following, last + 1], seconds, taken, run)
        if stage + 1 >= min_stages:
            best = min(best, _best_end(now[:, 0], ends)[0])
        later = now
    return best


@njit(cache=True, nogil=True)
def _put_slowest(now: Floats, later: Floats, seconds: float, taken: int, run: int) -> None:
    """Puts a stage before others, by numbers of devices."""
    for start in range(0, now.size, run):
        for devices in range(start + taken, start + run):
            now[devices] = min(now[devices], max(seconds, later[devices - taken]))


@njit(cache=True, nogil=True)
def _best_end(values: Floats, ends: Ints) -> tuple[float, int, int]:
    """The least of [groups, devices] with a right number of devices, and where it is."""
    best, best_group, best_end = np.inf, 0, 0
    for group in range(values.shape[0]):
        for end in ends:
            if values[group, end] < best:
                best, best_group, best_end = values[group, end], group, end
    return best, best_group, best_end


@njit(cache=True, nogil=True)
def least_sum(
    latency_s: Floats,
    crossing_s: Floats,
    successors: Ints,
    spans: Ints,
    ends: Ints,
    min_stages: int,
    max_stages: int,
    bound_s: float,
) -> tuple[int, Ints]:
    """Finds the least sum of latencies of which none is above the bound (equation 3.3); see `least_bottleneck`.

    Returns:
        The number of stages, 0 where there is no such cut, and [stages, 4]: first and last layer, submesh, variant.
    """
    num_layers, num_groups, num_submeshes = crossing_s.shape
    sums = np.full((max_stages + 1, num_groups, num_layers + 1, ends[-1] + 1), np.inf)
    sums[0, 0, num_layers, 0] = 0.0
    choice = np.full(sums.shape, -1, np.int32)
    best_stages, best_s = 0, np.inf
    for stage in range(1, max_stages + 1):
        fastest, _ = fastest_variants(latency_s, successors, stage - 1)
        for first in range(num_layers):
            for last in range(first, num_layers):
                for submesh in range(num_submeshes):
                    group, taken, run = spans[submesh]
                    for following in range(num_groups):
                        seconds = fastest[first, last, submesh] + crossing_s[last, following, submesh]
                        if seconds <= bound_s and seconds < best_s:
                            now, later = sums[stage, group, first], sums[stage - 1, following, last + 1]
                            code = (last * num_submeshes + submesh) * num_groups + following
                            _put_sum(now, choice[stage, group, first], later, seconds, code, taken, run)
        if stage >= min_stages:
            total = _best_end(sums[stage, :, 0], ends)[0]
            if total < best_s:
                best_stages, best_s = stage, total
    _, group, devices = _best_end(sums[best_stages, :, 0], ends)
    return best_stages, _traced(choice[: best_stages + 1], latency_s, successors, spans, group, devices)


@njit(cache=True, nogil=True)
def _put_sum(now: Floats, choice: Ints, later: Floats, seconds: float, code: int, taken: int, run: int) -> None:
    """Puts a stage before others where that is faster than what was found."""
    for start in range(0, now.size, run):
        for devices in range(start + taken, start + run):
            total = seconds + later[devices - taken]
            if total < now[devices]:
                now[devices] = total
                choice[devices] = code


@njit(cache=True, nogil=True)
def _traced(choice: Ints, latency_s: Floats, successors: Ints, spans: Ints, group: int, devices: int) -> Ints:
    """Reads the stages from the first to the last."""
    num_stages, num_groups, num_submeshes = choice.shape[0] - 1, choice.shape[1], spans.shape[0]
    stages = np.empty((num_stages, 4), np.int32)
    first = 0
    for row in range(num_stages):
        stage = num_stages - row
        code = choice[stage, group, first, devices]
        group, code = code % num_groups, code // num_groups
        last, submesh = code // num_submeshes, code % num_submeshes
        _, which = fastest_variants(
            latency_s[first : first + 1, last : last + 1, submesh : submesh + 1],
            successors[first : first + 1, last : last + 1, submesh : submesh + 1],
            stage - 1,
        )
        stages[row, 0], stages[row, 1], stages[row, 2], stages[row, 3] = first, last, submesh, which[0, 0, 0]
        first, devices = last + 1, devices - spans[submesh, 1]
    return stages
