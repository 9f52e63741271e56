"""The slicing dynamic program, compiled (dissertation chapter 2, algorithm 1)."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]


@njit(cache=True, nogil=True)
def least_sums(by_end: Floats, bound_s: float) -> tuple[Floats, Ints]:
    """S* of equation 2.8 for 1, 2, ... sequences at once, and the last slice of each prefix.

    Args:
        by_end: [sequences, end, slice]; seconds of a slice of `slice + 1` steps that ends behind step `end`.

    Returns:
        [sequences, steps + 1] seconds and slices.
    """
    num_sequences, num_steps, _ = by_end.shape
    least = np.full((num_sequences, num_steps + 1), np.inf)
    slices = np.zeros((num_sequences, num_steps + 1), np.int32)
    for sequences in range(num_sequences):
        sums = least[sequences]
        sums[0] = 0.0
        for end in range(num_steps):
            row = by_end[sequences, end]
            best, which = np.inf, 0
            for size in range(end + 1):
                seconds = row[size]
                if seconds <= bound_s and sums[end - size] + seconds < best:
                    best = sums[end - size] + seconds
                    which = size + 1
            sums[end + 1] = best
            slices[sequences, end + 1] = which
    return least, slices


@njit(cache=True, nogil=True)
def least_batch(whole_s: Floats, batch: int) -> tuple[float, Ints]:
    """Shares a mini-batch out into batch slices: the least sum, and how many slices have 1, 2, ... sequences."""
    num_sizes = whole_s.shape[0]
    least = np.full(batch + 1, np.inf)
    which = np.zeros(batch + 1, np.int32)
    least[0] = 0.0
    for total in range(1, batch + 1):
        for size in range(1, min(num_sizes, total) + 1):
            seconds = least[total - size] + whole_s[size - 1]
            if seconds < least[total]:
                least[total] = seconds
                which[total] = size
    counts = np.zeros(num_sizes, np.int32)
    left = batch
    while left > 0 and np.isfinite(least[batch]):
        counts[which[left] - 1] += 1
        left -= which[left]
    return least[batch], counts


@njit(cache=True, nogil=True)
def least_bottleneck(by_end: Floats, batch: int) -> float:
    """The least time that the slowest slice of any scheme can have."""
    num_sequences, num_steps, _ = by_end.shape
    whole = np.full(num_sequences, np.inf)
    for sequences in range(num_sequences):
        slowest = np.full(num_steps + 1, np.inf)
        slowest[0] = 0.0
        for end in range(num_steps):
            for size in range(end + 1):
                seconds = max(slowest[end - size], by_end[sequences, end, size])
                slowest[end + 1] = min(slowest[end + 1], seconds)
        whole[sequences] = slowest[num_steps]
    least = np.full(batch + 1, np.inf)
    least[0] = 0.0
    for total in range(1, batch + 1):
        for size in range(1, min(num_sequences, total) + 1):
            least[total] = min(least[total], max(least[total - size], whole[size - 1]))
    return float(least[batch])
