"""Where local search goes on in parallel: in processes of this machine, or on many machines by Ray."""

from contextlib import AbstractContextManager, nullcontext

from headway.planner.climbers.processes import process_climbers
from headway.planner.climbers.ray_cluster import ray_climbers
from headway.planner.placement.search.parallel import Climbers


def climbing(processes: int | None, ray: str) -> AbstractContextManager[Climbers | None]:
    """None where the caller's process does it alone.

    Args:
        processes: ways at once; None for one, or for as many as a Ray cluster has cores.
        ray: its address; empty for none.

    Raises:
        FailedPreconditionError, UnavailableError: as `ray_climbers`, on entering.
    """
    if ray:
        return ray_climbers(ray, size=processes)
    return nullcontext() if processes in (None, 1) else process_climbers(processes or 1)
