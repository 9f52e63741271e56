"""Does parts of a search on the machines of a Ray cluster; Ray is imported only where it is asked for."""

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TypeVar

from headway.core.errors import FailedPreconditionError, UnavailableError

_LOOK_EVERY_S = 0.2
_CONNECT_TIMEOUT_S = 5.0

S = TypeVar("S")
I = TypeVar("I")  # noqa: E741 - an item
R = TypeVar("R")


class RayExecutor:
    """Runs tasks on a Ray cluster.

    Attributes:
        size: number of tasks at once.
    """

    def __init__(self, ray: Any, *, size: int) -> None:
        self.size = size
        self._ray = ray

    def map(
        self, task: Callable[[S, I], R], shared: S, items: Sequence[I], should_stop: Callable[[], bool]
    ) -> Iterator[R]:
        """Begins all tasks, and yields what each gives, in order; ends early where it is stopped."""
        remote, given = self._ray.remote(num_cpus=1)(task), self._ray.put(shared)
        return self._results([remote.remote(given, item) for item in items], should_stop)

    def _results(self, running: Sequence[Any], should_stop: Callable[[], bool]) -> Iterator[Any]:
        for number, each in enumerate(running):
            while True:
                if should_stop():
                    for left in running[number:]:
                        self._ray.cancel(left, force=True)
                    return
                done, _ = self._ray.wait([each], timeout=_LOOK_EVERY_S)
                if done:
                    yield self._ray.get(each)
                    break


@contextmanager
def ray_executor(address: str, *, size: int | None = None) -> Iterator[RayExecutor]:
    """Connects to a cluster until the block ends.

    Args:
        address: HOST:PORT of its head, ray://HOST:PORT of its clients' server, 'auto' for the one that this machine is
            part of, or 'local' for one that is started here and ends with the block.
        size: number of tasks at once; None for as many as the cluster has cores.

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
        yield RayExecutor(ray, size=size or max(1, int(ray.cluster_resources().get("CPU", 1))))
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Checks that somebody listens at HOST:PORT: otherwise Ray ends the whole process."""
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
