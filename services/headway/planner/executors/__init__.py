"""Search executors run local searches in parallel: in processes of this machine, or on many machines by Ray."""

from contextlib import AbstractContextManager, nullcontext

from headway.planner.executors.processes import process_executor
from headway.planner.executors.ray_cluster import ray_executor
from headway.planner.placement.search.parallel import SearchExecutor


def search_executor(processes: int | None, ray: str) -> AbstractContextManager[SearchExecutor | None]:
    """Returns the executor to search with; None where the caller's process searches alone.

    Args:
        processes: ways at once; None for one, or for as many as a Ray cluster has cores.
        ray: its address; empty for none.

    Raises:
        FailedPreconditionError, UnavailableError: as `ray_executor`, on entering.
    """
    if ray:
        return ray_executor(ray, size=processes)
    return nullcontext() if processes in (None, 1) else process_executor(processes or 1)
