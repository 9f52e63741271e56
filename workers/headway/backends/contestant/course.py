"""What contestants of equal work run on, and are checked against."""

import math
import time
from dataclasses import replace

import torch

from headway.backends.device import cache_bytes
from headway.backends.inputs import make_signed_input
from headway.backends.libraries import Libraries
from headway.backends.placed import PlacedModule, build_placed
from headway.core.program import Program
from headway.programs.module import build_module

_SEED = 42
_EVICTED_BYTES = 32 << 20
"""More than a core's own caches. A model's weights lie in what all cores share, or in memory, when it comes to them; a
GPU's in memory."""


class Course:
    """The same signed inputs for all, the same in every process, and what torch makes of them.

    Args:
        program: one of those of equal work.

    Raises:
        Exception: whatever an operator raises.
    """

    def __init__(self, program: Program, device: torch.device) -> None:
        placement = program.placement
        assert placement is not None
        torch.backends.cudnn.allow_tf32 = False  # of which torch alone makes use in float32, and is wrong by 1e-3 then
        generator = torch.Generator(device).manual_seed(_SEED)
        fixed = set(placement.constants)
        self.device = device
        self.tensors = [
            make_signed_input(value, is_constant=number in fixed, device=device, generator=generator)
            for number, value in enumerate(program.inputs)
        ]
        self.inputs = [tensor for number, tensor in enumerate(self.tensors) if number not in fixed]
        with torch.no_grad():
            self.expected = build_module(replace(program, placement=None), device)(*self.tensors)
        # A model reads each weight once, so that none is in a core's cache; a kernel's have to be made to leave it.
        evicts = bool(program.weight_bytes) and not program.names
        num_bytes = _EVICTED_BYTES if device.type == "cpu" else 2 * cache_bytes(device)
        self._evicted = torch.zeros(num_bytes, dtype=torch.uint8, device=device) if evicts else None

    def evict(self) -> None:
        """Makes weights leave the caches, where they would not be in them."""
        if self._evicted is not None:
            self._evicted.add_(1)

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


class Contestant:
    """A placed program, compiled in this process.

    Attributes:
        deviation: by how much its results differ from torch's.

    Raises:
        Exception: whatever a backend raises.
    """

    def __init__(self, program: Program, course: Course, *, libraries: Libraries, num_threads: int) -> None:
        self._course = course
        self._run: PlacedModule = build_placed(program, course.tensors, libraries=libraries, num_threads=num_threads)
        found = self._run(*course.inputs)
        pairs = zip(found, course.expected, strict=True)
        self.deviation = max((deviation_of(*pair) for pair in pairs), default=0.0)

    def run_s(self) -> float:
        """Runs once; its seconds."""
        self._course.evict()
        self._course.synchronize()
        started_s = time.perf_counter()
        self._run(*self._course.inputs)
        self._course.synchronize()
        return time.perf_counter() - started_s

    def close(self) -> None:
        """It holds nothing but memory."""


def deviation_of(found: torch.Tensor, expected: torch.Tensor) -> float:
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
