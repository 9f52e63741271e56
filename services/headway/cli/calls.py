"""Calls to the services of a local stack."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import grpc

from headway.client.access import Access, find_access
from headway.client.address import CHANNEL_OPTIONS
from headway.client.stack import default_state_dir, find_stack
from headway.rpc.certificates import Certificates, open_channel
from headway.rpc.status import error_from_rpc
from headway.v1 import controller_pb2_grpc

S = TypeVar("S")


@asynccontextmanager
async def calling(endpoint: str, stub_type: Callable[[grpc.aio.Channel], S], *, access: Access) -> AsyncIterator[S]:
    """Opens a stub on the service at `endpoint`; faults inside the block are raised as HeadwayError.

    Args:
        access: the stack's; its token goes with every call.
    """
    token, tls = access.token, access.tls
    interceptors: list[grpc.aio.ClientInterceptor] = [_Unary(token), _Stream(token)] if token else []
    certificates = None if tls is None else Certificates(tls)
    async with open_channel(endpoint, certificates, options=CHANNEL_OPTIONS, interceptors=interceptors) as channel:
        try:
            yield stub_type(channel)
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error, tls=tls) from None


@asynccontextmanager
async def calling_controller(
    state_dir: Path | None,
) -> AsyncIterator["controller_pb2_grpc.ControllerServiceAsyncStub"]:
    """Opens a stub on the controller of the stack in that state directory; None is the default directory."""
    directory = state_dir or default_state_dir()
    endpoint = find_stack(directory).controller_endpoint
    async with calling(endpoint, controller_pb2_grpc.ControllerServiceStub, access=find_access(directory)) as stub:
        yield stub


class _Bearer:
    def __init__(self, token: str) -> None:
        self._token = token

    def _sign(self, details: grpc.aio.ClientCallDetails) -> grpc.aio.ClientCallDetails:
        metadata = grpc.aio.Metadata(*(details.metadata or ()), ("authorization", f"Bearer {self._token}"))
        return grpc.aio.ClientCallDetails(
            details.method, details.timeout, metadata, details.credentials, details.wait_for_ready
        )


class _Unary(_Bearer, grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await continuation(self._sign(client_call_details), request)


class _Stream(_Bearer, grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await continuation(self._sign(client_call_details), request)
