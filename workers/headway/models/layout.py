"""A network's part in a group: what it holds, and how it adds up with the others."""

from collections.abc import Sequence
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


class HeadAxis(Protocol):
    """The ranks, of all stages, among which the output head is split.

    Attributes:
        rank, size: of this rank's place on the axis; the leader is the first.
    """

    rank: int
    size: int

    def gather(self, x: Tensor, *, site: str) -> list[Tensor] | None:
        """Tensors of equal shape, by rank, at rank 0; None elsewhere."""

    def all_gather(self, x: Tensor, *, sizes: Sequence[int], site: str) -> list[Tensor]:
        """Every rank's x, by rank; they differ in dim 0 only, whose `sizes` each rank knows."""


class CacheAxis(Protocol):
    """The ranks among which each sequence's keys and values are split.

    Lists are by rank; the own entry is what was given. Tensors are contiguous.

    Attributes:
        rank, size: of this rank's place on the axis.
    """

    rank: int
    size: int

    def gather(self, x: Tensor, *, sizes: Sequence[int], site: str) -> list[Tensor] | None:
        """Every rank's x at rank 0, None elsewhere; they differ in dim 0 only, whose `sizes` each rank knows."""

    def all_gather(self, x: Tensor, *, sizes: Sequence[int], site: str) -> list[Tensor]:
        """`gather` at every rank."""

    def all_to_all(self, parts: Sequence[Tensor], *, shapes: Sequence[Sequence[int]], site: str) -> list[Tensor]:
        """Sends `parts[i]` to rank i and returns what each rank sent to this one, in the given shapes."""


class Alone:
    """An axis of one rank, of either kind."""

    rank = 0
    size = 1

    def all_reduce(self, x: Tensor, *, site: str) -> Tensor:  # noqa: ARG002
        return x

    def gather(self, x: Tensor, *, sizes: Sequence[int] = (), site: str) -> list[Tensor] | None:  # noqa: ARG002
        return [x]

    def all_gather(self, x: Tensor, *, sizes: Sequence[int], site: str) -> list[Tensor]:  # noqa: ARG002
        return [x]

    def all_to_all(
        self,
        parts: Sequence[Tensor],
        *,
        shapes: Sequence[Sequence[int]],  # noqa: ARG002
        site: str,  # noqa: ARG002
    ) -> list[Tensor]:
        return list(parts)


class CacheExchange(Protocol):
    """The exchange by which ranks along the cache axis hand each other what attention needs.

    A rank has t tokens and h query heads of its own outside attention, of T and H in all; of queries, keys and values
    together it projects p heads of P.
    """

    def gather(self, heads: Tensor, num_tokens: int) -> Tensor:
        """Queries, keys and values [t, p, head_dim] -> [T, P, head_dim], `num_tokens` being T."""

    def room(self, q: Tensor, width: int) -> Tensor:
        """Makes the tensor for this shard's results, float32 [T, H, width]; the results for one rank are one piece of
        it. q is [T, H, head_dim].
        """

    def scatter(self, partials: Tensor) -> Tensor:
        """Sends this shard's results, in a tensor of `room`, and returns the results of all N shards for this rank, [N,
        t, h, width].
        """


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout that a rank's network is built by. `exchange` is None where the cache is not split."""

    shard: ModelShard
    tensor: TensorAxis
    head: HeadAxis
    exchange: CacheExchange | None = None


def alone(spec: ModelSpec) -> Layout:
    """The whole network in one process."""
    return Layout(whole(spec), Alone(), Alone())
