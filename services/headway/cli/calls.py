"""Calls to the services of a local stack."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import grpc

from headway.client.address import CHANNEL_OPTIONS
from headway.rpc.status import error_from_rpc

S = TypeVar("S")


@asynccontextmanager
async def calling(endpoint: str, stub_type: Callable[[grpc.aio.Channel], S]) -> AsyncIterator[S]:
    """A stub on the service at `endpoint`; faults inside the block are raised as HeadwayError.

    Where HEADWAY_AUTH_TOKEN is set, as it is for the services themselves, it goes with every call.
    """
    token = os.environ.get("HEADWAY_AUTH_TOKEN")
    interceptors: list[grpc.aio.ClientInterceptor] = [_Unary(token), _Stream(token)] if token else []
    async with grpc.aio.insecure_channel(endpoint, options=CHANNEL_OPTIONS, interceptors=interceptors) as channel:
        try:
            yield stub_type(channel)
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error) from None


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
