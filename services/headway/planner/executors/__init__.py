"""Executors that do parts of a search at once: in processes of this machine, or on many machines by Ray."""

from contextlib import AbstractContextManager, nullcontext

from headway.planner.executors.processes import ProcessExecutor, process_executor
from headway.planner.executors.ray_cluster import RayExecutor, ray_executor


def search_executor(processes: int | None, ray: str) -> AbstractContextManager[ProcessExecutor | RayExecutor | None]:
    """Makes the executor that the options ask for; None where the caller's process searches alone.

    Args:
        processes: number of tasks at once; None for one, or for as many as a Ray cluster has cores.
        ray: address of a Ray cluster; empty for none.

    Raises:
        FailedPreconditionError, UnavailableError: as `ray_executor`, on entering.
    """
    if ray:
        return ray_executor(ray, size=processes)
    return nullcontext() if processes in (None, 1) else process_executor(processes or 1)
