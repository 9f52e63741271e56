"""Processes that say what they are told to, over real sockets and with real leases."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from typing import Any, Self

import grpc

from headway.core.load import LoadReport
from headway.store.membership import Member, Membership
from headway.store.redis import Database
from headway.v1 import kvcache_pb2, kvcache_pb2_grpc, worker_pb2, worker_pb2_grpc

IDLE = LoadReport(
    model="llama",
    state="ready",
    num_blocks=1024,
    num_free_blocks=1024,
    max_num_seqs=64,
    max_num_batched_tokens=512,
    max_model_len=4096,
    block_size=16,
)


def make_member(kind: str, member_id: str, *, endpoint: str = "127.0.0.1:1", started_at_s: float = 0.0) -> Member:
    """A process that started now, unless it is told when."""
    return Member(
        kind=kind,
        member_id=member_id,
        endpoint=endpoint,
        metrics_endpoint="",
        pid=1,
        started_at_s=started_at_s or time.time(),
        group_id=f"group-of-{member_id}" if kind == "worker" else "",
    )


class ScriptedWorker(worker_pb2_grpc.WorkerServiceServicer):
    """Registers like a worker of a `rank` and streams `load`; `report` changes it."""

    def __init__(self, database: Database, worker_id: str, *, load: LoadReport = IDLE, rank: int = 0) -> None:
        self.worker_id = worker_id
        self._rank = rank
        self.endpoint = ""
        self._membership = Membership(database)
        self._load = load
        self._changed = asyncio.Event()
        self._server = grpc.aio.server()
        self._member: Member | None = None
        self._renewal: asyncio.Task[None] | None = None

    @classmethod
    @asynccontextmanager
    async def running(
        cls, database: Database, worker_id: str, *, load: LoadReport = IDLE, rank: int = 0
    ) -> AsyncIterator[Self]:
        worker = cls(database, worker_id, load=load, rank=rank)
        await worker.start()
        try:
            yield worker
        finally:
            await worker.leave()

    async def start(self) -> None:
        worker_pb2_grpc.add_WorkerServiceServicer_to_server(self, self._server)
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        self.endpoint = f"127.0.0.1:{port}"
        self._member = replace(make_member("worker", self.worker_id, endpoint=self.endpoint), rank=self._rank)
        await self._membership.enter(self._member)
        self._renewal = asyncio.create_task(self._renew())

    def report(self, **changes: Any) -> None:
        """Sends a load report with these changes."""
        self._load = replace(self._load, **changes)
        self._changed.set()
        self._changed = asyncio.Event()

    async def crash(self) -> None:
        """Ends as by `kill -9`: streams break, the lease stays until it lapses."""
        assert self._renewal is not None
        self._renewal.cancel()
        await self._server.stop(None)

    async def leave(self) -> None:
        """Ends in good order."""
        assert self._member is not None
        await self.crash()
        await self._membership.withdraw(self._member)

    async def WatchLoad(  # noqa: N802
        self, request: worker_pb2.WatchLoadRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[worker_pb2.WatchLoadResponse]:
        while True:
            changed = self._changed
            yield worker_pb2.WatchLoadResponse(**asdict(self._load))
            await changed.wait()

    async def _renew(self) -> None:
        assert self._member is not None
        while True:
            await asyncio.sleep(1.0)
            await self._membership.enter(self._member)


class ScriptedKvCache(kvcache_pb2_grpc.KvCacheServiceServicer):
    """Registers like the KV-cache service and answers `matches`, after `delay_s`, which may change."""

    def __init__(self, matches: dict[str, int], *, delay_s: float = 0.0) -> None:
        self.num_lookups = 0
        self._matches = matches
        self.delay_s = delay_s

    @classmethod
    @asynccontextmanager
    async def running(cls, database: Database, matches: dict[str, int], *, delay_s: float = 0.0) -> AsyncIterator[Self]:
        kvcache, server = cls(matches, delay_s=delay_s), grpc.aio.server()
        kvcache_pb2_grpc.add_KvCacheServiceServicer_to_server(kvcache, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        await Membership(database).enter(make_member("kvcache", "kvcache-0", endpoint=f"127.0.0.1:{port}"))
        yield kvcache
        await server.stop(None)

    async def LookupPrefix(  # noqa: N802
        self, request: kvcache_pb2.LookupPrefixRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> kvcache_pb2.LookupPrefixResponse:
        self.num_lookups += 1
        await asyncio.sleep(self.delay_s)
        matches = [kvcache_pb2.PrefixMatch(worker_id=key, num_blocks=num) for key, num in self._matches.items()]
        return kvcache_pb2.LookupPrefixResponse(matches=matches)
