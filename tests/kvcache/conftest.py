"""A KV-cache service over a real socket, in this process."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import grpc
import pytest

from headway.kvcache.config import KvCacheConfig
from headway.kvcache.prefix import Prefix
from headway.kvcache.service import KvCacheService
from headway.kvcache.servicer import KvCacheServicer
from headway.rpc.interceptors import CallInterceptor
from headway.rpc.peers import Peers
from headway.store.documents import Documents
from headway.store.membership import Membership
from headway.store.redis import Database
from headway.store.schema import PREFIX
from headway.v1 import kvcache_pb2, kvcache_pb2_grpc


@dataclass(frozen=True, slots=True)
class RunningKvCache:
    """A service that watches the workers, and a stub on it."""

    service: KvCacheService
    stub: "kvcache_pb2_grpc.KvCacheServiceAsyncStub"

    async def lookup(self, *block_hashes: bytes, model: str = "llama") -> dict[str, int]:
        request = kvcache_pb2.LookupPrefixRequest(model=model, block_hashes=block_hashes)
        response = await self.stub.LookupPrefix(request)
        return {match.worker_id: match.num_blocks for match in response.matches}

    async def capacity(self) -> kvcache_pb2.GetCapacityResponse:
        return await self.stub.GetCapacity(kvcache_pb2.GetCapacityRequest())


StartKvCache = Callable[..., AbstractAsyncContextManager[RunningKvCache]]


@pytest.fixture
def caching(database: Database) -> StartKvCache:
    """`async with caching() as kvcache:` serves."""

    @asynccontextmanager
    async def start(
        *, reconcile_every_s: float = 60.0, sharding_every_s: float = 60.0
    ) -> AsyncIterator[RunningKvCache]:
        server = grpc.aio.server(interceptors=[CallInterceptor()])
        async with Peers(Membership(database)).watching() as peers:
            config = KvCacheConfig(reconcile_every_s=reconcile_every_s, sharding_every_s=sharding_every_s)
            service = KvCacheService(config, peers=peers, prefixes=Documents(database, PREFIX, Prefix))
            kvcache_pb2_grpc.add_KvCacheServiceServicer_to_server(KvCacheServicer(service), server)
            port = server.add_insecure_port("127.0.0.1:0")
            await server.start()
            watching = asyncio.create_task(service.watch())
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                yield RunningKvCache(service, kvcache_pb2_grpc.KvCacheServiceStub(channel))
            await server.stop(None)
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    return start
