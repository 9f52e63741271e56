"""The connection to the profiler: a running stack's, or one that is started for as long as it is needed."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from headway.cli.calls import calling
from headway.cli.own_profiler import own_profiler
from headway.cli.process import is_alive
from headway.cli.running import endpoint_of
from headway.client import Client
from headway.client.stack import default_state_dir, read_stack
from headway.client.token import find_token, read_token
from headway.v1 import profiler_pb2_grpc


@dataclass(frozen=True, slots=True)
class ProfilerLink:
    """How to reach a profiler, wherever it runs.

    Attributes:
        find: finds the profiler's host:port; UnavailableError where none runs.
        token: token of its stack, which goes with every call.
        is_restarted: whether a profiler that ends is started again.
    """

    find: Callable[[], str]
    token: str | None
    is_restarted: bool

    @asynccontextmanager
    async def stub(self) -> AsyncIterator["profiler_pb2_grpc.ProfilerServiceAsyncStub"]:
        """Opens a stub; faults inside the block are raised as HeadwayError."""
        async with calling(self.find(), profiler_pb2_grpc.ProfilerServiceStub, token=self.token) as stub:
            yield stub


def has_stack(state_dir: Path | None) -> bool:
    """Whether a stack runs with its state there."""
    stack = read_stack(state_dir or default_state_dir())
    return stack is not None and is_alive(stack.supervisor)


@asynccontextmanager
async def profiler_link(
    state_dir: Path | None, *, device: str = "cpu", num_threads: int = 0
) -> AsyncIterator[ProfilerLink]:
    """Links to the running stack's profiler, or to one that is started for as long as the block.

    Args:
        device, num_threads: of the worker that is started where no stack runs; 0 threads for all cores.
    """
    if has_stack(state_dir):
        yield ProfilerLink(lambda: _find(state_dir), token=find_token(state_dir), is_restarted=True)
        return
    directory = state_dir or default_state_dir()
    async with own_profiler(directory, device=device, num_threads=num_threads) as endpoint:
        yield ProfilerLink(lambda: endpoint, token=read_token(directory), is_restarted=False)


def _find(state_dir: Path | None) -> str:
    with Client(state_dir=state_dir) as client:
        return endpoint_of("profiler", client.status())
