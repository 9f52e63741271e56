"""The life of a process: readiness, the lease while it drains, the end."""

import asyncio
import os
import resource
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from headway.rpc.config import ProcessConfig
from headway.rpc.host import READINESS, Host, hosting
from headway.store.membership import RENEW_EVERY_S, Membership
from headway.store.redis import Database

_SERVING, _NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


@asynccontextmanager
async def hosted(
    redis_url: str, namespace: str, *, draining: asyncio.Event, is_ready_at_once: bool = True
) -> AsyncIterator[tuple[Host, "asyncio.Task[None]"]]:
    """A router's host that serves; once it was asked to end it drains until `draining` is set."""

    async def drain() -> None:
        await draining.wait()

    config = ProcessConfig(redis_url=redis_url, namespace=namespace, member_id="r")
    async with hosting("router", config) as host:
        serving = asyncio.create_task(host.serve(on_stop=drain, is_ready_at_once=is_ready_at_once))
        async with asyncio.timeout(20):
            while not host.member.endpoint:  # noqa: ASYNC110 - the code under test sets it
                await asyncio.sleep(0.01)
        yield host, serving
        draining.set()
        host.stopping.set()
        await serving


async def health(host: Host, service: str) -> object:
    async with grpc.aio.insecure_channel(host.member.endpoint) as channel:
        request = health_pb2.HealthCheckRequest(service=service)
        try:
            return (await health_pb2_grpc.HealthStub(channel).Check(request, timeout=10)).status
        except grpc.aio.AioRpcError as error:
            return error.code()


async def becomes(host: Host, service: str, wanted: object) -> None:
    async with asyncio.timeout(20):
        while await health(host, service) != wanted:  # noqa: ASYNC110 - the code under test changes it
            await asyncio.sleep(0.01)


async def test_one_that_drains_lives_is_not_ready_and_keeps_its_lease(
    redis_url: str, namespace: str, database: Database
) -> None:
    draining = asyncio.Event()
    async with hosted(redis_url, namespace, draining=draining) as (host, serving):
        await becomes(host, READINESS, _SERVING)
        os.kill(os.getpid(), signal.SIGTERM)
        await becomes(host, READINESS, _NOT_SERVING)
        assert await health(host, "") == _SERVING, "it is alive: nobody may kill it for not being ready"
        lease = f"{namespace}:member:router:r"
        await database.redis.pexpire(lease, int(RENEW_EVERY_S * 1000))
        await asyncio.sleep(2 * RENEW_EVERY_S)
        assert [member.member_id for member in await Membership(database).members()] == ["r"], "it was renewed"
        assert not serving.done()
        draining.set()
        await serving
        assert await Membership(database).members() == []


async def test_one_that_says_so_itself_is_not_ready_before(redis_url: str, namespace: str) -> None:
    async with hosted(redis_url, namespace, draining=asyncio.Event(), is_ready_at_once=False) as (host, _):
        assert await health(host, READINESS) is grpc.StatusCode.NOT_FOUND
        await host.show_ready(is_ready=True)
        assert await health(host, READINESS) == _SERVING
        await host.show_ready(is_ready=False)
        assert await health(host, READINESS) == _NOT_SERVING


@pytest.mark.parametrize("is_ready", [False, True])
async def test_one_that_was_asked_to_end_is_never_ready_again(
    redis_url: str, namespace: str, *, is_ready: bool
) -> None:
    async with hosted(redis_url, namespace, draining=asyncio.Event()) as (host, _):
        host.stopping.set()
        await host.show_ready(is_ready=is_ready)
        assert await health(host, READINESS) == _NOT_SERVING


async def probed(host: Host, path: str) -> tuple[int, bytes]:
    async with httpx.AsyncClient() as client:
        answer = await client.get(f"http://{host.member.metrics_endpoint}{path}", timeout=30)
    return answer.status_code, answer.content


async def test_whoever_has_no_certificate_learns_whether_it_is_ready_and_nothing_else(
    redis_url: str, namespace: str
) -> None:
    async with hosted(redis_url, namespace, draining=asyncio.Event(), is_ready_at_once=False) as (host, _):
        assert [await probed(host, path) for path in ("/live", "/ready")] == [(200, b""), (503, b"")]
        await host.show_ready(is_ready=True)
        assert await probed(host, "/ready") == (200, b"")
        host.stopping.set()
        async with asyncio.timeout(20):
            while await probed(host, "/ready") != (503, b""):  # noqa: ASYNC110 - the code under test changes it
                await asyncio.sleep(0.01)
        assert await probed(host, "/live") == (200, b""), "it drains"


async def test_one_whose_loop_stands_still_is_not_alive(
    redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.rpc.host._PROBE_S", 0.2)
    async with hosted(redis_url, namespace, draining=asyncio.Event()) as (host, _):
        url = f"http://{host.member.metrics_endpoint}/live"
        assert httpx.get(url, timeout=30).status_code == 503, "this call blocks the loop"  # noqa: ASYNC210
        assert await probed(host, "/live") == (200, b"")


async def test_a_process_takes_as_many_descriptors_as_it_may(redis_url: str, namespace: str) -> None:
    """A shell gives 1,024, which as many idle clients would take."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, before[1]), before[1]))
    try:
        async with hosted(redis_url, namespace, draining=asyncio.Event()):
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
