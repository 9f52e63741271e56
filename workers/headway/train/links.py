"""What ranks exchange: tensors between two of them, and sums over several."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Protocol

import torch
import torch.distributed as dist

from headway.core.errors import UnavailableError
from headway.train.communicator import Communicator, communicator

_CPU = torch.device("cpu")


class Pending(Protocol):
    """A transfer that was begun."""

    def wait(self, what: str) -> None:
        """Returns when it is over; UnavailableError says `what` was waited for where it never is."""


class Links:
    """Non-blocking transfers. Both sides number what they exchange alike, so nothing depends on timing.

    Groups of ranks are this object's own: a process may hold several ranks, or what else it likes of torch.distributed.

    Args:
        store: this gang's alone.
        groups: sets of ranks that add up gradients; the same on all ranks.
        rows: sets of ranks that share operators, ascending or not; the same on all ranks, too.
        timeout_s: after which a wait is given up.
        blocks: whether every transfer is waited for where it is begun.
        device: of all tensors.
    """

    def __init__(
        self, rank: int, world: int, *, store: dist.Store, groups: Iterable[tuple[int, ...]], timeout_s: float,
        rows: Iterable[tuple[int, ...]] = (), blocks: bool = False, device: torch.device = _CPU,
    ) -> None:  # fmt: skip
        self.world, self._rank, self._device = world, rank, device
        self._timeout = timedelta(seconds=timeout_s)
        self._blocks = blocks
        try:
            self._all = self._met(store, "all", tuple(range(world)))
            self._groups = {ranks: self._met(store, "sums", ranks) for ranks in groups if rank in ranks}
            self._rows = {ranks: self._met(store, "rows", ranks) for ranks in rows if rank in ranks}
        except RuntimeError as error:
            raise UnavailableError(f"Rank {rank} did not meet the others: {error}") from error

    def _met(self, store: dist.Store, name: str, ranks: tuple[int, ...]) -> Communicator:
        """The ranks as a group, in which they have the numbers of their places."""
        own = dist.PrefixStore(f"{name} {ranks}", store)
        return communicator(own, ranks.index(self._rank), len(ranks), device=self._device, timeout=self._timeout)

    def send(self, tensor: torch.Tensor, peer: int, tag: int) -> "Transfer":
        return self._begun(self._all.send([tensor], peer, tag), tensor, peer)

    def receive(self, tensor: torch.Tensor, peer: int, tag: int) -> "Transfer":
        return self._begun(self._all.recv([tensor], peer, tag), tensor, peer)

    def add_up(self, tensor: torch.Tensor, ranks: tuple[int, ...]) -> "Transfer":
        """Replaces the tensor on all these ranks by the sum of theirs, the same bits on each."""
        return self._begun(self._groups[ranks].allreduce([tensor]), tensor, -1)

    def add_up_parts(self, tensor: torch.Tensor, own: torch.Tensor, ranks: tuple[int, ...]) -> "PartSum":
        """Fills `own` with the sum of the ranks' tensors in this rank's part of them, added in the ranks' order.

        Args:
            tensor: of one dim, as many equal parts as there are ranks.
        """
        received = torch.empty_like(tensor)
        work = self._groups[ranks].alltoall_base(received, tensor, [], [])
        return PartSum(self._begun(work, tensor, -1), received.view(len(ranks), -1), own)

    def gather(self, tensor: torch.Tensor, own: torch.Tensor, ranks: tuple[int, ...]) -> "Transfer":
        """Fills a tensor of one dim with the equal parts that the ranks have of it."""
        parts = list(tensor.chunk(len(ranks)))
        return self._begun(self._groups[ranks].allgather([parts], [own.clone()]), tensor, -1)

    def gather_row(self, tensor: torch.Tensor, row: tuple[int, ...]) -> list[torch.Tensor]:
        """The tensors of all ranks of a row, in its order."""
        parts = [torch.empty_like(tensor) for _ in row]
        self._wait_for_row(self._rows[row].allgather([parts], [tensor]), row)
        return parts

    def gather_flat(self, part: torch.Tensor, row: tuple[int, ...]) -> torch.Tensor:
        """The parts of all ranks of a row behind each other, each of one dim and one size."""
        room = part.new_empty(len(part) * len(row))
        self._wait_for_row(self._rows[row].allgather([list(room.chunk(len(row)))], [part]), row)
        return room

    def add_up_row(self, tensor: torch.Tensor, row: tuple[int, ...]) -> torch.Tensor:
        """Replaces the tensor on all ranks of a row by the sum of theirs, and gives it."""
        self._wait_for_row(self._rows[row].allreduce([tensor]), row)
        return tensor

    def add_up_own(self, parts: Sequence[torch.Tensor], row: tuple[int, ...]) -> torch.Tensor:
        """The sum of the parts that the ranks of a row have for this one, added in the row's order.

        Args:
            parts: for each rank of the row, all of one shape.
        """
        return self.exchange_row(parts, row).sum(0)

    def exchange_row(self, parts: Sequence[torch.Tensor] | torch.Tensor, row: tuple[int, ...]) -> torch.Tensor:
        """What the ranks of a row have for this one, in the row's order, along a new dim 0.

        Args:
            parts: for each rank of the row, all of one shape; or one tensor that has them along dim 0.
        """
        given = parts if isinstance(parts, torch.Tensor) else torch.stack(list(parts))
        received = torch.empty_like(given)
        self._wait_for_row(self._rows[row].alltoall_base(received, given, [], []), row)
        return received

    def _wait_for_row(self, work: dist.Work, row: tuple[int, ...]) -> None:
        try:
            work.wait(self._timeout)
        except RuntimeError as error:
            others = ", ".join(str(rank) for rank in row if rank != self._rank)
            raise UnavailableError(f"rank {others} did not answer in an operator that it shares: {error}") from error

    def add_up_everywhere(self, tensor: torch.Tensor) -> None:
        self._begun(self._all.allreduce([tensor]), tensor, -1).wait("the sums of all ranks")

    def wait_for_all(self) -> None:
        """Returns when all ranks have come here."""
        self.add_up_everywhere(torch.zeros(1, device=self._device))

    def close(self) -> None:
        """Leaves the others; what was begun has been waited for."""
        for group in (*self._rows.values(), *self._groups.values(), self._all):
            group.shutdown()

    def _begun(self, work: dist.Work, tensor: torch.Tensor, peer: int) -> "Transfer":
        transfer = Transfer(work, tensor, peer, self._timeout)
        if self._blocks:
            transfer.wait("a transfer that blocks")
        return transfer


class PartSum:
    """A sum of which each rank gets a part; see `Pending`."""

    def __init__(self, transfer: "Transfer", received: torch.Tensor, own: torch.Tensor) -> None:
        self._transfer, self._received, self._own = transfer, received, own

    def wait(self, what: str) -> None:
        self._transfer.wait(what)
        self._own.zero_()
        for part in self._received:
            self._own.add_(part)


class Transfer:
    """Keeps what travels until it has; see `Pending`."""

    __slots__ = ("_is_over", "_peer", "_tensor", "_timeout", "_work")

    def __init__(self, work: dist.Work, tensor: torch.Tensor, peer: int, timeout: timedelta) -> None:
        self._work, self._tensor, self._peer, self._timeout = work, tensor, peer, timeout
        self._is_over = False

    def wait(self, what: str) -> None:
        if self._is_over:
            return
        try:
            self._work.wait(self._timeout)
        except RuntimeError as error:
            peer = "the other ranks" if self._peer < 0 else f"rank {self._peer}"
            raise UnavailableError(f"{peer} did not answer while this one waited for {what}: {error}") from error
        self._is_over = True
