"""Workers of a group that share a cache, each as quick as it is told to be."""

import asyncio
from typing import Any

import grpc

from headway.core.cache_sharding import CacheSharding, ShardWork
from headway.core.errors import FailedPreconditionError
from headway.core.kv import BlockUse, SequenceBlocks, ShardUsage
from headway.core.load import LoadReport
from headway.rpc.convert import to_pb
from headway.rpc.interceptors import CallInterceptor
from headway.store.redis import Database
from headway.v1 import common_pb2, worker_pb2
from tests.kvcache.scripted import CachingWorker
from tests.router.scripted import IDLE

WORKER_IDS = ("worker-0", "worker-1")


class ShardedWorker(CachingWorker):
    """A rank of a group of two with a shard each; in between two looks it reads for a second.

    Attributes:
        keys_per_s: how quick it is.
        weights: as the leader was last told.
        num_used_blocks: of each shard, of 100.
        told: every SetSharding that was accepted.
        answers: clear it, and it is asked in vain.
    """

    def __init__(self, database: Database, worker_id: str, *, load: LoadReport = IDLE, rank: int = 0) -> None:
        super().__init__(database, worker_id, load=load, rank=rank)
        self._server = grpc.aio.server(interceptors=[CallInterceptor()])
        self.cache_epoch = "cache-1"
        self.keys_per_s = 10_000
        self.weights = [0.5, 0.5]
        self.num_used_blocks = [10, 10]
        self.told: list[list[float]] = []
        self.answers = asyncio.Event()
        self.answers.set()
        self._num_looks = 0
        self._num_keys = 0

    async def let_lease_lapse(self) -> None:
        """It is no member any more, but holds its connections."""
        assert self._renewal is not None
        assert self._member is not None
        self._renewal.cancel()
        await self._membership.withdraw(self._member)

    async def GetSharding(  # noqa: N802
        self, request: worker_pb2.GetShardingRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> worker_pb2.GetShardingResponse:
        self._num_looks += 1
        await self.answers.wait()
        self._num_keys += self.keys_per_s
        work = ShardWork(num_calls=self._num_looks, num_keys=self._num_keys, seconds=float(self._num_looks))
        shards = tuple(
            ShardUsage(num_used_blocks=used, num_free_blocks=100 - used, weight=weight, worker_ids=(worker_id,))
            for used, weight, worker_id in zip(self.num_used_blocks, self.weights, WORKER_IDS, strict=True)
        )
        sharding = (
            CacheSharding(work=work) if self._rank else CacheSharding(epoch=self.cache_epoch, shards=shards, work=work)
        )
        return worker_pb2.GetShardingResponse(sharding=to_pb(sharding, common_pb2.Sharding))

    async def SetSharding(  # noqa: N802
        self, request: worker_pb2.SetShardingRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> worker_pb2.SetShardingResponse:
        if request.epoch != self.cache_epoch:
            raise FailedPreconditionError("The cache has begun anew.")
        self.weights = list(request.weights)
        self.told.append(self.weights)
        return worker_pb2.SetShardingResponse()

    async def GetBlockTables(  # noqa: N802
        self, request: worker_pb2.GetBlockTablesRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> worker_pb2.GetBlockTablesResponse:
        blocks = tuple(BlockUse(block_id=100 * (i % 2), num_tokens=n, shard=i % 2) for i, n in enumerate((16, 16, 3)))
        sequence = SequenceBlocks(
            label=request.request_id,
            status="running",
            num_prompt_tokens=30,
            num_tokens=36,
            num_computed_tokens=35,
            blocks=blocks,
            num_shards=2,
        )
        return worker_pb2.GetBlockTablesResponse(
            sequences=[to_pb(sequence, common_pb2.SequenceBlocks)], model="llama", block_size=16
        )
