"""Chooses the cache shard of a sequence's next block, and the blocks that should move to another shard.

With a cache over several ranks, every rank attends to the blocks on its own shard, of all sequences at once. A step
takes as long as the rank with the most work for its speed, so two things are kept in proportion to the shards' weights:

    each sequence     the one that runs alone, or prefills, is not to wait for one rank: of n blocks, shard s has
                      weight_s * n, give or take one
    their sum         what many short sequences leave to rounding must not add up on one rank: the first block, and any
                      tie, goes where least is used

Short sequences are not kept together: all ranks take part in every row in any case, so that would save nothing.
"""

import math
from collections.abc import Sequence

from headway.core.errors import InvalidArgumentError


class ShardSelector:
    """The weights of the shards, and the choices that follow from them.

    Each choice is a step of the quota method of apportionment (Balinski and Young, 1975): of the shards that would not
    get ahead of their share, the one that is due first. So nobody is more than a block off, either way, while there is
    room.
    """

    def __init__(self, num_shards: int, *, num_blocks: int) -> None:
        """Starts with equal weights; every shard has `num_blocks` blocks."""
        self._num_blocks = num_blocks
        self._weights = (1.0,) * num_shards
        self.set_weights(self._weights)

    @property
    def weights(self) -> tuple[float, ...]:
        """The weight of each shard; they sum to 1."""
        return self._weights

    def set_weights(self, weights: Sequence[float]) -> None:
        """Sets what shards are to have in proportion to each other; one of weight 0 is used where no other has room.

        Raises:
            InvalidArgumentError: there is not one weight for each shard, one is negative or infinite, or all are 0.
        """
        total = sum(weights)
        is_valid = len(weights) == len(self._weights) and all(0 <= weight < math.inf for weight in weights)
        if not is_valid or not 0 < total < math.inf:
            raise InvalidArgumentError(
                f"weights are {tuple(weights)}; {len(self._weights)} are needed, none negative and not all 0.",
                field="weights",
            )
        self._weights = tuple(weight / total for weight in weights)
        self._costs = [1 / weight if weight else math.inf for weight in self._weights]

    def choose(self, own: Sequence[int], used: Sequence[int]) -> int:
        """The shard of a sequence's next block; one of them has room.

        Args:
            own: blocks that the sequence has on each shard. Where it has none, its first one goes as if all used blocks
                were of one sequence, which keeps their sum in proportion.
            used: blocks of each shard that are not available.
        """
        counts = own if any(own) else used
        num_next = sum(counts) + 1
        choices = [
            (counts[shard] >= weight * num_next, (counts[shard] + 1) * self._costs[shard], used[shard], shard)
            for shard, weight in enumerate(self._weights)
            if used[shard] < self._num_blocks
        ]
        return min(choices)[-1]

    def imbalance(self, loads: Sequence[int]) -> float:
        """The highest load of a shard over its share of all loads; 1 where they are as the weights say."""
        num_blocks = sum(loads)
        if num_blocks == 0:
            return 1.0
        return max(load * cost for load, cost in zip(loads, self._costs, strict=True) if load) / num_blocks

    def next_move(self, loads: Sequence[int], *, used: Sequence[int]) -> tuple[int, int] | None:
        """(source, destination): the shards between which moving one block helps most; None if that helps nobody.

        Each such move makes the higher of two loads, relative to the weights, lower, so a series of them ends.
        """
        costs = self._costs
        roomy = [shard for shard, num_used in enumerate(used) if num_used < self._num_blocks]
        loaded = [shard for shard, load in enumerate(loads) if load]
        if not roomy or not loaded:
            return None
        source = max(loaded, key=lambda shard: loads[shard] * costs[shard])
        destination = min(roomy, key=lambda shard: (loads[shard] + 1) * costs[shard])
        helps = (loads[destination] + 1) * costs[destination] < loads[source] * costs[source]
        return (source, destination) if helps else None

    def gain(self, own: Sequence[int], *, source: int, destination: int) -> float:
        """Returns how much more a sequence has on `source` than it would have on `destination`, relative to their
        weights.
        """
        if own[source] == 0:
            return -math.inf
        if self._weights[source] == 0:
            return math.inf
        return own[source] * self._costs[source] - (own[destination] + 1) * self._costs[destination]
