"""The connection to the profiler: a running stack's, or one that is started for as long as it is needed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias

from headway.cli.own_profiler import own_profiler
from headway.cli.service_link import ServiceLink, find_in_stack, has_stack
from headway.client.access import Access, find_access
from headway.client.stack import default_state_dir
from headway.client.token import read_token
from headway.v1 import profiler_pb2_grpc

ProfilerLink: TypeAlias = ServiceLink["profiler_pb2_grpc.ProfilerServiceAsyncStub"]


@asynccontextmanager
async def profiler_link(
    state_dir: Path | None, *, device: str = "cpu", num_threads: int = 0
) -> AsyncIterator[ProfilerLink]:
    """Links to the running stack's profiler, or to one that is started for as long as the block.

    Args:
        device, num_threads: of the worker that is started where no stack runs; 0 threads for all cores.
    """
    stub_type = profiler_pb2_grpc.ProfilerServiceStub
    if has_stack(state_dir):
        find = partial(find_in_stack, "profiler", state_dir)
        yield ServiceLink(find=find, stub_type=stub_type, access=find_access(state_dir), is_restarted=True)
        return
    directory = state_dir or default_state_dir()
    async with own_profiler(directory, device=device, num_threads=num_threads) as endpoint:

        async def find_own() -> str:
            return endpoint

        access = Access(token=read_token(directory))
        yield ServiceLink(find=find_own, stub_type=stub_type, access=access, is_restarted=False)
