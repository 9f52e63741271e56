"""The router as a process of its own: started, killed, started again."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest

from headway.rpc.peers import Peers
from headway.rpc.status import error_from_rpc
from headway.store.membership import Membership
from headway.store.plans import PlanStore
from headway.store.redis import Database
from headway.store.schema import ATTAINMENT
from headway.v1 import common_pb2, router_pb2, router_pb2_grpc
from tests.router.harness import make_plan, release_once, route_once
from tests.router.scripted import ScriptedWorker


@asynccontextmanager
async def router_process(redis_url: str, namespace: str) -> AsyncIterator[asyncio.subprocess.Process]:
    flags = ["--redis-url", redis_url, "--namespace", namespace, "--member-id", "router-0"]
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "headway.router", *flags)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def route(peers: Peers, request_id: str) -> router_pb2.Lease:
    request = router_pb2.Route(
        request_id=request_id,
        model="llama",
        gateway_id="gateway-0",
        num_prompt_tokens=10,
        slo=common_pb2.Slo(ttft_s=60.0),
    )
    return await route_once(peers.stub("router", router_pb2_grpc.RouterServiceStub), request, timeout_s=2.0)


async def get_fleet(peers: Peers) -> router_pb2.GetFleetResponse:
    return await peers.call(
        "router", router_pb2_grpc.RouterServiceStub, lambda stub: stub.GetFleet(router_pb2.GetFleetRequest())
    )


async def until_router(peers: Peers, *, not_at: str = "") -> str:
    """The endpoint of the router once it has registered."""
    deadline_s = time.monotonic() + 60.0
    while not (members := [member for member in peers.members("router") if member.endpoint != not_at]):
        assert time.monotonic() < deadline_s
        await peers.wait_for_change(timeout_s=0.1)
    return members[0].endpoint


async def test_a_killed_router_is_missed_at_once_and_its_successor_knows_the_fleet_and_the_counts(
    database: Database, redis_url: str, namespace: str
) -> None:
    await PlanStore(database).set_current(make_plan("worker-0"), replaces="")
    async with ScriptedWorker.running(database, "worker-0"), Peers(Membership(database)).watching() as peers:
        async with router_process(redis_url, namespace) as process:
            first = await until_router(peers)
            lease = await route(peers, "a")
            release = router_pb2.Release(lease_id=lease.lease_id, outcome="complete", ttft_s=0.1, tpot_s=0.01)
            stub: router_pb2_grpc.RouterServiceAsyncStub = router_pb2_grpc.RouterServiceStub(peers.channel(first))
            await release_once(stub, release)
            while not await database.redis.exists(ATTAINMENT.key(namespace, "llama")):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            process.kill()
            await process.wait()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await release_once(stub, release)
            assert error_from_rpc(caught.value).code == "unavailable", "not its deadline: nobody is there"
        async with router_process(redis_url, namespace) as process:
            await until_router(peers, not_at=first)
            assert (await route(peers, "b")).HasField("predicted_ttft_s")
            fleet = await get_fleet(peers)
            assert fleet.num_in_flight == fleet.groups[0].num_in_flight == 1
            assert (fleet.attainments[0].num_met, fleet.attainments[0].num_completed) == (1, 1)
            process.terminate()
            assert await process.wait() == 0


async def test_a_wrong_flag_is_named() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "headway.router", "--policy", "random", stderr=asyncio.subprocess.PIPE
    )
    _, stderr = await process.communicate()
    assert process.returncode == 2
    assert b"policy" in stderr
    assert b"balanced, least-load, round-robin" in stderr
