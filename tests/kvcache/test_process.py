"""The KV-cache service as a process of its own: killed, and whole again after its restart."""

import asyncio
import time

from headway.core.errors import UnavailableError
from headway.rpc.peers import Peers
from headway.store.membership import Membership
from headway.store.redis import Database
from headway.v1 import kvcache_pb2, kvcache_pb2_grpc
from tests.kvcache.process import kvcache_process
from tests.kvcache.scripted import CachingWorker

HASHES = [bytes([i]) * 16 for i in range(100)]


async def until_it_knows(peers: Peers, num_blocks: int) -> None:
    request = kvcache_pb2.LookupPrefixRequest(model="llama", block_hashes=HASHES)
    deadline_s = time.monotonic() + 60.0
    while time.monotonic() < deadline_s:
        try:
            response = await peers.call(
                "kvcache", kvcache_pb2_grpc.KvCacheServiceStub, lambda stub: stub.LookupPrefix(request, timeout=1.0)
            )
        except UnavailableError:
            await peers.wait_for_change(timeout_s=0.1)
            continue
        if [match.num_blocks for match in response.matches] == [num_blocks]:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the service did not learn of the blocks")


async def test_a_killed_service_is_whole_again_after_its_restart(
    database: Database, redis_url: str, namespace: str
) -> None:
    async with (
        CachingWorker.running(database, "worker-0") as worker,
        Peers(Membership(database)).watching() as peers,
    ):
        worker.store(*HASHES[:60])
        async with kvcache_process(redis_url, namespace) as process:
            await until_it_knows(peers, 60)
            process.kill()
            await process.wait()
        worker.store(*HASHES[60:])
        async with kvcache_process(redis_url, namespace) as process:
            await until_it_knows(peers, 100)
            process.terminate()
            assert await process.wait() == 0
