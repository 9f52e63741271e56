"""Times of kernels on a GPU, with caches that the L2 cache has forgotten since the last use."""

import statistics
from collections.abc import Callable, Sequence

import torch

Launch = Callable[[], object]

COPY_BYTES = 1 << 30
REPEATS = 25


def median_us(launches: Sequence[Launch]) -> float:
    """Of one launch, in a captured graph that makes all of them one after the other: on buffers of their own, so
    large together that none is in the L2 cache when its turn comes again."""
    for launch in launches:
        launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for launch in launches:
            launch()
    times: list[float] = []
    for _ in range(REPEATS):
        start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / len(launches))
    return statistics.median(times)


def copy_bytes_per_us() -> float:
    """What the memory moves, read and written, in a copy of a gibibyte."""
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * COPY_BYTES / median_us([lambda: target.copy_(source)])
