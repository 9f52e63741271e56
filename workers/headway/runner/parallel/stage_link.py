"""The connection between a rank and its counterpart in the pipeline stage before or after."""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from headway.core.parallel_config import ParallelConfig
from headway.engine.batch import RunnerLostError
from headway.runner.parallel.collective_counters import CollectiveCounters, CollectiveKey
from headway.runner.parallel.fault import reason

_AXIS = "pipeline"


class StageLink:
    """Sends the residual stream from one stage to the next, in order.

    How long nothing is sent does not matter: only who waits has a deadline. Every call is counted. Where the other
    rank is gone, or does not come within the deadline, RunnerLostError is raised.

    Args:
        group: torch's process group of the two ranks.
        num_in_flight: how many tensors may be leaving before `send` waits for the first of them.
        timeout_s: seconds that a rank waits for the other one.
    """

    def __init__(
        self, group: dist.ProcessGroup, *, num_in_flight: int, timeout_s: float, traffic: CollectiveCounters
    ) -> None:
        self._group = group
        self._other = 1 - group.rank()
        self._num_in_flight = num_in_flight
        self._timeout = timedelta(seconds=timeout_s)
        self._traffic = traffic
        # Tensors are kept until they have left, and until they have come.
        self._leaving: deque[tuple[dist.Work | None, Tensor]] = deque()
        self._coming: deque[tuple[dist.Work | None, Tensor]] = deque()

    def send(self, x: Tensor) -> None:
        """Does not wait for the other rank to take it; x must not change any more."""
        started_s = time.perf_counter()
        with _translated("send"):
            if len(self._leaving) == self._num_in_flight:
                self._wait(self._leaving)
            self._leaving.append((dist.isend(x, group=self._group, group_dst=self._other), x))
        self._note("send", x.nbytes, started_s)

    def expect(self, shape: tuple[int, ...], *, dtype: torch.dtype, device: torch.device) -> None:
        """Makes room for what the other rank sends next, so that it comes in while this one computes."""
        x = torch.empty(shape, dtype=dtype, device=device)
        with _translated("receive"):
            self._coming.append((dist.irecv(x, group=self._group, group_src=self._other), x))

    def receive(self) -> Tensor:
        """Waits for the first that is expected."""
        started_s = time.perf_counter()
        with _translated("receive"):
            x = self._wait(self._coming)
        self._note("receive", 0, started_s)
        return x

    def _wait(self, transfers: deque[tuple[dist.Work | None, Tensor]]) -> Tensor:
        work, x = transfers.popleft()
        assert work is not None, "a rank is in its group"
        work.wait(self._timeout)
        return x

    def _note(self, operation: str, num_bytes: int, started_s: float) -> None:
        key = CollectiveKey(_AXIS, operation, "stage")
        self._traffic.add(key, num_bytes=num_bytes, seconds=time.perf_counter() - started_s)


@contextmanager
def _translated(operation: str) -> Iterator[None]:
    """torch's errors into what the engine knows."""
    try:
        yield
    except RuntimeError as error:
        raise RunnerLostError(f"{_AXIS}, {operation}: {reason(error)}") from error


def join_links(
    parallel: ParallelConfig, *, rank: int, device: torch.device, timeout_s: float, traffic: CollectiveCounters
) -> tuple[StageLink | None, StageLink | None]:
    """The links to a rank's counterparts in the stages before and after. All ranks of the group join together."""
    links: dict[int, StageLink] = {}  # by the other rank
    for member in range(parallel.num_ranks):
        following = parallel.next_rank(member)
        if following is None:
            continue
        # Every rank takes part in making every group, in the same order, its own or not.
        group = dist.new_group(
            [member, following],
            backend="nccl" if device.type == "cuda" else "gloo",
            timeout=timedelta(seconds=timeout_s),
        )
        if rank in (member, following):
            other = following if rank == member else member
            links[other] = StageLink(group, num_in_flight=parallel.pp, timeout_s=timeout_s, traffic=traffic)
    before, after = parallel.previous_rank(rank), parallel.next_rank(rank)
    return None if before is None else links[before], None if after is None else links[after]
