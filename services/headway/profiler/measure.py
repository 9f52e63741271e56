"""Timing steps on a worker without getting in the way of its requests."""

import asyncio
import math
import time
from statistics import median
from typing import Protocol

from headway.core.errors import FailedPreconditionError, InternalError, UnavailableError
from headway.profiler.grid import Point

_MAX_REPEATS = 3
_ENOUGH_S = 0.1
_FIRST_RETRY_S = 0.05
_LONGEST_RETRY_S = 1.0


class Bench(Protocol):
    """Times engine steps, somewhere."""

    async def measure(self, point: Point) -> float:
        """Seconds of one step; FailedPreconditionError while requests are running."""


async def measure_point(bench: Bench, point: Point, *, patience_s: float) -> float:
    """Median seconds of up to three timings; one that takes 0.1 s is enough.

    Raises:
        UnavailableError: the worker was lost, or had requests to serve for all of `patience_s`.
        InternalError: the worker reports a time that cannot be.
    """
    timings_s: list[float] = []
    started_s = time.monotonic()
    while len(timings_s) < _MAX_REPEATS:
        step_s = await _measure_when_idle(bench, point, patience_s=patience_s)
        if not (math.isfinite(step_s) and step_s > 0):
            raise InternalError(f"The worker timed a step at {step_s} s ({point}).")
        timings_s.append(step_s)
        if time.monotonic() - started_s > _ENOUGH_S:
            break
    return median(timings_s)


async def _measure_when_idle(bench: Bench, point: Point, *, patience_s: float) -> float:
    retry_s = _FIRST_RETRY_S
    give_up_s = time.monotonic() + patience_s
    while True:
        try:
            return await bench.measure(point)
        except FailedPreconditionError as error:
            if time.monotonic() > give_up_s:
                raise UnavailableError(
                    f"The worker could not be measured for {patience_s:.0f} s: {error.message}",
                    hint="Profile it when it is idle.",
                ) from error
        await asyncio.sleep(retry_s)
        retry_s = min(2 * retry_s, _LONGEST_RETRY_S)
