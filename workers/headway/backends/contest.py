"""Times the same work on several backends in turns, so that what else the machine does strikes all alike, and checks
each against torch."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Protocol

import torch

from headway.backends.contestant.course import Contestant, Course
from headway.backends.contestant.entry import Entry
from headway.backends.contestant.process import ContestantProcess
from headway.backends.device import fault_of, free_bytes
from headway.backends.libraries import Libraries
from headway.core.program import Program
from headway.core.timing import Timing

_MOST = 8
_COPIES = 3
"""How often a backend may hold the weights: as it was given them, folded, and packed."""
_WARM_UP = 2
_QUIET = 1.25
"""A run that takes so much longer than the quickest was not alone, and does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """How long a contest is.

    Attributes:
        min_runs, max_runs: of each contestant; of the least, that were not contended.
        enough_s, long_s: seconds for each contestant after which it may end, and ends with what it has.
    """

    min_runs: int
    max_runs: int
    enough_s: float
    long_s: float


HEATS = Length(min_runs=5, max_runs=40, enough_s=0.3, long_s=10.0)
FINAL = Length(min_runs=20, max_runs=80, enough_s=1.0, long_s=30.0)


class Running(Protocol):
    """What takes part, in this process or in one of its own."""

    @property
    def deviation(self) -> float:
        """By how much its results differ from torch's."""

    def run_s(self) -> float:
        """Runs once; its seconds."""

    def close(self) -> None:
        """Frees what it holds."""


@dataclass(slots=True)
class Lane:
    """A contestant and its runs; where it failed, why.

    Attributes:
        timings_s: of its runs after those that warm up.
    """

    running: Running | None = None
    deviation: float = 0.0
    fault: str = ""
    timings_s: list[float] = field(default_factory=list)

    @property
    def quiet_s(self) -> list[float]:
        """Runs that were not contended."""
        least_s = min(self.timings_s, default=0.0)
        return [timing_s for timing_s in self.timings_s if timing_s <= _QUIET * least_s]

    def timing(self, number: int) -> Timing:
        quiet_s = self.quiet_s
        if self.fault or not quiet_s:
            return Timing(number=number, fault=self.fault or "it was never its turn")
        middle_s = median(quiet_s)
        spread = median(abs(timing_s - middle_s) for timing_s in quiet_s) / middle_s
        return Timing(
            number=number,
            seconds=middle_s,
            relative_error=spread,
            num_repeats=len(quiet_s),
            deviation=self.deviation,
            least_s=min(quiet_s),
            num_contended=len(self.timings_s) - len(quiet_s),
        )


def rounds(programs: Sequence[Program]) -> Iterator[tuple[int, list[Program]]]:
    """Yields runs of placed programs with equal work, and all others alone, each with the number of its first."""
    together: list[Program] = []
    work = ""
    for number, program in enumerate(programs):
        own = "" if program.placement is None else replace(program, placement=None).content_hash
        if together and (own != work or not own or len(together) == _MOST):
            yield number - len(together), together
            together = []
        together.append(program)
        work = own
    if together:
        yield len(programs) - len(together), together


class Contest:
    """Times placed programs on one device.

    Args:
        memory_bytes: what they may take together, if as much is free.
        libraries: that are known, also to nobody but this process; by default the built-in ones. With those, finalists
            (`BackendPlacement.trial`) have a process each.
    """

    def __init__(
        self, device: torch.device, *, memory_bytes: int, num_threads: int, libraries: Libraries | None = None
    ) -> None:
        self._libraries = libraries
        self._device = device
        self._memory_bytes = memory_bytes
        self._num_threads = num_threads

    def times(self, programs: Sequence[Program], *, first: int) -> list[Timing]:
        """Times programs of equal work; as many at once as memory holds. A backend's fault is its answer."""
        room = min(self._memory_bytes, free_bytes(self._device)) // (_COPIES * max(programs[0].peak_bytes, 1))
        size = max(1, min(len(programs), room))
        timings = []
        for start in range(0, len(programs), size):
            lanes = self._run_together(programs[start : start + size])
            timings += [lane.timing(first + start + number) for number, lane in enumerate(lanes)]
        return timings

    @torch.no_grad()
    def _run_together(self, programs: Sequence[Program]) -> list[Lane]:
        is_final = any(program.placement is not None and program.placement.trial for program in programs)
        with ExitStack() as stack:
            if is_final and self._libraries is None:
                lanes = [self._apart(program) for program in programs]
            else:
                lanes = self._here(programs, self._libraries or Libraries())
            for lane in lanes:
                if lane.running is not None:
                    stack.callback(lane.running.close)
            _settle(lanes)
            run_lanes(lanes, FINAL if is_final else HEATS)
        return lanes

    def _apart(self, program: Program) -> Lane:
        entry = Entry(program=program, device=self._device.type, num_threads=self._num_threads)
        return Lane(ContestantProcess(entry))

    def _here(self, programs: Sequence[Program], libraries: Libraries) -> list[Lane]:
        try:
            course = Course(programs[0], self._device)
        except Exception as error:  # noqa: BLE001 - whatever an operator raises
            return [Lane(fault=f"torch itself can't run it: {fault_of(error)}") for _ in programs]
        return [self._in_course(program, course, libraries) for program in programs]

    def _in_course(self, program: Program, course: Course, libraries: Libraries) -> Lane:
        lane = Lane()
        with _watched(lane):
            lane.running = Contestant(program, course, libraries=libraries, num_threads=self._num_threads)
        return lane


@contextmanager
def _watched(lane: Lane) -> Iterator[None]:
    """Makes what a contestant raises its fault."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever a backend raises
        lane.fault = fault_of(error)


def _settle(lanes: Sequence[Lane]) -> None:
    """Waits until all are compiled: none computes while others run."""
    for lane in lanes:
        if lane.running is not None:
            with _watched(lane):
                lane.deviation = lane.running.deviation


def run_lanes(lanes: Sequence[Lane], length: Length, *, clock: Callable[[], float] = time.perf_counter) -> None:
    """Runs all in turns, each first once, until every one has enough runs that count, or it takes too long."""
    began_s = clock()
    for number in range(_WARM_UP + length.max_runs):
        able = [lane for lane in lanes if not lane.fault]
        if not able:
            return
        first = number % len(able)
        for lane in able[first:] + able[:first]:
            assert lane.running is not None
            with _watched(lane):
                timing_s = lane.running.run_s()
                if number >= _WARM_UP:
                    lane.timings_s.append(timing_s)
        took_s = (clock() - began_s) / len(able)
        fewest = min((len(lane.quiet_s) for lane in able), default=0)
        if fewest and (took_s > length.long_s or (took_s > length.enough_s and fewest >= length.min_runs)):
            return
