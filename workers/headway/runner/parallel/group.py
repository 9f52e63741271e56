"""The processes that run one network together, as one of them sees it."""

from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist

from headway.core.errors import UnavailableError
from headway.core.mesh import SINGLE, ParallelConfig
from headway.models.layout import Alone, TensorAxis
from headway.runner.parallel.communicator import Communicator
from headway.runner.parallel.fault import reason
from headway.runner.parallel.traffic import Traffic

_JOIN_S = 30.0
# Ranks wait for the next step's message as long as nobody wants anything.
_IDLE_S = 365 * 86400.0


@dataclass(frozen=True, slots=True)
class RankGroup:
    """This process's place among the others, and its lines to them. A process is in one group at a time.

    Attributes:
        epoch: of this run of the group.
        tensor: the ranks that share each layer's weights.
        control: all ranks, on CPU tensors, without a deadline; None alone.
        timeout_s: after which a rank that does not answer counts as gone.
        traffic: what this rank has sent.
    """

    parallel: ParallelConfig
    rank: int
    epoch: str
    tensor: TensorAxis
    control: dist.ProcessGroup | None
    timeout_s: float
    traffic: Traffic = field(default_factory=Traffic)

    @classmethod
    def single(cls) -> "RankGroup":
        """One process by itself, without any of torch's groups."""
        return cls(SINGLE, 0, "", Alone(), None, 0.0)

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
    ) -> "RankGroup":
        """Returns when all ranks have come.

        Args:
            store: see `Rendezvous`.
            timeout_s: a collective that takes longer is given up.

        Raises:
            UnavailableError: not all came within 30 s.
        """
        try:
            dist.init_process_group(
                "gloo",
                store=dist.PrefixStore(epoch, store),
                rank=rank,
                world_size=parallel.num_ranks,
                timeout=timedelta(seconds=_JOIN_S),
            )
            control = dist.new_group(backend="gloo", timeout=timedelta(seconds=_IDLE_S))
            traffic = Traffic()
            tensor: TensorAxis = Alone()
            # Every rank takes part in making every group, in the same order, its own or not.
            for ranks in sorted({parallel.tensor_ranks(member) for member in range(parallel.num_ranks)}):
                group = dist.new_group(
                    list(ranks),
                    backend="nccl" if device.type == "cuda" else "gloo",
                    timeout=timedelta(seconds=timeout_s),
                )
                if rank in ranks:
                    tensor = Communicator("tensor", group=group, traffic=traffic)
        except RuntimeError as error:
            if dist.is_initialized():
                dist.destroy_process_group()
            raise UnavailableError(
                f"Rank {rank} of {parallel.num_ranks} did not meet the others: {reason(error)}",
                hint="Look for workers that have ended.",
            ) from error
        return cls(parallel, rank, epoch, tensor, control, timeout_s, traffic)

    def leave(self) -> None:
        """Ends all lines; the process may join another group."""
        if dist.is_initialized():
            dist.destroy_process_group()
