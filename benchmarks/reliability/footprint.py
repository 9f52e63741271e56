"""What the processes of a stack take of the machine, over time."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import psutil

from benchmarks.reliability.serving import Serving

_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """One process at one moment; its forkservers and other children count with it."""

    rss_bytes: int
    num_descriptors: int
    num_threads: int


@dataclass(frozen=True, slots=True)
class Sample:
    """All processes at one moment, by name; `time_s` is monotonic."""

    time_s: float
    processes: Mapping[str, Footprint]

    @property
    def rss_bytes(self) -> int:
        return sum(each.rss_bytes for each in self.processes.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Slope:
    """How much something grows in an hour, by least squares.

    Attributes:
        error_per_h: the standard error of that.
    """

    per_h: float
    error_per_h: float

    @classmethod
    def of(cls, times_s: Sequence[float], values: Sequence[float]) -> "Slope":
        """Of three samples at least."""
        hours = np.asarray(times_s) / _HOUR_S
        hours = hours - hours.mean()
        sample = np.asarray(values, dtype=np.float64)
        spread = float((hours**2).sum())
        per_h = float((hours * sample).sum()) / spread
        rest = sample - sample.mean() - per_h * hours
        return cls(per_h=per_h, error_per_h=float(np.sqrt((rest**2).sum() / (len(sample) - 2) / spread)))


async def sample(stack: Serving) -> Sample:
    """The processes as they are now; one that ends meanwhile is left out."""
    found = {}
    for name, pid in (await stack.pids()).items():
        with suppress(psutil.NoSuchProcess):
            found[name] = _footprint(psutil.Process(pid), with_children=name != "controller")
    return Sample(time.monotonic(), found)


async def watch(stack: Serving, samples: list[Sample], *, every_s: float) -> None:
    """Adds a sample every so often, until it is cancelled."""
    while True:
        samples.append(await sample(stack))
        await asyncio.sleep(every_s)


def _footprint(process: psutil.Process, *, with_children: bool) -> Footprint:
    """The controller's children are the other processes."""
    family = [process, *(process.children(recursive=True) if with_children else ())]
    rss_bytes = num_descriptors = num_threads = 0
    for each in family:
        with suppress(psutil.NoSuchProcess), each.oneshot():
            rss_bytes += each.memory_info().rss
            num_descriptors += each.num_fds()
            num_threads += each.num_threads()
    return Footprint(rss_bytes=rss_bytes, num_descriptors=num_descriptors, num_threads=num_threads)
