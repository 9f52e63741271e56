"""Decides which share of every sequence each shard of a group's cache is to have.

In attention all ranks of a group wait for the one that takes longest over its shard, so shares are in proportion to the
speeds of the shards, as far as there is room for them. Shares decide where blocks lie; nothing depends on their being
exact, and blocks that move cost time. So they change only for a reason, and a little at a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardState:
    """The state of one shard that a decision is based on.

    Attributes:
        weight: its present share; the shares of all shards add up to 1.
        num_blocks: the number of blocks that it has room for.
        speed: how fast it is read, in proportion to the others; None where that is not known.
    """

    weight: float
    num_blocks: int
    speed: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingLimits:
    """Limits on changes of shares, as parts of what each shard would have if all had the same.

    Attributes:
        min_share: the least share of a shard, however slow it is, so that its speed is still measured.
        threshold: the smallest change that is made.
        max_change: the largest change of a share at once.
    """

    min_share: float = 0.25
    threshold: float = 0.1
    max_change: float = 0.25


def decide(
    shards: Sequence[ShardState], *, num_used_blocks: int, limits: ShardingLimits | None = None
) -> tuple[float, ...] | None:
    """The new shares, 1 together; None where the present ones are good enough.

    Args:
        num_used_blocks: of all shards together, that are to lie in proportion to the shares.
    """
    limits = limits or ShardingLimits()
    even = 1 / len(shards)
    ideal = ideal_shares(shards, num_used_blocks=num_used_blocks, limits=limits)
    largest = max(abs(share - shard.weight) for share, shard in zip(ideal, shards, strict=True))
    if largest <= limits.threshold * even:
        return None
    part = min(1.0, limits.max_change * even / largest)
    return tuple(shard.weight + part * (share - shard.weight) for share, shard in zip(ideal, shards, strict=True))


def ideal_shares(
    shards: Sequence[ShardState], *, num_used_blocks: int, limits: ShardingLimits | None = None
) -> tuple[float, ...]:
    """Shares in proportion to the speeds, 1 together; but what a shard has no room for goes to the others, and none has
    less than the minimum.

    Unless all speeds are known, the present shares stand for them: they are what was decided when they were.
    """
    limits = limits or ShardingLimits()
    speeds = [shard.speed for shard in shards if shard.speed is not None]
    if len(speeds) < len(shards):
        speeds = [shard.weight for shard in shards]
    num_blocks = max(num_used_blocks, 1)
    most = [shard.num_blocks / num_blocks for shard in shards]
    least = [min(limits.min_share / len(shards), share) for share in most]
    return _apportion(speeds, least=least, most=most)


def _apportion(speeds: Sequence[float], *, least: Sequence[float], most: Sequence[float]) -> tuple[float, ...]:
    """Shares in proportion to the speeds within the bounds, 1 together: between the sums of `least` and of `most`.

    All that is bound on the side on which bounds change the sum most stays so; the rest shares what is left.
    """
    shares: dict[int, float] = {}
    free = set(range(len(speeds)))
    while free:
        left = 1 - sum(shares.values())
        total = sum(speeds[shard] for shard in free)
        wanted = {shard: left * (speeds[shard] / total if total else 1 / len(free)) for shard in free}
        bound = {shard: min(max(wanted[shard], least[shard]), most[shard]) for shard in free}
        excess = sum(bound.values()) - sum(wanted.values())
        fixed = {shard for shard in free if excess * (bound[shard] - wanted[shard]) > 0} or free
        shares |= {shard: bound[shard] for shard in fixed}
        free = free - fixed
    total = sum(shares.values())
    return tuple(shares[shard] / total for shard in range(len(speeds)))
