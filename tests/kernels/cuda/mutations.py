"""Faults put into the kernels' source: whether a vector that the source passes finds them."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from headway.kernels.cuda.host import build_host
from headway.kernels.cuda.kernels import CudaKernels
from headway.kernels.cuda.sources import SOURCES
from tests.kernels.cuda.schedules import SCHEDULES

# Of the kernels only what the vector runs, and the emulation compiled once: a mutant takes half a second.
UNIT = '#include "library.cu"\n'


class Step(Protocol):
    def run_with(self, kernels: CudaKernels) -> tuple[Tensor, ...]: ...

    def check(self, *results: Tensor) -> None: ...


@dataclass(frozen=True)
class Vector:
    """A step, and what of the sources it runs: `unit` includes it."""

    unit: str
    step: Step


@dataclass(frozen=True)
class Mutation:
    """`new` in place of an occurrence of `old` in a file of csrc/cuda."""

    name: str
    vector: Vector
    file: str
    old: str
    new: str
    occurrence: int = 0

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"

    def is_found(self, directory: Path, shim: Path) -> bool:
        sources = directory / "cuda"
        shutil.copytree(SOURCES, sources)
        file = sources / self.file
        parts = file.read_text().split(self.old)
        assert len(parts) > self.occurrence + 1, f"{self.file} has no {self.old!r} any more"
        before, after = parts[: self.occurrence + 1], parts[self.occurrence + 1 :]
        file.write_text(self.old.join(before) + self.new + self.old.join(after))
        return fails(self.vector, sources, directory, shim)


def fails(vector: Vector, sources: Path, directory: Path, shim: Path) -> bool:
    """Whether the vector's result is wrong, differs between orders of the threads, or cannot be computed at all."""
    texts = {"unit": UNIT + vector.unit}
    kernels = CudaKernels(build_host(directory, sources=sources, texts=texts, objects=[shim]))
    results = []
    try:
        for schedule in SCHEDULES:
            kernels.set_schedule(schedule)
            results.append(vector.step.run_with(kernels))
            vector.step.check(*results[-1])
    except (RuntimeError, AssertionError):
        return True
    return any(not torch.equal(result[0], results[0][0]) for result in results)
