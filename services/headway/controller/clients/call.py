"""One call: dial, call, turn a transport's fault into ours."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import grpc

from headway.core.errors import UnavailableError
from headway.rpc.peers import Peers
from headway.rpc.status import error_from_rpc

S = TypeVar("S")


@asynccontextmanager
async def calling(peers: Peers, endpoint: str, stub_type: Callable[[grpc.aio.Channel], S]) -> AsyncIterator[S]:
    """A stub on a process; faults inside the block are raised as HeadwayError."""
    async with peers.dial(endpoint) as channel:
        try:
            yield stub_type(channel)
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error) from None


def endpoint_of(peers: Peers, kind: str) -> str:
    """Returns the address of the newest member of a kind; UnavailableError where there is none."""
    if members := peers.members(kind):
        return members[0].endpoint
    raise UnavailableError(
        f"No {kind} is running.", hint="It is being started; try again in a second.", retry_after_s=1.0
    )
