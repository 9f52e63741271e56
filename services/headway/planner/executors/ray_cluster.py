"""Search executors on the machines of a Ray cluster; Ray is imported only where it is asked for."""

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from headway.core.errors import FailedPreconditionError, UnavailableError
from headway.planner.placement.search.parallel import LocalSearch, search_once
from headway.planner.placement.search.problem import Groups, Problem

_LOOK_EVERY_S = 0.2
_CONNECT_TIMEOUT_S = 5.0


class RaySearchExecutor:
    """Runs local searches on a Ray cluster; implements `headway.planner.placement.search.parallel.SearchExecutor`."""

    def __init__(self, ray: Any, *, size: int) -> None:
        self.size = size
        self._ray = ray
        self._local_search = ray.remote(num_cpus=1)(search_once)

    def run(
        self, problem: Problem, searches: Sequence[LocalSearch], should_stop: Callable[[], bool]
    ) -> list[Groups] | None:
        shared = self._ray.put(problem)
        running = [self._local_search.remote(shared, local_search) for local_search in searches]
        while not should_stop():
            _, left = self._ray.wait(running, num_returns=len(running), timeout=_LOOK_EVERY_S)
            if not left:
                found: list[Groups] = self._ray.get(running)
                return found
        for each in running:
            self._ray.cancel(each, force=True)
        return None


@contextmanager
def ray_executor(address: str, *, size: int | None = None) -> Iterator[RaySearchExecutor]:
    """Processes of a cluster, connected to until the block ends.

    Args:
        address: HOST:PORT of its head, ray://HOST:PORT of its clients' server, 'auto' for the one that this machine is
            part of, or 'local' for one that is started here and ends with the block.
        size: ways at once; None for as many as the cluster has cores.

    Raises:
        FailedPreconditionError: Ray is not installed.
        UnavailableError: there is no cluster at that address.
    """
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        raise FailedPreconditionError(
            "Ray is not installed.", hint="Install it: pip install 'headway[ray]', on every machine.", field="ray"
        ) from error
    _check_reachable(address)
    try:
        ray.init(address=address, log_to_driver=False, include_dashboard=False if address == "local" else None)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise _no_cluster(address, error) from error
    try:
        yield RaySearchExecutor(ray, size=size or max(1, int(ray.cluster_resources().get("CPU", 1))))
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Ray ends the whole process where nobody listens at HOST:PORT."""
    host, colon, port = address.rpartition(":")
    if not colon or "://" in address:
        return
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_TIMEOUT_S):
            pass
    except (OSError, ValueError) as error:
        raise _no_cluster(address, error) from error


def _no_cluster(address: str, error: Exception) -> UnavailableError:
    return UnavailableError(
        f"There is no Ray cluster at '{address}': {(str(error).strip() or 'no answer').splitlines()[0]}",
        hint="Start one with `ray start --head`, and give --ray auto there, or HOST:6379.",
        field="ray",
    )
