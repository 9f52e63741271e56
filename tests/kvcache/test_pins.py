"""Pinned prefixes: told to every worker of the model, again after a restart, and taken back."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import grpc
import pytest

from headway.store.redis import Database
from headway.v1 import common_pb2, kvcache_pb2, worker_pb2
from tests.kvcache.conftest import RunningKvCache, StartKvCache
from tests.kvcache.scripted import CachingWorker
from tests.router.harness import eventually
from tests.router.scripted import IDLE

TOKENS = tuple(range(40))


class PinningWorker(CachingWorker):
    """Keeps what it is told to, and runs one request.

    Attributes:
        pins: token ids by name, as last told; None before.
        fault: of every pin.
    """

    pins: dict[str, tuple[int, ...]] | None = None
    fault = ""

    async def SetPins(  # noqa: N802
        self, request: worker_pb2.SetPinsRequest, context: Any
    ) -> worker_pb2.SetPinsResponse:
        self.pins = {pin.name: tuple(pin.token_ids) for pin in request.pins}
        num_blocks = 0 if self.fault else 2
        states = [worker_pb2.PinState(name=name, num_blocks=num_blocks, fault=self.fault) for name in self.pins]
        return worker_pb2.SetPinsResponse(states=states)

    async def GetBlocks(  # noqa: N802
        self, request: worker_pb2.GetBlocksRequest, context: Any
    ) -> worker_pb2.GetBlocksResponse:
        return worker_pb2.GetBlocksResponse(usage=common_pb2.KvUsage(worker_id=self.worker_id, num_used_blocks=7))

    async def GetBlockTables(  # noqa: N802
        self, request: worker_pb2.GetBlockTablesRequest, context: Any
    ) -> worker_pb2.GetBlockTablesResponse:
        if request.request_id != f"req-of-{self.worker_id}":
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such request")
        sequence = common_pb2.SequenceBlocks(label=request.request_id, status="running")
        return worker_pb2.GetBlockTablesResponse(sequences=[sequence], model="llama", block_size=16)


async def pin(kvcache: RunningKvCache, name: str = "system", *, model: str = "llama") -> kvcache_pb2.PinnedPrefix:
    request = kvcache_pb2.PinPrefixRequest(name=name, model=model, token_ids=TOKENS)
    return (await kvcache.stub.PinPrefix(request)).prefix


def told(kvcache: RunningKvCache, *workers: PinningWorker) -> Callable[[], bool]:
    return lambda: all(worker.pins is not None for worker in workers) and bool(kvcache)


async def test_a_prefix_is_pinned_on_every_worker_of_its_model(database: Database, caching: StartKvCache) -> None:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(PinningWorker.running(database, "worker-0"))
        second = await stack.enter_async_context(PinningWorker.running(database, "worker-1"))
        other = await stack.enter_async_context(
            PinningWorker.running(database, "worker-2", load=replace(IDLE, model="opt"))
        )
        kvcache = await stack.enter_async_context(caching())
        await eventually(told(kvcache, first, second, other))
        prefix = await pin(kvcache)
        assert [(holder.worker_id, holder.num_blocks) for holder in prefix.holders] == [
            ("worker-0", 2),
            ("worker-1", 2),
        ]
        assert first.pins == second.pins == {"system": TOKENS}
        assert other.pins == {}
        await kvcache.stub.UnpinPrefix(kvcache_pb2.UnpinPrefixRequest(name="system"))
        assert first.pins == second.pins == {}
        assert not (await kvcache.stub.ListPrefixes(kvcache_pb2.ListPrefixesRequest())).prefixes


async def test_a_cache_that_starts_anew_is_told_again(database: Database, caching: StartKvCache) -> None:
    async with PinningWorker.running(database, "worker-0") as worker, caching() as kvcache:
        await eventually(told(kvcache, worker))
        await pin(kvcache)
        worker.pins = None
        worker.start_anew()
        worker.store(b"any block")
        await eventually(lambda: worker.pins == {"system": TOKENS})


async def test_prefixes_outlive_the_service(database: Database, caching: StartKvCache) -> None:
    async with PinningWorker.running(database, "worker-0") as worker:
        async with caching() as kvcache:
            await eventually(told(kvcache, worker))
            await pin(kvcache)
        worker.pins = None
        async with caching() as kvcache:
            await eventually(lambda: worker.pins == {"system": TOKENS})
            (prefix,) = (await kvcache.stub.ListPrefixes(kvcache_pb2.ListPrefixesRequest())).prefixes
            assert (prefix.name, prefix.model, prefix.num_tokens) == ("system", "llama", len(TOKENS))


async def test_a_worker_that_cannot_keep_a_prefix_says_why(database: Database, caching: StartKvCache) -> None:
    async with PinningWorker.running(database, "worker-0") as worker, caching() as kvcache:
        await eventually(told(kvcache, worker))
        worker.fault = "the cache is full"
        (holder,) = (await pin(kvcache)).holders
        assert (holder.num_blocks, holder.fault) == (0, "the cache is full")


@pytest.mark.parametrize(("name", "model"), [("a b", "llama"), ("good", "nobody")])
async def test_what_cannot_be_pinned_is_refused(
    database: Database, caching: StartKvCache, name: str, model: str
) -> None:
    async with PinningWorker.running(database, "worker-0") as worker, caching() as kvcache:
        await eventually(told(kvcache, worker))
        with pytest.raises(grpc.aio.AioRpcError):
            await pin(kvcache, name, model=model)
        with pytest.raises(grpc.aio.AioRpcError) as fault:
            await kvcache.stub.UnpinPrefix(kvcache_pb2.UnpinPrefixRequest(name=name))
        assert fault.value.code() is grpc.StatusCode.NOT_FOUND


async def test_the_worker_that_runs_a_request_is_found(database: Database, caching: StartKvCache) -> None:
    async with AsyncExitStack() as stack:
        for i in range(2):
            worker = await stack.enter_async_context(PinningWorker.running(database, f"worker-{i}"))
        kvcache = await stack.enter_async_context(caching())
        await eventually(told(kvcache, worker))
        request = kvcache_pb2.DescribeRequestRequest(request_id="req-of-worker-1")
        (part,) = (await kvcache.stub.DescribeRequest(request)).parts
        assert (part.worker_id, part.model, part.block_size) == ("worker-1", "llama", 16)
        usages = (await kvcache.stub.GetUsage(kvcache_pb2.GetUsageRequest())).workers
        assert [(usage.worker_id, usage.num_used_blocks) for usage in usages] == [("worker-0", 7), ("worker-1", 7)]
        with pytest.raises(grpc.aio.AioRpcError) as fault:
            await kvcache.stub.DescribeRequest(kvcache_pb2.DescribeRequestRequest(request_id="gone"))
        assert fault.value.code() is grpc.StatusCode.NOT_FOUND
