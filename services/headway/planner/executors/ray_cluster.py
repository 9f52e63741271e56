"""Does parts of a search on the machines of a Ray cluster."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from headway.rpc.ray_cluster import ray_cluster

_LOOK_EVERY_S = 0.2

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
    """Connects to a cluster until the block ends; for its address and errors see `ray_cluster`.

    Args:
        size: number of tasks at once; None for as many as the cluster has cores.
    """
    with ray_cluster(address) as ray:
        yield RayExecutor(ray, size=size or max(1, int(ray.cluster_resources().get("CPU", 1))))
