"""Times tensor programs on this machine's device."""

import math
import time
from collections.abc import Callable
from itertools import cycle, islice
from statistics import median

import torch

from headway.backends.device import cache_bytes, fault_of, free_bytes
from headway.backends.inputs import make_input
from headway.core.program import Program
from headway.core.timing import Timing
from headway.core.units import format_bytes
from headway.programs.module import build_module

_TICK_S = 1e-3
_ENOUGH_S = 0.25
_LONG_S = 2.0
_MIN_REPEATS = 5
_MAX_REPEATS = 100
_MAX_COPIES = 64
_MAX_ROUNDS = 3
_STEADY = 0.1
_SEED = 42


class Bench:
    """Times programs on one device. Weights come from memory, what operators hand each other comes as warm as it is.

    Args:
        memory_bytes: what a program may take, if as much is free.
    """

    def __init__(self, device: torch.device, *, memory_bytes: int) -> None:
        self._device = device
        self._memory_bytes = memory_bytes
        self._cache_bytes = cache_bytes(device)

    @torch.no_grad()
    def time(self, program: Program, *, number: int) -> Timing:
        """A fault of the program is part of the answer."""
        room_bytes = min(self._memory_bytes, free_bytes(self._device))
        if program.peak_bytes > room_bytes:
            needs, has = format_bytes(program.peak_bytes), format_bytes(room_bytes)
            return Timing(number=number, fault=f"it takes {needs} of memory, and {has} are free")
        try:
            timings_s = self._steady_timings_s(program, room_bytes)
        except Exception as error:  # noqa: BLE001 - whatever an operator raises
            return Timing(number=number, fault=fault_of(error))
        spread = _relative_error(timings_s)
        return Timing(number=number, seconds=median(timings_s), relative_error=spread, num_repeats=len(timings_s))

    def _steady_timings_s(self, program: Program, free_bytes: int) -> list[float]:
        """Returns the timings, in seconds, of the quickest of a few rounds, and stops at the first steady one: whatever
        else the machine does only makes rounds slower.
        """
        run = build_module(program, self._device).forward
        inputs = cycle(self._inputs(program, free_bytes))
        rounds: list[list[float]] = []
        while len(rounds) < _MAX_ROUNDS:
            rounds.append(self._timings_s(run, inputs))
            if _relative_error(rounds[-1]) <= _STEADY:
                break
        return min(rounds, key=median)

    def _timings_s(self, run: Callable[..., object], inputs: "cycle[list[torch.Tensor]]") -> list[float]:
        """Returns timings of one run each, in seconds: means over as many runs as the clock needs. The first runs only
        warm up.
        """
        first_s = self._run_s(run, inputs, 1)
        num_runs = 1
        if first_s < _TICK_S:
            again_s = self._run_s(run, inputs, 10) / 10
            num_runs = max(1, math.ceil(_TICK_S / again_s))
        timings_s: list[float] = []
        ends_s = time.perf_counter() + _ENOUGH_S
        gives_up_s = ends_s + _LONG_S
        while len(timings_s) < _MAX_REPEATS:
            timings_s.append(self._run_s(run, inputs, num_runs) / num_runs)
            now_s = time.perf_counter()
            if now_s > gives_up_s or (now_s > ends_s and len(timings_s) >= _MIN_REPEATS):
                break
        return timings_s

    def _inputs(self, program: Program, free_bytes: int) -> list[list[torch.Tensor]]:
        """Makes as many input sets as fill the cache, each with weights of its own; all other inputs are shared."""
        generator = torch.Generator(self._device).manual_seed(_SEED)

        def make(number: int) -> torch.Tensor:
            return make_input(program.inputs[number], device=self._device, generator=generator)

        first = [make(i) for i in range(len(program.inputs))]
        num_bytes = program.weight_bytes
        if not num_bytes:
            return [first]
        room = (free_bytes - program.peak_bytes) // num_bytes
        num_copies = min(math.ceil(2 * self._cache_bytes / num_bytes), _MAX_COPIES - 1, room)
        copies = [
            [make(i) if value.is_weight else first[i] for i, value in enumerate(program.inputs)]
            for _ in range(num_copies)
        ]
        return [first, *copies]

    def _run_s(self, run: Callable[..., object], inputs: "cycle[list[torch.Tensor]]", num_runs: int) -> float:
        self._synchronize()
        started_s = time.perf_counter()
        for tensors in islice(inputs, num_runs):
            run(*tensors)
        self._synchronize()
        return time.perf_counter() - started_s

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def _relative_error(timings_s: list[float]) -> float:
    middle_s = median(timings_s)
    return median(abs(timing_s - middle_s) for timing_s in timings_s) / middle_s
