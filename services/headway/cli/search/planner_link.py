"""The connection to the planner: a running stack's, or one that is started for as long as it is needed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from headway.cli.search.own_planner import OwnPlanner
from headway.cli.service_link import ServiceLink, find_in_stack, has_stack
from headway.client.access import Access, find_access
from headway.client.stack import default_state_dir
from headway.core.errors import FailedPreconditionError
from headway.v1 import planner_pb2_grpc

_SEARCHES = "searches"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerLink(ServiceLink["planner_pb2_grpc.PlannerServiceAsyncStub"]):
    """How to reach a planner.

    Attributes:
        searches_dir: where the command's own planner keeps its searches; None for a stack's.
    """

    searches_dir: Path | None = None


@asynccontextmanager
async def planner_link(
    state_dir: Path | None, *, catalogue: Path | None = None, ray: str = "", processes: int | None = None
) -> AsyncIterator[PlannerLink]:
    """Links to the running stack's planner, or to one that is started once it is needed and ends with the block; what
    that searches is kept under the state directory.

    Args:
        catalogue: of hardware, laid over the built-in one; a stack's planner has its own.
        ray: cluster to search on; a stack's planner has its own, or none. With either another planner is started.
        processes: that a search of a planner that is started here may have; None for what it lets any have.
    """
    if catalogue is None and not ray and has_stack(state_dir):
        yield stack_planner(state_dir)
        return
    searches_dir = (state_dir or default_state_dir()) / _SEARCHES
    wanted = {"--catalogue": catalogue, "--ray": ray or None, "--max-processes": processes}
    options = [part for flag, value in wanted.items() if value is not None for part in (flag, str(value))]
    planner = OwnPlanner(searches_dir, options=options)
    try:
        yield PlannerLink(
            find=planner.endpoint,
            stub_type=planner_pb2_grpc.PlannerServiceStub,
            access=Access(token=planner.token),
            is_restarted=False,
            searches_dir=searches_dir,
        )
    finally:
        await planner.end()


def stack_planner(state_dir: Path | None) -> PlannerLink:
    """Links to the running stack's planner."""
    return PlannerLink(
        find=partial(find_in_stack, "planner", state_dir),
        stub_type=planner_pb2_grpc.PlannerServiceStub,
        access=find_access(state_dir),
        is_restarted=True,
    )


def require_stack(state_dir: Path | None, *, ray: str = "") -> None:
    """Raises FailedPreconditionError where no stack runs that could go on with a search, or not on a cluster that is
    named."""
    if ray:
        raise FailedPreconditionError(
            "The stack's planner searches where its own setting says.",
            hint="Leave out --ray, and set HEADWAY_RAY for `headway up`; or leave out --detach.",
        )
    if not has_stack(state_dir):
        raise FailedPreconditionError("No stack is running that could go on.", hint="Leave out --detach.")
