"""The prefix index, fed by one event stream per worker, the answers from it, and who looks after pins and shards.

The index is not stored: after a restart every worker's stream begins with a snapshot, and it is whole again.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import TypeGuard, TypeVar

from headway.core.errors import HeadwayError, NotFoundError
from headway.core.kv import KvUsage, PinnedPrefix, RequestUsage
from headway.core.load import LoadReport
from headway.core.move import MoveTarget, RequestMove
from headway.core.replica import ReplicaId
from headway.kvcache.cache_sharder import CacheSharder
from headway.kvcache.capacity import ClusterCapacity, WorkerCapacity
from headway.kvcache.client import CacheClient
from headway.kvcache.config import KvCacheConfig
from headway.kvcache.feed import BlockUpdate, Feed
from headway.kvcache.index import PrefixIndex
from headway.kvcache.pins import Home, Pins
from headway.kvcache.prefix import Prefix
from headway.kvcache.shard_map import with_ranges
from headway.observe.metrics import INDEX_BLOCKS, INDEX_DRIFT, INDEX_SNAPSHOTS
from headway.rpc.followers import Followers
from headway.rpc.peers import Peers
from headway.store.documents import Documents
from headway.store.membership import Member

T = TypeVar("T")


class KvCacheService:
    """Follows the workers' caches and answers who holds how much of a prefix.

    Attributes:
        pins: the prefixes that are kept resident.
    """

    def __init__(self, config: KvCacheConfig, *, peers: Peers, prefixes: Documents[Prefix]) -> None:
        self._config = config
        self._peers = peers
        self._workers = CacheClient(peers)
        self._index = PrefixIndex[ReplicaId]()
        self._feeds: dict[ReplicaId, Feed[ReplicaId]] = {}
        self._loads: dict[ReplicaId, LoadReport] = {}
        self._sharder = CacheSharder(
            self._workers, workers=lambda: peers.members("worker"), every_s=config.sharding_every_s
        )
        self.pins = Pins(prefixes, self._workers, homes=self._homes)

    async def watch(self) -> None:
        """Follows block events and load of every group's leader, and looks after its shards; runs until cancelled."""
        blocks = self._followers(follow=self._follow_blocks, lose=self._lose)
        loads = self._followers(follow=self._follow_load, lose=self._lose)
        async with asyncio.TaskGroup() as group:
            group.create_task(blocks.run())
            group.create_task(loads.run())
            group.create_task(self.pins.run())
            group.create_task(self._sharder.run())

    def lookup(self, model: str, block_hashes: Sequence[bytes]) -> dict[str, int]:
        """Leading blocks of a prompt that each worker of the model holds, the most first; holders of none left out."""
        holders = [replica for replica in self._loads if replica.model == model]
        found = self._index.lookup(block_hashes, holders=holders)
        return {holder.worker_id: num for holder, num in sorted(found.items(), key=lambda match: (-match[1], match[0]))}

    def capacity(self) -> ClusterCapacity:
        """Returns the capacity of every model of every worker that is followed, in the order of their ids."""
        workers = tuple(self._capacity_of(replica) for replica in sorted(self._feeds))
        return ClusterCapacity(workers, self._index.num_distinct_blocks)

    async def usage(self) -> list[KvUsage]:
        """Returns how the blocks of every worker's models are used, in the order of worker ids; a worker that does not
        answer is left out.
        """
        members = sorted(self._leaders(), key=lambda member: member.member_id)
        answers = await asyncio.gather(
            *(self._workers.usages(member.endpoint) for member in members), return_exceptions=True
        )
        return [usage for answer in answers if _is_answer(answer) for usage in answer]

    async def describe_request(self, request_id: str) -> list[RequestUsage]:
        """Returns the workers that a request runs on, and the blocks that it has there.

        Raises:
            NotFoundError: no worker runs it.
        """
        answers = await asyncio.gather(
            *(self._describe_part(member, request_id) for member in self._leaders()), return_exceptions=True
        )
        parts = [answer for answer in answers if _is_answer(answer)]
        if not parts:
            raise NotFoundError(
                f"No worker runs the request '{request_id}'.",
                hint="It has ended, or never began: requests can be shown while they run.",
                field="request_id",
            )
        return parts

    async def move_request(self, request_id: str, *, worker_id: str) -> list[RequestMove]:
        """Has a running request go on at another worker; what runs there already stays.

        Raises:
            NotFoundError: there is no such worker, or none runs the request.
            HeadwayError: it could not be moved, and goes on where it is.
        """
        members = {member.member_id: member for member in self._leaders()}
        if worker_id not in members:
            raise NotFoundError(
                f"No worker called '{worker_id}' serves.",
                hint=f"The workers are {', '.join(sorted(members))}.",
                field="worker_id",
            )
        target = MoveTarget(worker_id=worker_id, endpoint=members[worker_id].endpoint)
        parts = await self.describe_request(request_id)
        sources = [members[part.worker_id] for part in parts if part.worker_id != worker_id]
        return [await self._workers.move(source, request_id, target=target) for source in sources]

    async def pin(self, *, name: str, model: str, token_ids: Sequence[int]) -> PinnedPrefix:
        """Keeps a prefix resident on every worker of its model; see `Pins.pin`.

        Raises:
            NotFoundError: no worker serves the model.
        """
        if not any(replica.model == model for replica in self._loads):
            raise NotFoundError(
                f"No worker serves the model '{model}'.", hint="`headway status` shows the models.", field="model"
            )
        prefix = Prefix(name=name, model=model, token_ids=tuple(token_ids), created_at_s=time.time())
        return await self.pins.pin(prefix)

    async def _describe_part(self, member: Member, request_id: str) -> RequestUsage:
        """Returns what one worker holds of a request; where its cache lies on several ranks, with what each of them
        has.
        """
        part = await self._workers.describe(member, request_id)
        if any(sequence.num_shards > 1 for sequence in part.sequences):
            shards = (await self._workers.sharding(member.endpoint)).shards
            return replace(part, sequences=tuple(with_ranges(sequence, shards) for sequence in part.sequences))
        return part

    def _leaders(self) -> list[Member]:
        """A group's other ranks hold parts of the same blocks, and know nothing of sequences."""
        return [member for member in self._peers.members("worker") if member.is_leader]

    def _followers(self, *, follow: Callable[[Member], Awaitable[None]], lose: Callable[[Member], None]) -> Followers:
        return Followers(self._peers, "worker", follow=follow, lose=lose, accepts=lambda member: member.is_leader)

    def _homes(self) -> Iterator[Home]:
        """Replicas whose events are followed: their cache is known by its epoch."""
        for member in self._leaders():
            for replica, feed in self._feeds.items():
                if replica.worker_id == member.member_id and replica in self._loads and feed.position.epoch:
                    yield Home(
                        worker_id=member.member_id,
                        endpoint=member.endpoint,
                        model=replica.model,
                        epoch=feed.position.epoch,
                    )

    async def _follow_blocks(self, member: Member) -> None:
        """Applies one stream, until it breaks, misses events, or is due to be compared with a snapshot."""
        positions = [feed.resume_from for replica, feed in self._feeds.items() if replica.worker_id == member.member_id]
        updates = self._workers.watch_blocks(member.endpoint, after=positions)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._config.reconcile_every_s), aclosing(updates):
                async for model, update in updates:
                    if not self._apply(ReplicaId(member.member_id, model), update):
                        return
        for replica, feed in self._feeds.items():
            if replica.worker_id == member.member_id:
                feed.ask_for_snapshot()

    async def _follow_load(self, member: Member) -> None:
        loads = self._workers.watch_load(member.endpoint, interval_ms=self._config.load_interval_ms)
        async with aclosing(loads):
            async for reports in loads:
                of_worker = {ReplicaId(member.member_id, report.model): report for report in reports if report.model}
                for replica in self._replicas_of(member) - of_worker.keys():
                    self._forget(replica)
                self._loads |= of_worker

    def _apply(self, replica: ReplicaId, update: BlockUpdate) -> bool:
        feed = self._feeds.setdefault(replica, Feed(replica, self._index))
        num_drifted = feed.num_drifted_blocks
        applied = feed.apply(update)
        INDEX_BLOCKS.labels(*replica).set(self._index.num_blocks(replica))
        if update.snapshot:
            INDEX_SNAPSHOTS.labels(*replica).inc()
            INDEX_DRIFT.labels(*replica).inc(feed.num_drifted_blocks - num_drifted)
        return applied

    def _replicas_of(self, member: Member) -> set[ReplicaId]:
        known = self._feeds.keys() | self._loads.keys()
        return {replica for replica in known if replica.worker_id == member.member_id}

    def _forget(self, replica: ReplicaId) -> None:
        """The model is not there any more."""
        self._loads.pop(replica, None)
        if self._feeds.pop(replica, None) is not None:
            self._index.forget(replica)
            INDEX_BLOCKS.labels(*replica).set(0)

    def _lose(self, member: Member) -> None:
        for replica in self._replicas_of(member):
            self._forget(replica)

    def _capacity_of(self, replica: ReplicaId) -> WorkerCapacity:
        feed, load = self._feeds[replica], self._loads.get(replica, LoadReport())
        return WorkerCapacity(
            worker_id=replica.worker_id,
            model=load.model,
            block_size=load.block_size,
            num_blocks=load.num_blocks,
            num_free_blocks=load.num_free_blocks,
            num_indexed_blocks=self._index.num_blocks(replica),
            sequence_number=feed.position.sequence_number,
            num_snapshots=feed.num_snapshots,
            num_drifted_blocks=feed.num_drifted_blocks,
            shards=self._sharder.shards(replica.worker_id),
        )


def _is_answer(answer: T | BaseException) -> TypeGuard[T]:
    """False for a worker that does not answer, or knows nothing; what is no HeadwayError is raised."""
    if isinstance(answer, HeadwayError):
        return False
    if isinstance(answer, BaseException):
        raise answer
    return True
