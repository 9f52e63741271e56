"""A router over a real socket, in this process."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import grpc
import pytest

from headway.core.plan.serving import ServingPlan
from headway.observe.tracing import Tracing
from headway.router.attainment import Attainment
from headway.router.config import RouterConfig
from headway.router.maintenance import Maintenance
from headway.router.service import RouterService
from headway.router.servicer import RouterServicer
from headway.router.traffic import TrafficRecord
from headway.rpc.followers import Followers
from headway.rpc.interceptors import CallInterceptor
from headway.rpc.peers import Peers
from headway.store.membership import Membership
from headway.store.plans import PlanStore
from headway.store.redis import Database
from headway.store.traffic import TrafficStore
from headway.v1 import router_pb2_grpc
from tests.router.harness import RunningRouter

StartRouter = Callable[..., AbstractAsyncContextManager[RunningRouter]]


@pytest.fixture
def routing(database: Database) -> StartRouter:
    """`async with routing(max_queue=3) as router:` serves with these settings, without maintenance in the
    background."""

    @asynccontextmanager
    async def start(*, plan: ServingPlan | None = None, **settings: Any) -> AsyncIterator[RunningRouter]:
        config = RouterConfig(**settings)
        server = grpc.aio.server(interceptors=[CallInterceptor()])
        async with Peers(Membership(database)).watching() as peers:
            traffic = TrafficRecord(TrafficStore(database), run="test")
            service = RouterService(
                config,
                peers=peers,
                plans=PlanStore(database),
                attainment=Attainment(database),
                traffic=traffic,
                instance_id="test",
            )
            maintenance = Maintenance(config, service, peers=peers)
            servicer = RouterServicer(service, tracing=Tracing("router", otlp_endpoint=None))
            router_pb2_grpc.add_RouterServiceServicer_to_server(servicer, server)
            port = server.add_insecure_port("127.0.0.1:0")
            await server.start()
            workers = Followers(
                peers, "worker", follow=service.follow, lose=service.lose, accepts=lambda member: member.is_leader
            )
            following = asyncio.create_task(workers.run())
            if plan is not None:
                await service.apply(plan)
            await maintenance.settle()
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                yield RunningRouter(service, maintenance, channel, router_pb2_grpc.RouterServiceStub(channel))
            await server.stop(None)
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    return start
