"""What holds in each option of a node, on each of several meshes. Pure."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from headway.planner.intra.quantities import Floats

Indices = NDArray[np.intp]
T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True, eq=False)
class Picked(Sequence[T]):
    """A sequence of items out of few different ones."""

    values: Sequence[T]
    which: Indices

    def __len__(self) -> int:
        return len(self.which)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[T]: ...
    def __getitem__(self, at: int | slice) -> T | Sequence[T]:
        if isinstance(at, slice):
            return Picked(self.values, self.which[at])
        return self.values[int(self.which[at])]


@dataclass(frozen=True, slots=True, eq=False)
class Chosen(Generic[T]):
    """Attributes:
    values: those that occur.
    which: [options, meshes], or [options, 1] where it is the same on all meshes; indices of `values`.
    """

    values: Sequence[T]
    which: Indices

    @property
    def num_options(self) -> int:
        return len(self.which)

    def map(self, function: Callable[[T], U]) -> "Chosen[U]":
        """The function's results; equal ones are one."""
        values, of = distinct([function(value) for value in self.values])
        return Chosen(values, of[self.which])

    def pick(self, figures: Floats) -> Floats:
        """Maps [values, meshes], a figure of each value, to [options, meshes]."""
        return np.asarray(figures[self.which, np.arange(figures.shape[1])])

    def on(self, mesh: int) -> Picked[T]:
        """What holds in each option on one mesh."""
        return Picked(self.values, self.which[:, mesh if self.which.shape[1] > 1 else 0])


def of_options(items: Iterable[T]) -> Chosen[T]:
    """One item for each option, on all meshes."""
    values, which = distinct(items)
    return Chosen(values, which[:, None])


def together(first: Chosen[T], second: Chosen[U]) -> Chosen[tuple[T, U]]:
    """Pairs of what two say."""
    codes = first.which * len(second.values) + second.which
    found, which = np.unique(codes, return_inverse=True)
    pairs = [(first.values[code // len(second.values)], second.values[code % len(second.values)]) for code in found]
    return Chosen(pairs, which.reshape(codes.shape))


def distinct(items: Iterable[T]) -> tuple[list[T], Indices]:
    """The different ones, and for each item which of them it is."""
    numbers: dict[T, int] = {}
    which = np.array([numbers.setdefault(item, len(numbers)) for item in items], dtype=np.intp)
    return list(numbers), which


def without_meshes(which: Indices) -> Indices:
    """[options, 1] where all meshes agree."""
    return which[:, :1] if which.shape[1] > 1 and bool((which == which[:, :1]).all()) else which
