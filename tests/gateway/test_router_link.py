"""The stream to a router that gets stuck: what it was told is not lost with the stream."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from headway.core.errors import NotFoundError, UnavailableError
from headway.core.slo import Slo
from headway.gateway.lease import LeaseOutcome, PlaceRequest, Release
from headway.gateway.router_link import RouterLinks
from headway.rpc.peers import Peers
from headway.rpc.status import error_to_pb
from headway.store.membership import Member, Membership
from headway.store.redis import Database
from headway.v1 import router_pb2, router_pb2_grpc
from tests.gateway import scripted_router
from tests.gateway.scripted_router import ScriptedRouter


class StuckRouter(router_pb2_grpc.RouterServiceServicer):
    """Takes a stream and reads nothing of it, as one that is stopped."""

    def __init__(self) -> None:
        self.was_called = asyncio.Event()

    async def Dispatch(  # noqa: N802
        self, request_iterator: AsyncIterator[router_pb2.DispatchRequest], context: Any
    ) -> AsyncIterator[router_pb2.DispatchResponse]:
        self.was_called.set()
        await asyncio.Event().wait()
        yield router_pb2.DispatchResponse()


class BusyRouter(router_pb2_grpc.RouterServiceServicer, health_pb2_grpc.HealthServicer):
    """Is too busy to say that it lives; each time that it is asked it answers one of the requests instead."""

    def __init__(self, *, num_answers: int) -> None:
        self.num_checks = 0
        self._num_answers = num_answers
        self._asked: asyncio.Queue[str] = asyncio.Queue()
        self._answers: asyncio.Queue[router_pb2.DispatchResponse] = asyncio.Queue()

    async def Check(self, request: Any, context: Any) -> health_pb2.HealthCheckResponse:  # noqa: N802
        self.num_checks += 1
        if self.num_checks <= self._num_answers:
            error = error_to_pb(NotFoundError("There is no such model."))
            self._answers.put_nowait(router_pb2.DispatchResponse(request_id=await self._asked.get(), error=error))
        await asyncio.Event().wait()
        raise AssertionError

    async def Dispatch(  # noqa: N802
        self, request_iterator: AsyncIterator[router_pb2.DispatchRequest], context: Any
    ) -> AsyncIterator[router_pb2.DispatchResponse]:
        reading = asyncio.create_task(self._read(request_iterator))
        try:
            while True:
                yield await self._answers.get()
        finally:
            reading.cancel()

    async def _read(self, requests: AsyncIterator[router_pb2.DispatchRequest]) -> None:
        async for message in requests:
            self._asked.put_nowait(message.route.request_id)


class LateRouter(router_pb2_grpc.RouterServiceServicer, health_pb2_grpc.HealthServicer):
    """Stands still until a request has been asked for so often, and then gives each attempt its own lease."""

    def __init__(self, *, num_attempts: int) -> None:
        self.released: list[router_pb2.Release] = []
        self._num_attempts = num_attempts

    async def Check(self, request: Any, context: Any) -> health_pb2.HealthCheckResponse:  # noqa: N802
        await asyncio.Event().wait()
        raise AssertionError

    async def Dispatch(  # noqa: N802
        self, request_iterator: AsyncIterator[router_pb2.DispatchRequest], context: Any
    ) -> AsyncIterator[router_pb2.DispatchResponse]:
        routed: list[router_pb2.Route] = []
        async for message in request_iterator:
            if not message.HasField("route"):
                self.released.append(message.release)
                continue
            routed.append(message.route)
            for route in routed if len(routed) == self._num_attempts else ():
                lease = router_pb2.Lease(lease_id=f"lease-{route.attempt}", endpoint="127.0.0.1:1")
                yield router_pb2.DispatchResponse(request_id=route.request_id, attempt=route.attempt, lease=lease)


async def enter(database: Database, port: int, *, name: str = "router") -> None:
    endpoint = f"127.0.0.1:{port}"
    member = Member(
        kind="router", member_id=name, endpoint=endpoint, metrics_endpoint="", pid=1, started_at_s=time.time()
    )
    await Membership(database).enter(member)


async def start(database: Database, router: StuckRouter | BusyRouter | LateRouter) -> grpc.aio.Server:
    """A server of it, which is a member."""
    server = grpc.aio.server()
    router_pb2_grpc.add_RouterServiceServicer_to_server(router, server)
    if isinstance(router, health_pb2_grpc.HealthServicer):
        health_pb2_grpc.add_HealthServicer_to_server(router, server)
    await enter(database, server.add_insecure_port("127.0.0.1:0"))
    await server.start()
    return server


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def release(lease_id: str) -> Release:
    return Release(lease_id=lease_id, outcome=LeaseOutcome.COMPLETE)


def request(name: str) -> PlaceRequest:
    return PlaceRequest(
        request_id=name,
        model="tiny",
        num_prompt_tokens=4,
        max_output_tokens=1,
        num_sequences=1,
        slo=Slo(),
        arrived_s=time.monotonic(),
    )


async def test_releases_that_a_stuck_router_did_not_read_are_said_again(database: Database) -> None:
    stuck = StuckRouter()
    server = await start(database, stuck)
    async with Peers(Membership(database)).watching() as peers:
        links = RouterLinks(peers, gateway_id="gateway")
        for i in range(10):
            links.release(release(f"lease-{i}"))
        await asyncio.wait_for(stuck.was_called.wait(), 15)
        router = ScriptedRouter(workers={"worker-0": "127.0.0.1:1"})
        next_server, port = await scripted_router.start(router)
        await enter(database, port)
        await server.stop(None)
        await eventually(lambda: len(router.released) == 10)
        assert [each.lease_id for each in router.released] == [f"lease-{i}" for i in range(10)]
        await links.close()
        await next_server.stop(None)


async def test_what_a_router_has_read_is_not_said_again(database: Database) -> None:
    router = ScriptedRouter(workers={"worker-0": "127.0.0.1:1"})
    server, port = await scripted_router.start(router)
    await enter(database, port)
    async with Peers(Membership(database)).watching() as peers:
        links = RouterLinks(peers, gateway_id="gateway")
        links.release(release("early"))
        lease = await links.route(request("r"))
        links.release(release(lease.lease_id))
        await eventually(lambda: len(router.released) == 2)
        again, other_port = ScriptedRouter(workers=router.workers), 0
        next_server, other_port = await scripted_router.start(again)
        await enter(database, other_port)
        await server.stop(None)
        await eventually(lambda: len(again.released) == 1)
        assert again.released[0].lease_id == lease.lease_id, "nothing says that it was read"
        await links.close()
        await next_server.stop(None)


async def test_a_request_waits_for_the_router_that_takes_the_place_of_a_dead_one(database: Database) -> None:
    router = ScriptedRouter(workers={"worker-0": "127.0.0.1:1"})
    server, port = await scripted_router.start(router)
    await enter(database, port)
    async with Peers(Membership(database)).watching() as peers:
        links = RouterLinks(peers, gateway_id="gateway")
        await links.route(request("before"))
        await server.stop(None)
        placing = asyncio.create_task(links.route(request("meanwhile")))
        await asyncio.sleep(0.2)
        assert not placing.done()
        next_server, port = await scripted_router.start(router)
        await enter(database, port)
        assert (await placing).endpoint == "127.0.0.1:1"
        assert [each.request_id for each in router.routed] == ["before", "meanwhile"]
        await links.close()
        await next_server.stop(None)


async def test_where_one_has_died_that_still_has_its_lease_the_one_that_stands_by_is_asked(database: Database) -> None:
    """In a cluster nobody ends the lease of a process that was killed: requests were refused until it lapsed."""
    standby, active = (ScriptedRouter(workers={"worker-0": "127.0.0.1:1"}) for _ in range(2))
    standby_server, port = await scripted_router.start(standby)
    await enter(database, port, name="standby")
    server, port = await scripted_router.start(active)
    async with Peers(Membership(database)).watching() as peers:
        await enter(database, port, name="active")
        await eventually(lambda: len(peers.members("router")) == 2)
        links = RouterLinks(peers, gateway_id="gateway")
        await links.route(request("before"))
        await server.stop(None)
        await enter(database, port, name="active")  # as if it had been renewed just before
        assert (await links.route(request("meanwhile"))).endpoint == "127.0.0.1:1"
        assert [each.request_id for each in standby.routed] == ["meanwhile"]
        await links.close()
        await standby_server.stop(None)


async def test_a_lease_is_released_at_the_router_that_gave_it_also_when_a_newer_one_decides(database: Database) -> None:
    """It stands by then, and would keep the lease in its books for an hour."""
    older, newer = (ScriptedRouter({"worker-0": "127.0.0.1:1"}, lease_prefix=name) for name in ("older", "newer"))
    older_server, port = await scripted_router.start(older)
    await enter(database, port, name="older")
    async with Peers(Membership(database)).watching() as peers:
        links = RouterLinks(peers, gateway_id="gateway")
        leases = [await links.route(request(name)) for name in ("a", "b")]
        links.release(release(leases[0].lease_id))
        newer_server, port = await scripted_router.start(newer)
        await enter(database, port, name="newer")
        await eventually(lambda: len(peers.members("router")) == 2)
        leases.append(await links.route(request("c")))
        links.note_first_token(leases[1].lease_id, ttft_s=0.5)
        for lease in leases[1:]:
            links.release(release(lease.lease_id))
        await eventually(lambda: len(older.released) + len(newer.released) == 3)
        assert [each.lease_id for each in older.released] == [lease.lease_id for lease in leases[:2]]
        assert [each.lease_id for each in older.first_tokens] == [leases[1].lease_id]
        assert [each.lease_id for each in newer.released] == [leases[2].lease_id]
        await eventually(lambda: older.num_ended == 1)
        assert newer.num_ended == 0
        await links.close()
        await older_server.stop(None)
        await newer_server.stop(None)


async def test_a_lease_that_came_after_a_newer_router_had_is_released_where_it_was_given(database: Database) -> None:
    older, newer = (ScriptedRouter({"worker-0": "127.0.0.1:1"}, lease_prefix=name) for name in ("older", "newer"))
    older.delay_s = 0.5
    older_server, port = await scripted_router.start(older)
    await enter(database, port, name="older")
    async with Peers(Membership(database)).watching() as peers:
        links = RouterLinks(peers, gateway_id="gateway")
        late = asyncio.create_task(links.route(request("late")))
        await eventually(lambda: len(older.routed) == 1)
        newer_server, port = await scripted_router.start(newer)
        await enter(database, port, name="newer")
        await eventually(lambda: len(peers.members("router")) == 2)
        await links.route(request("next"))
        assert not late.done()
        lease = await late
        links.release(release(lease.lease_id))
        await eventually(lambda: len(older.released) == 1)
        await eventually(lambda: older.num_ended == 1)
        assert newer.released == []
        await links.close()
        await older_server.stop(None)
        await newer_server.stop(None)


async def test_an_answer_that_comes_late_is_not_taken_for_that_to_the_same_request_asked_again(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that goes on elsewhere asks again and again: it took a lease that had ended, and left its own in the
    router's books."""
    monkeypatch.setattr("headway.gateway.router_link._PROBE_TIMEOUT_S", 0.1)
    late = LateRouter(num_attempts=2)
    server = await start(database, late)
    async with Peers(Membership(database)).watching() as peers:
        links = RouterLinks(peers, gateway_id="gateway")
        with pytest.raises(UnavailableError, match="does not answer"):
            await links.route(request("r"))
        monkeypatch.setattr("headway.gateway.router_link._PROBE_TIMEOUT_S", 60.0)
        lease = await links.route(request("r"))
        assert lease.lease_id == "lease-2"
        links.release(release(lease.lease_id))
        await eventually(lambda: len(late.released) == 2)
        assert [(each.request_id, each.attempt) for each in late.released] == [("r", 1), ("", 0)]
        assert late.released[1].lease_id == "lease-2"
        await links.close()
        await server.stop(None)


