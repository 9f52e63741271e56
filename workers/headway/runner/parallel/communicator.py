"""One axis of a group: the ranks along it add up and exchange tensors."""

import time
from collections.abc import Callable, Sequence
from typing import ParamSpec

from torch import Tensor

from headway.engine.batch import RunnerLostError
from headway.runner.parallel.collective_counters import CollectiveCounters, CollectiveKey
from headway.runner.parallel.fault import reason
from headway.runner.parallel.shared_memory import SharedMemory
from headway.runner.parallel.transport import Transport

P = ParamSpec("P")


class Communicator:
    """Implements `headway.models.layout.TensorAxis` and `CacheAxis`.

    Every call is counted, with the bytes that leave this rank: of a sum over N ranks 2 (N - 1) / N of the tensor, as in
    a ring; of a gather the tensor, but at rank 0, where it stays; of an all-gather N - 1 times the tensor; of an
    all-to-all the parts for others. A rank that is gone, or does not come within the deadline, raises RunnerLostError.

    Args:
        name: of the axis, in the counters.
        rank, size: this rank's place on it.
    """

    def __init__(self, name: str, *, rank: int, size: int, transport: Transport, traffic: CollectiveCounters) -> None:
        self.rank = rank
        self.size = size
        self._name = name
        self._transport = transport
        self._traffic = traffic

    @property
    def shares_memory(self) -> bool:
        return isinstance(self._transport, SharedMemory)

    def all_reduce(self, x: Tensor, *, site: str) -> Tensor:
        """The sum over the ranks, bit for bit the same on each; in place."""
        num_bytes = 2 * (self.size - 1) * x.nbytes // self.size
        self._count("all_reduce", site, num_bytes, self._transport.all_reduce, x)
        return x

    def gather(self, x: Tensor, *, sizes: Sequence[int] | None = None, site: str) -> list[Tensor] | None:
        """Every rank's x, by rank, at rank 0; None elsewhere. `sizes`: of their dims 0; None: all alike."""
        sizes = sizes or [len(x)] * self.size
        if self.rank > 0:
            row_bytes = x.shape[1:].numel() * x.element_size()
            all_bytes = [size * row_bytes for size in sizes]
            self._count("gather", site, x.nbytes, self._transport.give, x, all_bytes)
            return None
        outs = self._rows(x, sizes)
        self._count("gather", site, 0, self._transport.gather, x, outs)
        return outs

    def all_gather(self, x: Tensor, *, sizes: Sequence[int], site: str) -> list[Tensor]:
        """Every rank's x, by rank. `sizes`: of their dims 0."""
        outs = self._rows(x, sizes)
        self._count("all_gather", site, (self.size - 1) * x.nbytes, self._transport.all_gather, x, outs)
        return outs

    def all_to_all(self, parts: Sequence[Tensor], *, shapes: Sequence[Sequence[int]], site: str) -> list[Tensor]:
        """Sends `parts[i]` to rank i and returns what each rank sent to this one, in the given shapes."""
        own = parts[self.rank]
        outs = [own if rank == self.rank else own.new_empty(shape) for rank, shape in enumerate(shapes)]
        num_bytes = sum(part.nbytes for part in parts) - own.nbytes
        self._count("all_to_all", site, num_bytes, self._transport.all_to_all, parts, outs)
        return outs

    def close(self) -> None:
        """Lets the other ranks see that this one has gone."""
        self._transport.close()

    def _rows(self, x: Tensor, sizes: Sequence[int]) -> list[Tensor]:
        """Room for every rank's x; the own one is x itself."""
        assert sizes[self.rank] == len(x), "the sizes tell of this rank too"
        return [x if rank == self.rank else x.new_empty(size, *x.shape[1:]) for rank, size in enumerate(sizes)]

    def _count(
        self, operation: str, site: str, num_bytes: int, call: Callable[P, None], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        started_s = time.perf_counter()
        try:
            call(*args, **kwargs)
        except RuntimeError as error:
            raise RunnerLostError(f"{self._name} rank {self.rank}, {operation} at {site}: {reason(error)}") from error
        key = CollectiveKey(self._name, operation, site)
        self._traffic.add(key, num_bytes=num_bytes, seconds=time.perf_counter() - started_s)
