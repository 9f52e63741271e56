"""What another process sends: every method of every service answers any message, or refuses it. The methods come from
the descriptors, so new ones are covered."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from hypothesis import given, settings

from headway.core.deployment import Deployment
from headway.kvcache.servicer import KvCacheServicer
from headway.store.membership import Membership
from headway.store.redis import Database
from headway.v1 import controller_pb2, controller_pb2_grpc, kvcache_pb2, kvcache_pb2_grpc, planner_pb2
from tests.controller.stack import Control, Serve
from tests.fuzz.cases import NUM_CASES, fuzzing, messages
from tests.kvcache.conftest import StartKvCache

pytestmark = pytest.mark.timeout(0)

# Of a crash, and of a hang.
_FAULTS = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED)
_TIMEOUT_S = 60.0


async def test_the_kvcache_service(database: Database, caching: StartKvCache, serve: Serve) -> None:
    add = kvcache_pb2_grpc.add_KvCacheServiceServicer_to_server
    async with caching() as kvcache:
        await serve("kvcache", "kvcache", lambda server: add(KvCacheServicer(kvcache.service), server))
        await call_all(database, "kvcache", kvcache_pb2.DESCRIPTOR.services_by_name["KvCacheService"])


async def test_the_planner(database: Database, planner: None) -> None:
    await call_all(database, "planner", planner_pb2.DESCRIPTOR.services_by_name["PlannerService"])


async def test_the_controller(
    database: Database, controlling: Control, deployment: Deployment, planner: None, serve: Serve
) -> None:
    ended: list[bool] = []

    async def end() -> None:
        ended.append(True)

    async with controlling(deployment, []) as stack:
        servicer = stack.servicer(on_shutdown=end)
        add = controller_pb2_grpc.add_ControllerServiceServicer_to_server
        await serve("controller", "controller", lambda server: add(servicer, server))
        await call_all(database, "controller", controller_pb2.DESCRIPTOR.services_by_name["ControllerService"])
    assert ended


async def call_all(database: Database, kind: str, service: ServiceDescriptor) -> None:
    """Sends messages of any content to every method, one at a time; the one that ends the service comes last."""
    (member,) = await Membership(database).members(kind)
    async with grpc.aio.insecure_channel(member.endpoint) as channel:
        for method in sorted(service.methods, key=lambda method: method.name == "Shutdown"):
            for message in drawn(method.input_type._concrete_class):
                code, details = await outcome(channel, method, message)
                assert code not in _FAULTS, f"{method.full_name}: {code.name}: {details}\n{message}"


def drawn(kind: type[Message]) -> list[Message]:
    """The messages that a test of hypothesis would be given."""
    found: list[Message] = []

    @settings(fuzzing, max_examples=NUM_CASES // 5 + 1)
    @given(message=messages(kind))
    def keep(message: Message) -> None:
        found.append(message)

    keep()
    return found


async def outcome(channel: grpc.aio.Channel, method: MethodDescriptor, message: Message) -> tuple[grpc.StatusCode, str]:
    """Sends one message, and of several answers reads the first."""

    async def only() -> AsyncIterator[Message]:
        yield message

    path = f"/{method.containing_service.full_name}/{method.name}"
    options: dict[str, Any] = {
        "request_serializer": method.input_type._concrete_class.SerializeToString,
        "response_deserializer": method.output_type._concrete_class.FromString,
    }
    try:
        if not method.server_streaming:
            await channel.unary_unary(path, **options)(message, timeout=_TIMEOUT_S)
        elif method.client_streaming:
            await anext(aiter(channel.stream_stream(path, **options)(only(), timeout=_TIMEOUT_S)), None)
        else:
            await anext(aiter(channel.unary_stream(path, **options)(message, timeout=_TIMEOUT_S)), None)
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    return grpc.StatusCode.OK, ""
