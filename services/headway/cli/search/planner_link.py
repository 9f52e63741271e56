"""The connection to the planner: a running stack's, or one that is started for as long as it is needed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

from headway.cli.search.own_planner import own_planner
from headway.cli.service_link import ServiceLink, has_stack, stack_link
from headway.client.stack import default_state_dir
from headway.core.errors import FailedPreconditionError
from headway.v1 import planner_pb2_grpc

PlannerLink: TypeAlias = ServiceLink["planner_pb2_grpc.PlannerServiceAsyncStub"]

_SEARCHES = "searches"


@asynccontextmanager
async def planner_link(state_dir: Path | None, *, catalogue: Path | None = None) -> AsyncIterator[PlannerLink]:
    """Links to the running stack's planner, or to one that is started for as long as the block; what that searches is
    kept under the state directory.

    Args:
        catalogue: of hardware, laid over the built-in one. A stack's planner has its own, so with one another is
            started.
    """
    if catalogue is None and has_stack(state_dir):
        yield stack_planner(state_dir)
        return
    searches_dir = (state_dir or default_state_dir()) / _SEARCHES
    async with own_planner(searches_dir, catalogue=catalogue) as planner:
        yield ServiceLink(
            find=lambda: planner.endpoint,
            stub_type=planner_pb2_grpc.PlannerServiceStub,
            token=planner.token,
            is_restarted=False,
        )


def stack_planner(state_dir: Path | None) -> PlannerLink:
    """Links to the running stack's planner."""
    return stack_link("planner", planner_pb2_grpc.PlannerServiceStub, state_dir)


def require_stack(state_dir: Path | None) -> None:
    """Raises FailedPreconditionError where no stack runs that could go on with a search."""
    if not has_stack(state_dir):
        raise FailedPreconditionError("No stack is running that could go on.", hint="Leave out --detach.")
