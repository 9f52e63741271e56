"""The processes that run one network together, as one of them sees it."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta

import torch
import torch.distributed as dist

from headway.core.errors import UnavailableError
from headway.core.parallel_config import SINGLE, ParallelConfig
from headway.models.layout import Alone, CacheAxis, HeadAxis, TensorAxis
from headway.runner.parallel.axis import join_axis
from headway.runner.parallel.collective_counters import CollectiveCounters
from headway.runner.parallel.communicator import Communicator
from headway.runner.parallel.fault import reason
from headway.runner.parallel.stage_link import StageLink, join_links

_JOIN_S = 30.0
# Ranks wait for the next step's message as long as nobody wants anything.
_IDLE_S = 365 * 86400.0


@dataclass(frozen=True, slots=True)
class RankGroup:
    """This process's place in a group of ranks, and its connections to the others. A process is in one group at a time.

    Attributes:
        epoch: the id of this run of the group.
        tensor: the ranks that share each layer's weights.
        cache: the ranks that share each sequence's keys and values.
        head: the ranks that share the output head; without stages those of `tensor`.
        control: a process group of all ranks, for CPU tensors, without a deadline; None for a rank that is alone.
        timeout_s: seconds after which a rank that does not answer counts as gone.
        previous, next: links to the counterparts in the stages before and after, if there are any.
        traffic: counts what this rank has sent.
        lines: the exit stack that closes all connections.
    """

    parallel: ParallelConfig
    rank: int
    epoch: str
    tensor: TensorAxis
    cache: CacheAxis
    head: HeadAxis
    control: dist.ProcessGroup | None
    timeout_s: float
    previous: StageLink | None = None
    next: StageLink | None = None
    traffic: CollectiveCounters = field(default_factory=CollectiveCounters)
    lines: ExitStack = field(default_factory=ExitStack)

    @classmethod
    def single(cls) -> "RankGroup":
        """One process by itself, without any of torch's groups."""
        return cls(SINGLE, 0, "", Alone(), Alone(), Alone(), None, 0.0)

    @classmethod
    def join(
        cls,
        store: dist.Store,
        *,
        epoch: str,
        parallel: ParallelConfig,
        rank: int,
        device: torch.device,
        timeout_s: float,
        may_share_memory: bool = True,
    ) -> "RankGroup":
        """Returns when all ranks have come.

        Args:
            store: see `Rendezvous`.
            timeout_s: a collective that takes longer is given up.
            may_share_memory: where ranks are on one host; else they exchange tensors as between hosts.

        Raises:
            UnavailableError: not all came within 30 s.
        """
        store = dist.PrefixStore(epoch, store)
        traffic = CollectiveCounters()
        try:
            with ExitStack() as lines:
                lines.callback(_end_process_groups)
                dist.init_process_group(
                    "gloo",
                    store=store,
                    rank=rank,
                    world_size=parallel.num_ranks,
                    timeout=timedelta(seconds=_JOIN_S),
                )
                control = dist.new_group(backend="gloo", timeout=timedelta(seconds=_IDLE_S))

                def join(name: str, ranks_of: Callable[[int], tuple[int, ...]]) -> Communicator | Alone:
                    return join_axis(
                        name,
                        [ranks_of(member) for member in range(parallel.num_ranks)],
                        rank=rank,
                        store=store,
                        device=device,
                        timeout_s=timeout_s,
                        join_s=_JOIN_S,
                        may_share_memory=may_share_memory,
                        traffic=traffic,
                        lines=lines,
                    )

                tensor, cache = join("tensor", parallel.weight_ranks), join("cache", parallel.cache_ranks)
                head = tensor if parallel.pp == 1 else join("pipeline", parallel.head_ranks)
                previous, following = join_links(
                    parallel, rank=rank, device=device, timeout_s=timeout_s, traffic=traffic
                )
                return cls(
                    parallel=parallel,
                    rank=rank,
                    epoch=epoch,
                    tensor=tensor,
                    cache=cache,
                    head=head,
                    control=control,
                    timeout_s=timeout_s,
                    previous=previous,
                    next=following,
                    traffic=traffic,
                    lines=lines.pop_all(),
                )
        except RuntimeError as error:
            raise UnavailableError(
                f"Rank {rank} of {parallel.num_ranks} did not meet the others: {reason(error)}",
                hint="Look for workers that have ended.",
            ) from error

    def seen_by_model(self, parallel: ParallelConfig) -> "RankGroup":
        """The same group for one of several models, with its own layers of stages and its own count of what is sent."""
        return replace(self, parallel=parallel, traffic=CollectiveCounters(self.traffic))

    def leave(self) -> None:
        """Ends all lines; the process may join another group."""
        self.lines.close()


def _end_process_groups() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