async def test_a_request_that_is_given_up_when_its_stream_breaks_is_taken_back_from_the_next_router(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be the same one, which only this stream has lost."""
    monkeypatch.setattr("headway.gateway.router_link._AWAITED_S", 0.0)
    stuck = StuckRouter()
    server = await start(database, stuck)
    async with Peers(Membership(database)).watching() as peers:
        links = RouterLinks(peers, gateway_id="gateway")
        asking = asyncio.create_task(links.route(request("r")))
        await asyncio.wait_for(stuck.was_called.wait(), 15)
        await server.stop(None)
        with pytest.raises(UnavailableError):
            await asking
        router = ScriptedRouter(workers={"worker-0": "127.0.0.1:1"})
        next_server, port = await scripted_router.start(router)
        await enter(database, port)
        await eventually(lambda: bool(router.withdrawn))
        assert [(each.request_id, each.attempt) for each in router.withdrawn] == [("r", 1)]
        await links.close()
        await next_server.stop(None)


async def test_a_router_that_is_gone_is_not_called_again_and_again(database: Database) -> None:
    """What was to be said to it kept its gateway busy until its lease lapsed."""
    num_calls = 0

    def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal num_calls
        num_calls += 1
        writer.close()

    gone = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    await enter(database, gone.sockets[0].getsockname()[1])
    async with Peers(Membership(database)).watching() as peers:
        links = RouterLinks(peers, gateway_id="gateway")
        links.release(release("lease"))
        with pytest.raises(UnavailableError):
            await links.route(request("r"))  # after two seconds
        assert 1 <= num_calls <= 40
        await links.close()
    gone.close()


@pytest.fixture
async def one_stuck(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[RouterLinks, grpc.aio.Server, ScriptedRouter]]:
    """Links to a router that is stuck, its server, and one that stands by."""
    monkeypatch.setattr("headway.gateway.router_link._PROBE_TIMEOUT_S", 0.1)
    standby, server = ScriptedRouter(workers={"worker-0": "127.0.0.1:1"}), grpc.aio.server()
    standby_server, port = await scripted_router.start(standby)
    await enter(database, port, name="standby")
    stuck = BusyRouter(num_answers=0)
    router_pb2_grpc.add_RouterServiceServicer_to_server(stuck, server)
    health_pb2_grpc.add_HealthServicer_to_server(stuck, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with Peers(Membership(database)).watching() as peers:
        await enter(database, port, name="active")
        await eventually(lambda: len(peers.members("router")) == 2)
        links = RouterLinks(peers, gateway_id="gateway")
        yield links, server, standby
        await links.close()
    await server.stop(None)
    await standby_server.stop(None)


async def test_where_one_is_stuck_the_one_that_stands_by_is_asked(
    one_stuck: tuple[RouterLinks, grpc.aio.Server, ScriptedRouter],
) -> None:
    links, _, _ = one_stuck
    assert (await links.route(request("r"))).endpoint == "127.0.0.1:1"


async def test_what_was_taken_back_from_a_stuck_router_is_not_taken_back_from_the_one_asked_instead(
    one_stuck: tuple[RouterLinks, grpc.aio.Server, ScriptedRouter],
) -> None:
    """A request that waited there when the first one died was never answered, and a lease was ended too soon."""
    links, stuck_server, standby = one_stuck
    lease = await links.route(request("r"))
    await stuck_server.stop(None)
    links.release(release("before"))
    await eventually(lambda: bool(standby.released))
    links.release(release(lease.lease_id))
    await links.close()  # all is said by then
    assert [each.lease_id for each in standby.released] == ["before", lease.lease_id]
    assert [each.attempt for each in standby.withdrawn] == [1], "the stuck one may have given a place, and lives on"
    assert [each.attempt for each in standby.routed] == [2]


async def test_where_none_comes_the_request_is_refused(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.gateway.router_link._AWAITED_S", 0.2)
    async with Peers(Membership(database)).watching() as peers:
        links = RouterLinks(peers, gateway_id="gateway")
        with pytest.raises(UnavailableError, match="router"):
            await links.route(request("r"))
        await links.close()


async def test_a_router_that_answers_requests_is_not_taken_for_stuck(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under 2,000 clients it took longer than it was given to say that it lives, and all that waited were refused."""
    monkeypatch.setattr("headway.gateway.router_link._PROBE_TIMEOUT_S", 1.0)
    router = BusyRouter(num_answers=2)
    server = await start(database, router)
    async with Peers(Membership(database)).watching() as peers:
        links = RouterLinks(peers, gateway_id="gateway")
        asked = await asyncio.gather(*(links.route(request(f"r-{i}")) for i in range(3)), return_exceptions=True)
        assert sorted(type(each).__name__ for each in asked) == ["NotFoundError", "NotFoundError", "_RouterSilentError"]
        assert router.num_checks == 3
        await links.close()
        await server.stop(None)
