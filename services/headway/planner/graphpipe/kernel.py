"""The partitioner's dynamic program, compiled (GraphPipe, algorithm 1).

It asks not whether so many devices are enough, but how many devices are: then what branches need adds up. Levels count
micro-batches in flight: a stage holds as many as it has stages behind it on the longest way, itself included. A table
[end, begin] gives the least devices for a part behind which stages are at level `end - 1`, and before which one must be
at level `begin` at most. Parts of no operators need no devices; what is not possible needs `NONE`.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]

NONE = 1 << 20


@njit(cache=True, nogil=True)
def levels_of(
    seconds: Floats, held: Floats, crossing: float, size: int, limits: Floats, num_micro_batches: int, found: Ints
) -> bool:
    """Finds for 1, 2, 4, ... devices the highest level that a stage may have; 0 where it takes too long.

    Args:
        seconds: [sizes]; forward and backward.
        held: [3]; bytes of state, of one saved sample, and of gradients.
        size: the micro-batch's, as a power of two.
        limits: seconds for each sample, bytes, bytes per second between and in stages, samples of an iteration.

    Returns:
        Whether any number of devices is enough.
    """
    is_possible = False
    for power in range(found.shape[0]):
        found[power] = 0
        part = size - power
        if part < 0 or part >= seconds.shape[0]:
            continue
        devices, samples = 1 << power, 1 << size
        each_s = seconds[part] / samples + 2 * crossing / (devices * limits[2])
        each_s += 2 * (devices - 1) / devices * held[2] / limits[3] / limits[4]
        free = limits[1] - held[0]
        if each_s > limits[0] or free < 0:
            continue
        one = held[1] * (samples // devices)
        level = found.shape[0] * NONE if one <= 0 else free / one
        found[power] = NONE if level >= num_micro_batches else int(level)
        is_possible = is_possible or found[power] > 0
    return is_possible


@njit(cache=True, nogil=True)
def run_levels(
    seconds: Floats, held: Floats, crossing: Floats, size: int, limits: Floats, num_micro_batches: int, num_powers: int
) -> tuple[Ints, Ints]:
    """Finds the highest levels of all runs of a chain.

    Returns:
        [starts, stops, powers] as of `levels_of`, and [starts, stops] the stops that are possible, with 0 behind them.
    """
    length = seconds.shape[0] - 1
    levels = np.zeros((length, length + 1, num_powers), np.int32)
    stops = np.zeros((length, length + 1), np.int32)
    for start in range(length):
        count = 0
        for stop in range(start + 1, length + 1):
            is_possible = levels_of(
                seconds[stop] - seconds[start],
                held[stop] - held[start],
                crossing[start, stop],
                size,
                limits,
                num_micro_batches,
                levels[start, stop],
            )
            if is_possible:
                stops[start, count] = stop
                count += 1
    return levels, stops


@njit(cache=True, nogil=True)
def devices_at(levels: Ints, level: int) -> int:
    """The fewest devices with which a stage may be at a level."""
    for power in range(levels.shape[0]):
        if levels[power] >= level:
            return 1 << power
    return NONE


@njit(cache=True, nogil=True)
def chain_table(  # noqa: C901 - compiled loops
    levels: Ints, stops: Ints, starts: Ints, lengths: Ints, blocks: Ints, last: int, top: int, num_ends: int
) -> Ints:
    """[ends, positions, begins]; the least devices for the elements from each position up to `last`.

    Args:
        starts, lengths: of the blocks.
        blocks: [blocks, ends, begins]; their tables.
        top: the highest level.
        num_ends: only ends up to this one are of interest.
    """
    table = np.full((top + 2, last + 1, top + 2), NONE, np.int32)
    for end in range(1, num_ends + 1):
        table[end, last, end:] = 0
        for at in range(last - 1, -1, -1):
            row = table[end, at]
            for number in range(stops.shape[1]):
                stop = stops[at, number]
                if stop == 0 or stop > last:
                    break
                behind = table[end, stop]
                for level in range(end, top + 1):
                    if behind[level] < NONE:
                        devices = devices_at(levels[at, stop], level) + behind[level]
                        row[level + 1] = min(row[level + 1], devices)
            for block in range(starts.shape[0]):
                stop = at + lengths[block]
                if starts[block] != at or stop > last:
                    continue
                for between in range(end, top + 2):
                    behind_block = table[end, stop, between]
                    if behind_block < NONE:
                        for begin in range(between, top + 2):
                            devices = blocks[block, between, begin] + behind_block
                            row[begin] = min(row[begin], devices)
            for begin in range(1, top + 2):
                row[begin] = min(row[begin], row[begin - 1])
    return table


@njit(cache=True, nogil=True)
def head_table(
    levels: Ints, stops: Ints, starts: Ints, lengths: Ints, blocks: Ints, table: Ints, *, is_cut: bool
) -> Ints:
    """[ends, levels]; the least devices for a whole chain whose first stage is at just this level.

    Args:
        blocks: [blocks, ends, levels]; tables of the same kind.
        table: of `chain_table`.
        is_cut: whether the last element must be in another stage than the first.
    """
    top, last = table.shape[0] - 2, table.shape[1] - 1
    found = np.full((top + 2, top + 2), NONE, np.int32)
    for end in range(1, top + 2):
        for number in range(stops.shape[1]):
            stop = stops[0, number]
            if stop == 0 or stop > last or (is_cut and stop == last):
                break
            for level in range(end, top + 1):
                if table[end, stop, level] < NONE:
                    devices = devices_at(levels[0, stop], level) + table[end, stop, level]
                    found[end, level] = min(found[end, level], devices)
        for block in range(starts.shape[0]):
            if starts[block] != 0 or lengths[block] > last:
                continue
            for between in range(end, top + 2):
                for level in range(between, top + 1):
                    devices = blocks[block, between, level] + table[end, lengths[block], between]
                    found[end, level] = min(found[end, level], devices)
    return found


@njit(cache=True, nogil=True)
def set_levels(
    seconds: Floats, held: Floats, crossing: Floats, size: int, limits: Floats, num_micro_batches: int, num_powers: int
) -> Ints:
    """[sets, powers]; the highest levels of single sets."""
    levels = np.zeros((seconds.shape[0], num_powers), np.int32)
    for number in range(seconds.shape[0]):
        levels_of(seconds[number], held[number], crossing[number], size, limits, num_micro_batches, levels[number])
    return levels


@njit(cache=True, nogil=True)
def group_heads(levels: Ints, top: int) -> Ints:
    """[groups, ends, levels]; of groups as one stage at just a level, which is that of the end or higher."""
    found = np.full((levels.shape[0], top + 2, top + 2), NONE, np.int32)
    for group in range(levels.shape[0]):
        for level in range(1, top + 1):
            found[group, 1 : level + 1, level] = devices_at(levels[group], level)
    return found


@njit(cache=True, nogil=True)
def group_tails(levels: Ints, top: int) -> Ints:
    """[groups, ends, begins]; of groups as the last stage."""
    found = np.full((levels.shape[0], top + 2, top + 2), NONE, np.int32)
    for group in range(levels.shape[0]):
        for end in range(1, top + 1):
            found[group, end, end + 1 :] = devices_at(levels[group], end)
    return found


@njit(cache=True, nogil=True)
def subset_tables(  # noqa: C901 - compiled loops
    kinds: Ints, levels: Ints, groups: Ints, digits: Ints, strides: Ints
) -> Ints:
    """[subsets, ends, begins]; the least devices for some branches of a fork.

    Args:
        kinds: [kinds, ends, begins]; of one branch of each kind.
        levels: [groups, powers]; of groups that are one stage.
        groups: [groups, kinds]; branches of each.
        digits: [subsets, kinds]; branches of each, in rising order.
        strides: [kinds]; by how much one branch more changes a subset's number.
    """
    top = kinds.shape[1] - 2
    found = np.full((digits.shape[0], top + 2, top + 2), NONE, np.int32)
    for end in range(1, top + 2):
        found[0, end, end:] = 0
    for subset in range(1, digits.shape[0]):
        first = 0
        while digits[subset, first] == 0:
            first += 1
        rest = found[subset - strides[first]]
        for end in range(1, top + 2):
            for begin in range(end, top + 2):
                devices = kinds[first, end, begin] + rest[end, begin]
                found[subset, end, begin] = min(found[subset, end, begin], devices)
        for group in range(groups.shape[0]):
            if groups[group, first] == 0 or (groups[group] > digits[subset]).any():
                continue
            rest = found[subset - (groups[group] * strides).sum()]
            for end in range(1, top + 1):
                own = devices_at(levels[group], end)
                if own < NONE:
                    for begin in range(end + 1, top + 2):
                        devices = own + rest[end, begin]
                        found[subset, end, begin] = min(found[subset, end, begin], devices)
    return found


@njit(cache=True, nogil=True)
def joined(heads: Ints, tails: Ints, shared: Ints, sizes: Ints, subsets: Ints, digits: Ints, strides: Ints) -> Ints:
    """[ends, levels]; a fork with the operators before and behind it, the first of which is at just this level.

    Args:
        heads: [choices, ends, levels]; with what the operator before it shares a stage.
        tails: [choices, ends, begins]; with what the one behind it does.
        shared: [kinds, ends, levels]; where both do so with one branch.
        sizes: [choices, kinds]; branches of each choice: first the kinds, then the groups.
        subsets: of `subset_tables`.
    """
    top, full = subsets.shape[1] - 2, digits.shape[0] - 1
    found = np.full((top + 2, top + 2), NONE, np.int32)
    numbers = (sizes * strides).sum(axis=1)
    for kind in range(shared.shape[0]):
        rest = subsets[full - numbers[kind]]
        for end in range(1, top + 1):
            for level in range(end + 1, top + 1):
                found[end, level] = min(found[end, level], shared[kind, end, level] + rest[end + 1, level])
    for before in range(heads.shape[0]):
        for behind in range(tails.shape[0]):
            if (sizes[before] + sizes[behind] > digits[full]).any():
                continue
            rest = subsets[full - numbers[before] - numbers[behind]]
            for end in range(1, top + 1):
                for level in range(end + 1, top + 1):
                    devices = heads[before, end + 1, level] + tails[behind, end, level] + rest[end + 1, level]
                    found[end, level] = min(found[end, level], devices)
    return found
