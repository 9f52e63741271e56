"""The transport of tensors from rank to rank."""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor


class Transport(Protocol):
    """Lines between the ranks of one axis, which all call the same methods in the same order.

    Tensors are contiguous. Where a method fills `outs`, by rank, it leaves the own entry alone. Every method raises
    RuntimeError, as torch does, when a rank is gone or does not come within the deadline.
    """

    def all_reduce(self, x: Tensor) -> None:
        """The sum over the ranks, in place, bit for bit the same on each."""

    def gather(self, x: Tensor, outs: Sequence[Tensor]) -> None:
        """Receives the other ranks' tensors at rank 0."""

    def give(self, x: Tensor, num_bytes: Sequence[int]) -> None:
        """Sends this rank's tensor while rank 0 gathers. `num_bytes` has the size of every rank's x."""

    def all_gather(self, x: Tensor, outs: Sequence[Tensor]) -> None:
        """Takes every other rank's x."""

    def all_to_all(self, parts: Sequence[Tensor], outs: Sequence[Tensor]) -> None:
        """Takes what every other rank has for this one; `parts` are what this one has for each."""

    def close(self) -> None:
        """Lets the other ranks see that this one has gone."""
