"""Times kernels on a GPU, with buffers that the L2 cache has forgotten since the last use."""

import statistics
from collections.abc import Callable, Sequence

import torch

from benchmarks.kernels.timings import Bandwidths

Launch = Callable[[], object]

COPY_BYTES, BUS_BYTES = 1 << 30, 1 << 26
NUM_COPIES_AHEAD = 6  # some milliseconds
REPEATS = 25


def median_us(launches: Sequence[Launch], *, is_captured: bool = True) -> float:
    """Times one launch among several, one after the other: on buffers of their own, so large together that none is in
    the L2 cache when its turn comes again.

    Args:
        is_captured: as a graph, so that the host's part does not count; False for what is much longer than that.
    """
    for launch in launches:
        launch()
    torch.cuda.synchronize()
    run = _captured(launches) if is_captured else lambda: [launch() for launch in launches]
    times = [_elapsed_us(run) / len(launches) for _ in range(REPEATS)]
    return statistics.median(times)


def median_behind_us(launch: Launch) -> float:
    """Times what a call launches, behind copies that keep the device at work until all of it is launched."""
    source, target = (torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda") for _ in range(2))
    times = []
    for _ in range(REPEATS):
        for _ in range(NUM_COPIES_AHEAD):
            target.copy_(source)
        times.append(_elapsed_us(launch))
    return statistics.median(times)


def _elapsed_us(run: Launch) -> float:
    """Microseconds on the device, from where the current stream is to where it is after `run`; waits for that."""
    start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    start.record()
    run()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3


def _captured(launches: Sequence[Launch]) -> Launch:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for launch in launches:
            launch()
    return graph.replay


def bandwidths() -> Bandwidths:
    """Measures the memory, read and written, in a copy of a gibibyte, and the bus in one from or to pinned memory.

    None of them as a graph: there a copy becomes a node of its own kind, which on an H200 moves 2.8 TB/s where the
    launched one moves 4.2 TB/s.
    """
    source, target = (torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda") for _ in range(2))
    host = torch.empty(BUS_BYTES, dtype=torch.uint8).pin_memory()
    part = target[:BUS_BYTES]
    return Bandwidths(
        memory=2 * COPY_BYTES / median_us([lambda: target.copy_(source)], is_captured=False),
        to_host=BUS_BYTES / median_us([lambda: host.copy_(part, non_blocking=True)], is_captured=False),
        to_device=BUS_BYTES / median_us([lambda: part.copy_(host, non_blocking=True)], is_captured=False),
    )
