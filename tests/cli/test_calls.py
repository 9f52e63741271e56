"""The commands' calls to the stack's services."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from headway.cli.calls import calling
from headway.client.access import Access
from headway.core.errors import UnauthenticatedError
from headway.rpc.credentials import Credentials
from headway.rpc.interceptors import CallInterceptor
from headway.v1 import controller_pb2, controller_pb2_grpc, replacement_pb2

TOKEN = "between the trains"


class Servicer(controller_pb2_grpc.ControllerServiceServicer):
    async def GetStatus(self, request: Any, context: Any) -> controller_pb2.GetStatusResponse:  # noqa: N802
        return controller_pb2.GetStatusResponse(ready=True)

    async def Replace(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        yield replacement_pb2.ReplaceResponse()


async def ask(token: str | None) -> tuple[bool, int]:
    """Of a service that wants the token: whether it is ready, and messages of a stream."""
    server = grpc.aio.server(interceptors=[CallInterceptor(Credentials.of_stack(TOKEN, role="controller"))])
    controller_pb2_grpc.add_ControllerServiceServicer_to_server(Servicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with calling(
            f"127.0.0.1:{port}", controller_pb2_grpc.ControllerServiceStub, access=Access(token=token)
        ) as stub:
            status = await stub.GetStatus(controller_pb2.GetStatusRequest())
            messages = [each async for each in stub.Replace(replacement_pb2.ReplaceRequest())]
            return status.ready, len(messages)
    finally:
        await server.stop(None)


def test_calls_carry_the_token() -> None:
    assert asyncio.run(ask(TOKEN)) == (True, 1)


@pytest.mark.parametrize("token", [None, "between", TOKEN + "s"])
def test_calls_without_the_token_are_refused(token: str | None) -> None:
    with pytest.raises(UnauthenticatedError, match="auth-token"):
        asyncio.run(ask(token))
