"""The KV caches of a worker's models, as others ask about them."""

from collections.abc import Callable, Sequence

from headway.core.cache_sharding import CacheSharding
from headway.core.engine_kind import Feature
from headway.core.kv import KvUsage, SequenceBlocks
from headway.core.load_order import LoadOrder
from headway.worker.headway_engine import HeadwayEngine
from headway.worker.loaded_encoder import LoadedEncoder
from headway.worker.loaded_model import LoadedModel
from headway.worker.loaded_rank import LoadedRank
from headway.worker.replicas import LoadedReplica, Replicas
from headway.worker.usage import sequences_of, shards_of


class Caches:
    """Args:
    check_alive: raises UnavailableError where the worker is about to end.
    """

    def __init__(self, worker_id: str, replicas: Replicas, *, check_alive: Callable[[], None]) -> None:
        self._worker_id = worker_id
        self._replicas = replicas
        self._check_alive = check_alive

    async def usage(self) -> list[KvUsage]:
        """Returns how the KV blocks of each model are used now."""
        return [await self._usage_of(replica) for replica in self._replicas]

    async def sequences(self, request_id: str) -> tuple[LoadOrder, list[SequenceBlocks]]:
        """Whose request it is, its sequences and their block tables; NotFoundError where none is here."""
        self._check_alive()
        loaded, _ = self._replicas.running(request_id)
        thread = loaded.own_engine(Feature.BLOCK_TABLES).thread
        return loaded.order, await thread.call(lambda engine: sequences_of(engine, request_id))

    async def sharding(self) -> CacheSharding:
        """Returns how the cache lies on the group, and what attention over this worker's shard has cost.

        Where the worker has several models, each has its cache whole.
        """
        loaded = next((replica.loaded for replica in self._replicas), None)
        if loaded is None or isinstance(loaded, LoadedEncoder):
            return CacheSharding()
        if isinstance(loaded, LoadedRank):
            return CacheSharding(work=loaded.runner.shard_work)
        if not isinstance(loaded.engine, HeadwayEngine):
            return CacheSharding()
        own, owners = loaded.engine, loaded.order.shard_owners
        shards = await own.thread.call(lambda engine: shards_of(engine, owners))
        return CacheSharding(epoch=loaded.epoch, shards=shards, work=own.runner.shard_work)

    async def set_sharding(self, weights: Sequence[float], *, epoch: str) -> None:
        """Decides how the shards of the cache with that epoch share blocks from now on; see `Engine.set_shard_weights`.

        Raises:
            FailedPreconditionError: there is no such cache (any more).
            InvalidArgumentError: these are no weights for its shards.
        """
        self._check_alive()
        own = self._replicas.by_epoch(epoch).own_engine(Feature.GROUPS)
        await own.thread.call(lambda engine: engine.set_shard_weights(weights))

    async def _usage_of(self, replica: LoadedReplica) -> KvUsage:
        if not isinstance(replica.loaded, LoadedModel):
            return KvUsage(worker_id=self._worker_id, model=replica.model)
        return await replica.loaded.engine.usage(worker_id=self._worker_id)
