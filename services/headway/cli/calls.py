"""Calls to the services of a local stack."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import grpc

from headway.client.address import CHANNEL_OPTIONS
from headway.rpc.status import error_from_rpc

S = TypeVar("S")


@asynccontextmanager
async def calling(endpoint: str, stub_type: Callable[[grpc.aio.Channel], S]) -> AsyncIterator[S]:
    """A stub on the service at `endpoint`; faults inside the block are raised as HeadwayError."""
    async with grpc.aio.insecure_channel(endpoint, options=CHANNEL_OPTIONS) as channel:
        try:
            yield stub_type(channel)
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error) from None
