"""Compiles kernels that are called within other kernels."""

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

borrowing: Callable[[Kernel], Kernel] = njit(cache=True, nogil=True, _nrt=False)  # type: ignore[call-overload]
"""For what allocates no array and returns none; numba refuses it elsewhere. It borrows its caller's arrays without
counting who holds them, which in functions that hand each other tuples of arrays took most of the time."""
