"""A network's part in a group: what it holds, and how it adds up with the others."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from headway.core.model import ModelSpec
from headway.core.shard import ModelShard, whole


class TensorAxis(Protocol):
    """The ranks among which each layer's weights are split.

    Attributes:
        rank, size: of this rank's place on the axis; alone, every method returns what it was given.
    """

    rank: int
    size: int

    def all_reduce(self, x: Tensor, *, site: str) -> Tensor:
        """The sum over the ranks, in place. `site` says what for, in the counters."""

    def gather(self, x: Tensor, *, site: str) -> list[Tensor] | None:
        """Tensors of equal shape, by rank, at rank 0; None elsewhere."""


class Alone:
    """An axis of one rank."""

    rank = 0
    size = 1

    def all_reduce(self, x: Tensor, *, site: str) -> Tensor:  # noqa: ARG002
        return x

    def gather(self, x: Tensor, *, site: str) -> list[Tensor] | None:  # noqa: ARG002
        return [x]


@dataclass(frozen=True, slots=True)
class Layout:
    """What a rank's network is built by."""

    shard: ModelShard
    tensor: TensorAxis


def alone(spec: ModelSpec) -> Layout:
    """The whole network in one process."""
    return Layout(whole(spec), Alone())
