"""The connection to a service: a running stack's, or one that is started for as long as it is needed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import grpc

from headway.cli.calls import calling
from headway.cli.process import is_alive
from headway.cli.running import cluster_status, endpoint_of
from headway.client.access import Access
from headway.client.stack import default_state_dir, read_stack

S = TypeVar("S")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLink(Generic[S]):
    """How to reach a service, wherever it runs.

    Attributes:
        find: finds the service's host:port, or starts it; UnavailableError where none runs.
        access: to its stack.
        is_restarted: whether a service that ends is started again.
    """

    find: Callable[[], Awaitable[str]]
    stub_type: Callable[[grpc.aio.Channel], S]
    access: Access
    is_restarted: bool

    @asynccontextmanager
    async def stub(self) -> AsyncIterator[S]:
        """Opens a stub; faults inside the block are raised as HeadwayError."""
        async with calling(await self.find(), self.stub_type, access=self.access) as stub:
            yield stub


def has_stack(state_dir: Path | None) -> bool:
    """Whether a stack runs with its state there."""
    stack = read_stack(state_dir or default_state_dir())
    return stack is not None and is_alive(stack.supervisor)


async def find_in_stack(kind: str, state_dir: Path | None) -> str:
    """host:port of a service of the running stack; UnavailableError where it is away."""
    status = await asyncio.to_thread(cluster_status, None, api_key=None, state_dir=state_dir)
    return endpoint_of(kind, status)
