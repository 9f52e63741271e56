"""What ranks exchange: tensors between two of them, and sums over several."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Protocol

import torch
import torch.distributed as dist

from headway.core.errors import UnavailableError
from headway.train.communicator import communicator
from headway.train.device import CPU, distinct_devices
from headway.train.exchange import Exchange

_SWAP_TAG = 0
"""Of all exchanges in a group, which are in one order on any two ranks."""


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

    Attributes:
        num_devices: on which the gang computes; several ranks may share a GPU.
    """

    def __init__(
        self, rank: int, world: int, *, store: dist.Store, groups: Iterable[tuple[int, ...]], timeout_s: float,
        rows: Iterable[tuple[int, ...]] = (), blocks: bool = False, device: torch.device = CPU,
    ) -> None:  # fmt: skip
        self.world, self._rank, self.device = world, rank, device
        self._timeout = timedelta(seconds=timeout_s)
        self._blocks = blocks
        try:
            self.num_devices = distinct_devices(store, rank, world, device) if device.type == "cuda" else world
            self._all = self._met(store, "all", tuple(range(world)))
            self._groups = {ranks: self._met(store, "sums", ranks) for ranks in groups if rank in ranks}
            self._rows = {ranks: self._met(store, "rows", ranks) for ranks in rows if rank in ranks}
        except RuntimeError as error:
            raise UnavailableError(f"Rank {rank} did not meet the others: {error}") from error

    def _met(self, store: dist.Store, name: str, ranks: tuple[int, ...]) -> Exchange:
        """The ranks as a group, in which they have the numbers of their places."""
        own = dist.PrefixStore(f"{name} {ranks}", store)
        return communicator(
            own,
            ranks.index(self._rank),
            len(ranks),
            device=self.device,
            timeout=self._timeout,
            is_shared=self.num_devices < self.world,
        )

    def send(self, tensor: torch.Tensor, peer: int, tag: int) -> "Transfer":
        return self._begun(partial(self._all.send, [tensor], peer, tag), tensor, (peer,))

    def receive(self, tensor: torch.Tensor, peer: int, tag: int) -> "Transfer":
        return self._begun(partial(self._all.recv, [tensor], peer, tag), tensor, (peer,))

    def add_up(self, tensor: torch.Tensor, ranks: tuple[int, ...]) -> "Transfer":
        """Replaces the tensor on all these ranks by the sum of theirs, the same bits on each."""
        return self._begun(partial(self._groups[ranks].allreduce, [tensor]), tensor, self._others(ranks))

    def add_up_parts(self, tensor: torch.Tensor, ranks: tuple[int, ...]) -> "PartSum":
        """Adds to this rank's part of a tensor what the other ranks have there; its other parts stay.

        Args:
            tensor: of one dim, as many equal parts as there are ranks.
        """
        own, parts = ranks.index(self._rank), tensor.chunk(len(ranks))
        begin = partial(self._swap, self._groups[ranks], ranks)
        found = PartSum(begin, own, parts)
        if self._blocks:
            found.wait("a sum that blocks")
        return found

    def gather(self, tensor: torch.Tensor, ranks: tuple[int, ...]) -> "Transfers":
        """Fills a tensor of one dim, of which each rank has its own one of as many equal parts."""
        return self._gathering(self._groups[ranks], ranks, tensor.chunk(len(ranks)))

    def gather_row(self, tensor: torch.Tensor, row: tuple[int, ...]) -> list[torch.Tensor]:
        """The tensors of all ranks of a row, in its order; this rank's is the given one."""
        parts = [tensor if rank == self._rank else torch.empty_like(tensor) for rank in row]
        self._gathering(self._rows[row], row, parts).wait("an operator that they share")
        return parts

    def gather_flat(self, part: torch.Tensor, row: tuple[int, ...]) -> torch.Tensor:
        """The parts of all ranks of a row behind each other, each of one dim and one size."""
        room = part.new_empty(len(part) * len(row))
        parts = room.chunk(len(row))
        parts[row.index(self._rank)].copy_(part)
        self._gathering(self._rows[row], row, parts).wait("parts of a parameter")
        return room

    def add_up_row(self, tensor: torch.Tensor, row: tuple[int, ...]) -> torch.Tensor:
        """Replaces the tensor on all ranks of a row by the sum of theirs, and gives it."""
        self._wait_for_row(partial(self._rows[row].allreduce, [tensor]), row)
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
        self._wait_for_row(partial(self._rows[row].alltoall_base, received, given, [], []), row)
        return received

    def _wait_for_row(self, begin: Callable[[], dist.Work], row: tuple[int, ...]) -> None:
        try:
            begin().wait(self._timeout)
        except RuntimeError as error:
            who = _named(self._others(row))
            raise UnavailableError(f"{who} did not answer in an operator that it shares: {error}") from error

    def add_up_everywhere(self, tensor: torch.Tensor) -> None:
        self._begun(partial(self._all.allreduce, [tensor]), tensor, ()).wait("the sums of all ranks")

    def wait_for_all(self) -> None:
        """Returns when all ranks have come here."""
        self.add_up_everywhere(torch.zeros(1, device=self.device))

    def close(self) -> None:
        """Leaves the others; what was begun has been waited for."""
        for group in (*self._rows.values(), *self._groups.values(), self._all):
            group.shutdown()

    def _gathering(self, group: Exchange, ranks: tuple[int, ...], parts: Sequence[torch.Tensor]) -> "Transfers":
        """Begins to give all other ranks this one's part, and to fill the others with theirs."""
        own = ranks.index(self._rank)
        swaps = [self._swap(group, ranks, other, parts[own], parts[other]) for other in rounds(own, len(ranks))]
        return Transfers([each for swap in swaps for each in swap.transfers])

    def _swap(
        self, group: Exchange, ranks: tuple[int, ...], other: int, given: torch.Tensor, room: torch.Tensor
    ) -> "Transfers":
        """Begins to exchange one tensor for another with the rank at a place. The first of the two sends first, as NCCL
        does what two ranks exchange in one order."""

        def sent() -> Transfer:
            return self._begun(partial(group.send, [given], other, _SWAP_TAG), given, (ranks[other],))

        def received() -> Transfer:
            return self._begun(partial(group.recv, [room], other, _SWAP_TAG), room, (ranks[other],))

        if ranks.index(self._rank) < other:
            return Transfers([sent(), received()])
        return Transfers([received(), sent()])

    def _others(self, ranks: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(rank for rank in ranks if rank != self._rank)

    def _begun(self, begin: Callable[[], dist.Work], tensor: torch.Tensor, peers: tuple[int, ...]) -> "Transfer":
        """A transfer; UnavailableError where the other side has gone before it.

        Args:
            peers: with whom; empty for all.
        """
        try:
            work = begin()
        except RuntimeError as error:
            raise UnavailableError(f"{_named(peers)} did not answer when a transfer began: {error}") from error
        transfer = Transfer(work, tensor, peers, self._timeout)
        if self._blocks:
            transfer.wait("a transfer that blocks")
        return transfer


def rounds(place: int, count: int) -> Iterator[int]:
    """With whom one of so many exchanges something, round by round, in each of which all do so in pairs."""
    return (other for other in ((number - place) % count for number in range(count)) if other != place)


class PartSum:
    """A sum of which each rank gets a part. In each round it exchanges parts with one other rank, so that it has room
    for one alone; the first round is begun at once, the others where the sum is waited for. See `Pending`.

    Args:
        begin: an exchange with the rank at a place, of a tensor for another.
        place: this rank's, and that of its part.
    """

    def __init__(
        self,
        begin: Callable[[int, torch.Tensor, torch.Tensor], "Transfers"],
        place: int,
        parts: Sequence[torch.Tensor],
    ) -> None:
        self._begin, self._parts, self._own = begin, parts, parts[place]
        self._others = rounds(place, len(parts))
        self._room = torch.empty_like(self._own)
        self._coming = self._next()

    def wait(self, what: str) -> None:
        while self._coming is not None:
            self._coming.wait(what)
            self._own.add_(self._room)
            self._coming = self._next()

    def _next(self) -> "Transfers | None":
        other = next(self._others, None)
        return None if other is None else self._begin(other, self._parts[other], self._room)


class Transfers:
    """Some of them; see `Pending`."""

    def __init__(self, transfers: Sequence["Transfer"]) -> None:
        self.transfers = transfers

    def wait(self, what: str) -> None:
        for transfer in self.transfers:
            transfer.wait(what)


class Transfer:
    """Keeps what travels until it has; see `Pending`."""

    __slots__ = ("_is_over", "_peers", "_tensor", "_timeout", "_work")

    def __init__(self, work: dist.Work, tensor: torch.Tensor, peers: tuple[int, ...], timeout: timedelta) -> None:
        self._work, self._tensor, self._peers, self._timeout = work, tensor, peers, timeout
        self._is_over = False

    def wait(self, what: str) -> None:
        if self._is_over:
            return
        try:
            self._work.wait(self._timeout)
        except RuntimeError as error:
            who = _named(self._peers)
            raise UnavailableError(f"{who} did not answer while this one waited for {what}: {error}") from error
        self._is_over = True


def _named(ranks: tuple[int, ...]) -> str:
    return f"rank {', '.join(map(str, ranks))}" if ranks else "the other ranks"
