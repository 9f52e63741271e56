"""Neighbours compute while a step is timed, unless its worker refuses."""

import asyncio

import pytest

from headway.core.errors import FailedPreconditionError
from headway.profiler.grid import Point, WorkerLimits
from headway.profiler.neighbours import AccompaniedBench, Neighbour

POINT = Point(prefill_tokens=16, num_decodes=0, context_tokens=0)
LIMITS = WorkerLimits(num_blocks=1024, max_num_seqs=32, max_num_batched_tokens=256, max_model_len=1024, block_size=16)


class NeighbouringBench:
    """Keeps what it was asked to time."""

    def __init__(self) -> None:
        self.asked: list[Point] = []
        self.was_asked = asyncio.Event()

    async def measure(self, point: Point) -> float:
        self.asked.append(point)
        self.was_asked.set()
        return 1.0


class TogetherBench:
    """Takes as long as it is alone."""

    def __init__(self, neighbour: NeighbouringBench) -> None:
        self._neighbour = neighbour

    async def measure(self, point: Point) -> float:
        await self._neighbour.was_asked.wait()
        return 0.25


class ServingBench:
    """Of a worker that has requests."""

    async def measure(self, point: Point) -> float:
        raise FailedPreconditionError("The worker is serving requests.")


async def test_neighbours_compute_the_step_that_is_timed() -> None:
    neighbour = NeighbouringBench()
    bench = AccompaniedBench(TogetherBench(neighbour), [Neighbour(neighbour, LIMITS)])
    assert await bench.measure(POINT) == 0.25
    assert neighbour.asked == [POINT]


async def test_neighbours_are_left_alone_while_the_worker_has_requests() -> None:
    neighbour = NeighbouringBench()
    bench = AccompaniedBench(ServingBench(), [Neighbour(neighbour, LIMITS)])
    with pytest.raises(FailedPreconditionError):
        await bench.measure(POINT)
    assert neighbour.asked == []
