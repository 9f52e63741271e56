"""Notes calls of the CPU's kernels instead of making them."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

import torch
from torch import Tensor

from headway.kernels.arena import Arena

NO_FAULTS: Final[Mapping[int, str]] = MappingProxyType({})

Kernel: TypeAlias = Callable[[bytes], int]
"""Takes a struct of operands; returns 0 or a fault in their content."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A call of a kernel. `faults` says what the codes mean that it returns."""

    kernel: Kernel
    operands: bytes
    faults: Mapping[int, str]


class Tape:
    """The calls, in their order. What they write to, unless it was given to them, lies in an arena."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self.launches: list[Launch] = []

    def add(self, kernel: Kernel, operands: bytes, faults: Mapping[int, str]) -> None:
        self.launches.append(Launch(kernel, operands, faults))

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Makes a tensor for a call to write to."""
        return self._arena.empty(shape, dtype)


class _Thread(threading.local):
    tape: Tape | None = None


_thread = _Thread()


def _open_tape() -> Tape | None:
    """The tape that this thread's calls go to; None if they are made."""
    return _thread.tape


@contextmanager
def taping(tape: Tape) -> Iterator[None]:
    """Sends this thread's calls to a tape."""
    assert _thread.tape is None, "one tape at a time"
    _thread.tape = tape
    try:
        yield
    finally:
        _thread.tape = None


def launch(kernel: Kernel, operands: bytes, faults: Mapping[int, str] = NO_FAULTS) -> None:
    """Calls a kernel of a step, or puts the call on this thread's tape."""
    tape = _open_tape()
    if tape is not None:
        tape.add(kernel, operands, faults)
    elif fault := kernel(operands):
        raise ValueError(faults[fault])


def empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Makes a tensor for a kernel to write to."""
    tape = _open_tape()
    return torch.empty(shape, dtype=dtype) if tape is None else tape.empty(shape, dtype)
