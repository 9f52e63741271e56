"""The problem of choosing a strategy for each node, as costs and matrices: equation 3.1 with a bound on memory.
Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.core.errors import InvalidArgumentError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeldTensor:
    """A tensor that takes memory while it is live.

    Attributes:
        node: whose strategy decides how it is sharded, by its index.
        shard_bytes: [strategies of the node]; on each device.
    """

    node: int
    shard_bytes: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Edge:
    """Resharding between two nodes: R of equation 3.1.

    Attributes:
        source, target: indices of the nodes.
        cost_s: [strategies of source, strategies of target]; infinite where the two exclude each other.
    """

    source: int
    target: int
    cost_s: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StrategyProblem:
    """The problem of choosing one strategy for each node.

    Attributes:
        cost_s: [strategies] of each node; computing and communicating, c + d of equation 3.1. A node is an operator
            with all that follow its sharding.
        live: sets of tensors, by their indices, that are held at the same time.
        memory_limit_bytes: of a device, for each of the sets; None: no bound.
    """

    cost_s: Sequence[Floats]
    edges: Sequence[Edge]
    tensors: Sequence[HeldTensor] = ()
    live: Sequence[Sequence[int]] = ()
    memory_limit_bytes: float | None = None

    def __post_init__(self) -> None:
        for i, cost_s in enumerate(self.cost_s):
            if cost_s.size == 0 or np.isnan(cost_s).any():
                raise _wrong(f"cost_s[{i}]", "has no strategies, or a cost that is not a number")
        for i, edge in enumerate(self.edges):
            shape = self.cost_s[edge.source].size, self.cost_s[edge.target].size
            if edge.source == edge.target or edge.cost_s.shape != shape:
                raise _wrong(f"edges[{i}]", f"joins nodes with {shape} strategies by a matrix of {edge.cost_s.shape}")
            if np.isnan(edge.cost_s).any():
                raise _wrong(f"edges[{i}]", "has a cost that is not a number")
        for i, tensor in enumerate(self.tensors):
            if tensor.shard_bytes.shape != self.cost_s[tensor.node].shape or not np.isfinite(tensor.shard_bytes).all():
                raise _wrong(f"tensors[{i}]", "does not have finite bytes for each strategy of its node")

    def objective_s(self, strategies: Sequence[int]) -> float:
        """Returns the objective of a choice, equation 3.1."""
        nodes = sum(float(cost_s[k]) for cost_s, k in zip(self.cost_s, strategies, strict=True))
        return nodes + sum(float(e.cost_s[strategies[e.source], strategies[e.target]]) for e in self.edges)

    def peak_bytes(self, strategies: Sequence[int]) -> float:
        """The most memory that is held at the same time."""
        held = np.array([tensor.shard_bytes[strategies[tensor.node]] for tensor in self.tensors])
        return max((float(held[list(tensors)].sum()) for tensors in self.live), default=0.0)


def _wrong(field: str, what: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{field} {what}.", hint="Every node needs finite figures for one strategy at least.", field=field
    )
