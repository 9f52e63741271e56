"""Watches the groups that share a cache, and tells their leaders how to share it.

Nothing of it is stored, and no step waits for it. A group goes on by the weights that it was last given; whoever looks
after it next, a restarted service say, learns them from its leader and goes on from there.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from headway.core.cache_sharding import CacheSharding
from headway.core.errors import HeadwayError
from headway.core.kv import ShardUsage
from headway.kvcache.cache_sharding import ShardState, decide
from headway.kvcache.shard_speeds import ShardSpeeds
from headway.observe.metrics import SHARD_USED_BLOCKS, SHARD_WEIGHT, SHARDING_DECISIONS
from headway.store.membership import Member

log = logging.getLogger(__name__)

# What is left, after each look, of a number of used blocks that has not been reached since.
_PEAK_DECAY = 0.95


class ShardingClient(Protocol):
    """Asks and tells workers; HeadwayError where one does not answer."""

    async def sharding(self, endpoint: str) -> CacheSharding:
        """Returns how a worker's cache lies on its group."""

    async def set_sharding(self, endpoint: str, weights: Sequence[float], *, epoch: str) -> None:
        """Tells a leader how its shards share blocks; the epoch is that of its answer."""


class _Group:
    """The state of one leader's cache, as far as it is known."""

    def __init__(self, sharding: CacheSharding) -> None:
        self.sharding = sharding
        self.speeds = ShardSpeeds()
        self.peak_used_blocks = 0.0  # room that is in use now and then is not given away in between

    def observe(self, sharding: CacheSharding) -> None:
        self.sharding = sharding
        num_used_blocks = sum(shard.num_used_blocks for shard in sharding.shards)
        self.peak_used_blocks = max(num_used_blocks, self.peak_used_blocks * _PEAK_DECAY)

    def decide(self) -> tuple[float, ...] | None:
        states = [
            ShardState(weight=shard.weight, num_blocks=shard.num_blocks, speed=self.speeds.speed(number))
            for number, shard in enumerate(self.sharding.shards)
        ]
        return decide(states, num_used_blocks=round(self.peak_used_blocks))


class CacheSharder:
    """
    Args:
        workers: that are there at the moment, of any rank.
        every_s: between two looks at the groups.
    """

    def __init__(self, client: ShardingClient, *, workers: Callable[[], Iterable[Member]], every_s: float) -> None:
        self._client = client
        self._workers = workers
        self._every_s = every_s
        self._groups: dict[str, _Group] = {}

    async def run(self) -> None:
        """Shares the caches out until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(self._every_s)

    async def look(self) -> None:
        """Looks at every group once, and tells those that are to change."""
        members = list(self._workers())
        endpoints = {member.member_id: member.endpoint for member in members}
        leaders = [member.member_id for member in members if member.is_leader]
        for worker_id in self._groups.keys() - set(leaders):
            self._forget(worker_id)
        await asyncio.gather(*(self._look_at(leader, endpoints) for leader in leaders))

    def shards(self, worker_id: str) -> tuple[ShardUsage, ...]:
        """Returns the shards of a leader's cache at the last look; empty where the cache is whole."""
        group = self._groups.get(worker_id)
        return group.sharding.shards if group else ()

    async def _look_at(self, leader: str, endpoints: Mapping[str, str]) -> None:
        try:
            sharding = await self._client.sharding(endpoints[leader])
            if len(sharding.shards) < 2:
                self._forget(leader)
                return
            group = self._groups.get(leader)
            if group is None or group.sharding.epoch != sharding.epoch:
                group = self._groups[leader] = _Group(sharding)
            group.observe(sharding)
            await self._measure(group, endpoints)
            weights = group.decide()
            if weights is not None:
                await self._client.set_sharding(endpoints[leader], weights, epoch=sharding.epoch)
                SHARDING_DECISIONS.labels(leader).inc()
                log.info("%s shares its cache by %s", leader, ", ".join(f"{weight:.3f}" for weight in weights))
        except HeadwayError as error:
            log.debug("%s's sharding stays as it is: %s", leader, error)
            return
        for number, shard in enumerate(sharding.shards):
            SHARD_WEIGHT.labels(leader, number).set(shard.weight if weights is None else weights[number])
            SHARD_USED_BLOCKS.labels(leader, number).set(shard.num_used_blocks)

    async def _measure(self, group: _Group, endpoints: Mapping[str, str]) -> None:
        """Asks the ranks what they have done, if all are there."""
        owners = [shard.worker_ids for shard in group.sharding.shards]
        worker_ids = [worker_id for shard in owners for worker_id in shard]
        if all(worker_id in endpoints for worker_id in worker_ids):
            answers = await asyncio.gather(*(self._client.sharding(endpoints[name]) for name in worker_ids))
            works = {name: answer.work for name, answer in zip(worker_ids, answers, strict=True)}
            group.speeds.observe([[works[name] for name in shard] for shard in owners])

    def _forget(self, leader: str) -> None:
        group = self._groups.pop(leader, None)
        for number in range(len(group.sharding.shards) if group else 0):
            SHARD_WEIGHT.remove(leader, number)
            SHARD_USED_BLOCKS.remove(leader, number)
