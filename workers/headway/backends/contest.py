"""Times the same work on several backends in turns, so that what else the machine does strikes all alike, and checks
each against torch."""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import torch

from headway.backends.device import fault_of, free_bytes
from headway.backends.inputs import make_signed_input
from headway.backends.libraries import Libraries
from headway.backends.placed import PlacedModule, build_placed
from headway.core.program import Program
from headway.core.timing import Timing
from headway.programs.module import build_module

_SEED = 42
_MOST = 8
_COPIES = 3
"""How often a backend may hold the weights: as it was given them, folded, and packed."""
_WARM_UP = 2
_MIN_ROUNDS = 5
_MAX_ROUNDS = 40
_ENOUGH_S = 0.3
_LONG_S = 10.0
_EVICTED_BYTES = 32 << 20
"""More than a core's own caches. A model's weights lie in what all cores share, or in memory, when it comes to them."""
_QUIET = 1.25
"""A run that takes so much longer than the quickest was not alone, and does not count."""


@dataclass(slots=True)
class _Candidate:
    run: PlacedModule | None = None
    timing: Timing | None = None
    deviation: float = 0.0
    timings_s: list[float] = field(default_factory=list)


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
        libraries: that are known; by default the built-in ones.
    """

    def __init__(
        self, device: torch.device, *, memory_bytes: int, num_threads: int, libraries: Libraries | None = None
    ) -> None:
        self._libraries = libraries or Libraries()
        self._device = device
        self._memory_bytes = memory_bytes
        self._num_threads = num_threads
        self._evicted = torch.zeros(_EVICTED_BYTES, dtype=torch.uint8, device=device)
        torch.backends.cudnn.allow_tf32 = False  # of which torch alone makes use in float32, and is wrong by 1e-3 then

    def all_times(self, programs: Sequence[Program]) -> list[Timing]:
        """Times placed programs, those of equal work in turns."""
        return [timing for first, together in rounds(programs) for timing in self.times(together, first=first)]

    def times(self, programs: Sequence[Program], *, first: int) -> list[Timing]:
        """Times programs of equal work; as many at once as memory holds. A backend's fault is its answer."""
        room = min(self._memory_bytes, free_bytes(self._device)) // (_COPIES * max(programs[0].peak_bytes, 1))
        size = max(1, min(len(programs), room))
        timings = []
        for start in range(0, len(programs), size):
            timings += self._times_together(programs[start : start + size], first=first + start)
        return timings

    @torch.no_grad()
    def _times_together(self, programs: Sequence[Program], *, first: int) -> list[Timing]:
        tensors = self._tensors(programs[0])
        try:
            expected = build_module(replace(programs[0], placement=None), self._device)(*tensors)
        except Exception as error:  # noqa: BLE001 - whatever an operator raises
            fault = f"torch itself can't run it: {fault_of(error)}"
            return [Timing(number=first + number, fault=fault) for number in range(len(programs))]
        placement = programs[0].placement
        assert placement is not None
        fixed = set(placement.constants)
        inputs = [tensor for number, tensor in enumerate(tensors) if number not in fixed]
        candidates = [
            self._candidate(program, tensors, inputs, expected, number=first + number)
            for number, program in enumerate(programs)
        ]
        # A model reads each weight once, so that none is in a core's cache; a kernel's have to be made to leave it.
        evicts = bool(programs[0].weight_bytes) and not programs[0].names
        self._run(candidates, inputs, evicts=evicts)
        return [_timing(candidate, first + number) for number, candidate in enumerate(candidates)]

    def _tensors(self, program: Program) -> list[torch.Tensor]:
        generator = torch.Generator(self._device).manual_seed(_SEED)
        placement = program.placement
        assert placement is not None
        return [
            make_signed_input(
                value, is_constant=number in placement.constants, device=self._device, generator=generator
            )
            for number, value in enumerate(program.inputs)
        ]

    def _candidate(
        self,
        program: Program,
        tensors: Sequence[torch.Tensor],
        inputs: Sequence[torch.Tensor],
        expected: Sequence[torch.Tensor],
        *,
        number: int,
    ) -> _Candidate:
        try:
            run = build_placed(program, tensors, libraries=self._libraries, num_threads=self._num_threads)
            deviation = max((_deviation(*pair) for pair in zip(run(*inputs), expected, strict=True)), default=0.0)
        except Exception as error:  # noqa: BLE001 - whatever a backend raises
            return _Candidate(timing=Timing(number=number, fault=fault_of(error)))
        return _Candidate(run=run, deviation=deviation)

    def _run(self, candidates: Sequence[_Candidate], inputs: Sequence[torch.Tensor], *, evicts: bool) -> None:
        running = [each for each in candidates if each.run is not None]
        ends_s, gives_up_s = (time.perf_counter() + limit * len(running) for limit in (_ENOUGH_S, _LONG_S))
        for number in range(_WARM_UP + _MAX_ROUNDS):
            for each in running[number % len(running) :] + running[: number % len(running)] if running else ():
                timing_s = self._run_s(each, inputs, evicts=evicts)
                if number >= _WARM_UP:
                    each.timings_s.append(timing_s)
            now_s = time.perf_counter()
            is_enough = now_s > ends_s and number >= _WARM_UP + _MIN_ROUNDS
            if is_enough or (now_s > gives_up_s and number > _WARM_UP):
                return

    def _run_s(self, candidate: _Candidate, inputs: Sequence[torch.Tensor], *, evicts: bool) -> float:
        assert candidate.run is not None
        if evicts:
            self._evicted.add_(1)
        self._synchronize()
        started_s = time.perf_counter()
        candidate.run(*inputs)
        self._synchronize()
        return time.perf_counter() - started_s

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def _timing(candidate: _Candidate, number: int) -> Timing:
    if candidate.timing is not None:
        return candidate.timing
    least_s = min(candidate.timings_s)
    quiet_s = [timing_s for timing_s in candidate.timings_s if timing_s <= _QUIET * least_s]
    middle_s = median(quiet_s)
    spread = median(abs(timing_s - middle_s) for timing_s in quiet_s) / middle_s
    return Timing(
        number=number, seconds=middle_s, relative_error=spread, num_repeats=len(quiet_s), deviation=candidate.deviation
    )


def _deviation(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference, as a share of the largest value; infinite where one is no number."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return math.inf
    if not expected.numel():
        return 0.0
    if not expected.dtype.is_floating_point:
        return 0.0 if torch.equal(found, expected) else math.inf
    largest = float(expected.abs().max())
    difference = float((found - expected).abs().max())
    if not math.isfinite(difference):
        return math.inf
    return difference / largest if largest else difference
