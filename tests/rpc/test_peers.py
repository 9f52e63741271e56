"""Calls to whoever is there."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from headway.core.errors import HeadwayError, InvalidArgumentError, UnavailableError
from headway.rpc.interceptors import CallInterceptor
from headway.rpc.peers import Peers
from headway.store.embedded import EmbeddedRedis
from headway.store.membership import Member, Membership
from headway.store.redis import Database
from headway.v1 import router_pb2, router_pb2_grpc


class Router(router_pb2_grpc.RouterServiceServicer):
    """Answers, or raises `fault`, or neither while it hangs."""

    def __init__(self, fault: HeadwayError | None = None, *, hangs: bool = False) -> None:
        self.num_calls = 0
        self.was_called = asyncio.Event()
        self._fault = fault
        self._hangs = hangs

    async def Route(self, request: Any, context: Any) -> Any:  # noqa: N802
        raise NotImplementedError

    async def Release(self, request: Any, context: Any) -> Any:  # noqa: N802
        raise NotImplementedError

    async def GetFleet(  # noqa: N802
        self, request: router_pb2.GetFleetRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> router_pb2.GetFleetResponse:
        self.num_calls += 1
        self.was_called.set()
        if self._hangs:
            await asyncio.sleep(60)
        if self._fault:
            raise self._fault
        return router_pb2.GetFleetResponse(num_in_flight=7)


@asynccontextmanager
async def running(database: Database, router: Router) -> AsyncIterator[grpc.aio.Server]:
    """Serves as the only router, under one member id however often it is started."""
    server = grpc.aio.server(interceptors=[CallInterceptor()])
    router_pb2_grpc.add_RouterServiceServicer_to_server(router, server)
    endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    member = Member(
        kind="router", member_id="router", endpoint=endpoint, metrics_endpoint="", pid=1, started_at_s=time.time()
    )
    await Membership(database).enter(member)
    yield server
    await server.stop(None)


async def get_fleet(peers: Peers) -> router_pb2.GetFleetResponse:
    return await peers.call(
        "router", router_pb2_grpc.RouterServiceStub, lambda stub: stub.GetFleet(router_pb2.GetFleetRequest())
    )


async def test_a_call_goes_to_the_successor_of_a_process_that_is_gone(database: Database) -> None:
    async with running(database, Router()) as first, Peers(Membership(database)).watching() as peers:
        await first.stop(None)
        async with running(database, Router()):
            assert (await get_fleet(peers)).num_in_flight == 7


async def test_a_service_that_is_unavailable_itself_is_not_asked_twice(database: Database) -> None:
    router = Router(UnavailableError("no worker", retry_after_s=2.0))
    async with running(database, router), Peers(Membership(database)).watching() as peers:
        with pytest.raises(UnavailableError, match="no worker") as caught:
            await get_fleet(peers)
        assert caught.value.retry_after_s == 2.0
        assert router.num_calls == 1


async def test_nobody_to_call_is_unavailable(database: Database) -> None:
    async with Peers(Membership(database)).watching() as peers:
        with pytest.raises(UnavailableError, match="No router is running"):
            await get_fleet(peers)


async def test_whoever_comes_and_goes_is_known_at_once(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.rpc.peers._REFRESH_EVERY_S", 3600.0)
    membership = Membership(database)
    member = Member(kind="worker", member_id="worker-0", endpoint="a:1", metrics_endpoint="", pid=1, started_at_s=1.0)
    async with Peers(membership).watching() as peers:
        await asyncio.sleep(0.1)  # it listens by now
        await membership.enter(member)
        await peers.wait_for_change(timeout_s=30)
        assert peers.members("worker") == [member]
        await membership.withdraw(member)
        await peers.wait_for_change(timeout_s=30)
        assert peers.members("worker") == []


async def asking(peers: Peers, router: Router) -> "asyncio.Task[router_pb2.GetFleetResponse]":
    """A call that has arrived."""
    task = asyncio.create_task(get_fleet(peers))
    await router.was_called.wait()
    return task


async def test_a_call_under_way_goes_to_the_successor_of_a_member_that_is_replaced(database: Database) -> None:
    router = Router(hangs=True)
    async with running(database, router), Peers(Membership(database)).watching() as peers:
        task = await asking(peers, router)
        async with running(database, Router()):
            assert (await asyncio.wait_for(task, 30)).num_in_flight == 7


async def test_a_call_to_a_member_that_leaves_is_unavailable_and_a_cancelled_one_cancelled(database: Database) -> None:
    router = Router(hangs=True)
    async with running(database, router), Peers(Membership(database)).watching() as peers:
        task = await asking(peers, router)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        router.was_called.clear()
        task = await asking(peers, router)
        await Membership(database).withdraw(peers.newest("router"))
        with pytest.raises(UnavailableError, match="No router is running"):
            await asyncio.wait_for(task, 30)


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[str]:
    """One whose faults are nobody else's."""
    server = EmbeddedRedis(tmp_path)
    server.start()
    yield server.url
    server.stop()


async def test_where_redis_refuses_writes_nobody_is_taken_for_dead(own_redis: str, namespace: str) -> None:
    database, now_s = Database.connect(own_redis, namespace=namespace), 0.0
    membership, others = Membership(database, clock=lambda: now_s), Membership(database)
    member = Member(
        kind="gateway", member_id="gateway", endpoint="a:1", metrics_endpoint="", pid=1, started_at_s=time.time()
    )
    await membership.enter(member)
    async with running(database, Router()), Peers(membership).watching() as peers:
        await peers.refresh()
        router = peers.newest("router")
        await database.redis.config_set("maxmemory", 1)
        with pytest.raises(HeadwayError, match="Redis refused a command"):
            await membership.renew(member)
        await others.withdraw(router)  # as if its lease had lapsed
        await peers.refresh()
        assert peers.newest("router") == router
        assert "takes no leases" in peers.fault
        await database.redis.config_set("maxmemory", 0)
        await membership.renew(member)
        await peers.refresh()
        assert peers.newest("router") == router, "it has not had the time to renew its lease"
        now_s = 4.0
        await peers.refresh()
        assert peers.members("router") == []
        assert peers.fault == ""
    await database.close()


@pytest.mark.parametrize("endpoint", ["", "\0", "host", ":1", "host:", "a\nb:1"])
async def test_what_is_no_endpoint_is_refused(database: Database, endpoint: str) -> None:
    """Found by tests/fuzz: a worker that was told to fetch from there had a fault of its own."""
    async with Peers(Membership(database)).watching() as peers:
        with pytest.raises(InvalidArgumentError, match="no host:port"):
            async with peers.dial(endpoint):
                pass
