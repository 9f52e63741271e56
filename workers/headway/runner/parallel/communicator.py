"""One axis of a group: the ranks along it add up and collect tensors."""

import time
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from headway.engine.batch import RunnerLostError
from headway.runner.parallel.fault import reason
from headway.runner.parallel.traffic import Traffic, TrafficKey


class Communicator:
    """Implements `headway.models.layout.TensorAxis` with torch's collectives.

    Every call is counted. A rank that is gone, or does not come within the group's deadline, raises RunnerLostError.

    Args:
        name: of the axis, in the counters.
        group: its ranks, in order.
    """

    def __init__(self, name: str, *, group: dist.ProcessGroup, traffic: Traffic) -> None:
        self.rank = group.rank()
        self.size = group.size()
        self._name = name
        self._group = group
        self._traffic = traffic
        # Between two ranks a swap moves as many bytes as a ring, in one trip instead of two.
        is_pair = self.size == 2 and dist.get_backend(group) == dist.Backend.GLOO
        self._add_up = self._swap_and_add if is_pair else partial(dist.all_reduce, group=group)

    def all_reduce(self, x: Tensor, *, site: str) -> Tensor:
        """The sum over the ranks, bit for bit the same on each; in place."""
        started_s = time.perf_counter()
        try:
            self._add_up(x)
        except RuntimeError as error:
            raise RunnerLostError(f"{self._name} rank {self.rank}, all_reduce at {site}: {reason(error)}") from error
        self._note("all_reduce", site, 2 * (self.size - 1) * x.nbytes // self.size, started_s)
        return x

    def gather(self, x: Tensor, *, site: str) -> list[Tensor] | None:
        """Tensors of equal shape, by rank, at rank 0; None elsewhere."""
        started_s = time.perf_counter()
        gathered = [torch.empty_like(x) for _ in range(self.size)] if self.rank == 0 else None
        try:
            dist.gather(x, gathered, group=self._group, group_dst=0)
        except RuntimeError as error:
            raise RunnerLostError(f"{self._name} rank {self.rank}, gather at {site}: {reason(error)}") from error
        self._note("gather", site, x.nbytes if self.rank > 0 else 0, started_s)
        return gathered

    def _swap_and_add(self, x: Tensor) -> None:
        theirs = torch.empty_like(x)
        received = dist.irecv(theirs, group=self._group, group_src=1 - self.rank)
        sent = dist.isend(x, group=self._group, group_dst=1 - self.rank)
        assert received is not None, "the group's ranks have axes of their own"
        assert sent is not None, "the group's ranks have axes of their own"
        received.wait()
        sent.wait()
        x.add_(theirs)

    def _note(self, operation: str, site: str, num_bytes: int, started_s: float) -> None:
        key = TrafficKey(self._name, operation, site)
        self._traffic.add(key, num_bytes=num_bytes, seconds=time.perf_counter() - started_s)
