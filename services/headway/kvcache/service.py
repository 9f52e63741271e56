"""The prefix index, fed by one event stream per worker, and the answers from it.

Nothing is stored: after a restart every worker's stream begins with a snapshot, and the index is whole again.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing, suppress

from headway.core.load import LoadReport
from headway.kvcache.capacity import ClusterCapacity, WorkerCapacity
from headway.kvcache.client import WorkerClient
from headway.kvcache.config import KvCacheConfig
from headway.kvcache.feed import BlockUpdate, Feed
from headway.kvcache.index import PrefixIndex
from headway.observe.metrics import INDEX_BLOCKS, INDEX_DRIFT, INDEX_SNAPSHOTS
from headway.rpc.followers import Followers
from headway.rpc.peers import Peers
from headway.store.membership import Member


class KvCacheService:
    """Follows the workers' caches and answers who holds how much of a prefix."""

    def __init__(self, config: KvCacheConfig, *, peers: Peers) -> None:
        self._config = config
        self._peers = peers
        self._workers = WorkerClient(peers)
        self._index = PrefixIndex()
        self._feeds: dict[str, Feed] = {}
        self._loads: dict[str, LoadReport] = {}

    async def watch(self) -> None:
        """Follows every worker's block events and load; runs until cancelled."""
        blocks = Followers(self._peers, "worker", follow=self._follow_blocks, lose=self._forget_blocks)
        loads = Followers(self._peers, "worker", follow=self._follow_load, lose=self._forget_load)
        async with asyncio.TaskGroup() as group:
            group.create_task(blocks.run())
            group.create_task(loads.run())

    def lookup(self, model: str, block_hashes: Sequence[bytes]) -> dict[str, int]:
        """Leading blocks of a prompt that each worker of the model holds, the most first; holders of none left out."""
        worker_ids = [worker_id for worker_id, load in self._loads.items() if load.model == model]
        matches = self._index.lookup(block_hashes, worker_ids=worker_ids)
        return dict(sorted(matches.items(), key=lambda match: (-match[1], match[0])))

    def capacity(self) -> ClusterCapacity:
        """Of every worker that is followed, by id."""
        workers = tuple(self._capacity_of(worker_id) for worker_id in sorted(self._feeds))
        return ClusterCapacity(workers, self._index.num_distinct_blocks)

    async def _follow_blocks(self, member: Member) -> None:
        """Applies one stream, until it breaks, misses events, or is due to be compared with a snapshot."""
        feed = self._feeds.setdefault(member.member_id, Feed(member.member_id, self._index))
        updates = self._workers.watch_blocks(member.endpoint, after=feed.resume_from)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._config.reconcile_every_s), aclosing(updates):
                async for update in updates:
                    if not self._apply(feed, update, member.member_id):
                        break
        feed.ask_for_snapshot()

    async def _follow_load(self, member: Member) -> None:
        loads = self._workers.watch_load(member.endpoint, interval_ms=self._config.load_interval_ms)
        async with aclosing(loads):
            async for load in loads:
                self._loads[member.member_id] = load

    def _apply(self, feed: Feed, update: BlockUpdate, worker_id: str) -> bool:
        num_drifted = feed.num_drifted_blocks
        applied = feed.apply(update)
        INDEX_BLOCKS.labels(worker_id).set(self._index.num_blocks(worker_id))
        if update.snapshot:
            INDEX_SNAPSHOTS.labels(worker_id).inc()
            INDEX_DRIFT.labels(worker_id).inc(feed.num_drifted_blocks - num_drifted)
        return applied

    def _forget_blocks(self, member: Member) -> None:
        if self._feeds.pop(member.member_id, None) is not None:
            self._index.forget(member.member_id)
            INDEX_BLOCKS.labels(member.member_id).set(0)

    def _forget_load(self, member: Member) -> None:
        self._loads.pop(member.member_id, None)

    def _capacity_of(self, worker_id: str) -> WorkerCapacity:
        feed, load = self._feeds[worker_id], self._loads.get(worker_id, LoadReport())
        return WorkerCapacity(
            worker_id=worker_id,
            model=load.model,
            block_size=load.block_size,
            num_blocks=load.num_blocks,
            num_free_blocks=load.num_free_blocks,
            num_indexed_blocks=self._index.num_blocks(worker_id),
            sequence_number=feed.position.sequence_number,
            num_snapshots=feed.num_snapshots,
            num_drifted_blocks=feed.num_drifted_blocks,
        )
