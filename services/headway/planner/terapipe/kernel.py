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


@njit(cache=True, nogil=True)
def one_forward_one_backward(forward_s: Floats, backward_s: Floats, sent_s: Floats, num_micro_batches: int) -> float:
    """Simulates 1F1B whose units are slices: a stage runs forward as many as there are stages behind it, and one whole
    micro-batch, then one backward and one forward in turn. Slices of a micro-batch come back last first.

    Args:
        forward_s, backward_s, sent_s: [stages, slices]; sending is once forward and once backward, each takes half.

    Returns:
        Seconds until the last slice is back.
    """
    num_stages, num_slices = forward_s.shape
    total = num_micro_batches * num_slices
    there = np.full((num_stages, total), np.inf)
    back = np.full((num_stages, total), np.inf)
    began, returned = np.zeros(num_stages, np.int64), np.zeros(num_stages, np.int64)
    now = np.zeros(num_stages)
    moved = True
    while moved:
        moved = False
        for stage in range(num_stages):
            ahead = num_stages - 1 - stage + num_slices
            while returned[stage] < total:
                forwards, backwards = began[stage], returned[stage]
                if forwards < total and forwards - backwards < ahead:
                    number, size = forwards, forwards % num_slices
                    ready = 0.0 if stage == 0 else there[stage - 1, number] + sent_s[stage - 1, size] / 2
                    if not np.isfinite(ready):
                        break
                    now[stage] = max(now[stage], ready) + forward_s[stage, size]
                    there[stage, number] = now[stage]
                    began[stage] += 1
                else:
                    size = num_slices - 1 - backwards % num_slices
                    number = backwards - backwards % num_slices + size
                    if stage == num_stages - 1:
                        ready = there[stage, number]
                    else:
                        ready = back[stage + 1, number] + sent_s[stage, size] / 2
                    if not np.isfinite(ready):
                        break
                    now[stage] = max(now[stage], ready) + backward_s[stage, size]
                    back[stage, number] = now[stage]
                    returned[stage] += 1
                moved = True
    return float(now.max())
