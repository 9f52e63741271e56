"""Loading as one rank of a group: meet the others, load, wait until all of them have."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TypeVar

import torch

from headway.core.errors import FailedPreconditionError
from headway.runner.parallel.follower import Follower
from headway.runner.parallel.group import RankGroup
from headway.runner.parallel.leader import Leader
from headway.runner.parallel.rendezvous import Rendezvous
from headway.worker.load_call import LoadCall
from headway.worker.order import LoadOrder

T = TypeVar("T")


@dataclass(slots=True)
class GroupSeat:
    """This worker's place in a group, while it has models there.

    Attributes:
        rendezvous: of the latest model.
        role: by which it computes what the group does.
    """

    rendezvous: Rendezvous
    group: RankGroup
    role: Leader | Follower


class GroupLoading:
    """Loads a worker's part of the models of a group, one after the other.

    Args:
        address: where other ranks reach this process.
    """

    def __init__(self, *, device: str, address: str) -> None:
        self._device = torch.device(device)
        self._address = address
        self._seat: GroupSeat | None = None

    def load(self, order: LoadOrder, *, call: LoadCall, load: Callable[[LoadOrder, GroupSeat], T]) -> T:
        """Joins the group, unless it is in it, then calls `load`, which must not talk to the other ranks. Returns once
        all ranks have loaded.

        They join first, so that a load that fails on one is told to all; with any fault of its first model the group is
        left.

        Args:
            load: called with the order, its rendezvous filled in, and the seat; it takes its model up there, with the
                rendezvous' number.

        Raises:
            HeadwayError: a rank could not load, here or elsewhere, or did not join, or the caller has gone away.
        """
        if self._seat is not None and not self._seat.role.has_models:
            self._seat = None  # the leader has let all go
        rendezvous = self._meet(order, self._seat)
        if not order.rendezvous:
            order = replace(order, rendezvous=str(rendezvous))
            call.tell(0.0, "waiting for the group's other ranks", rendezvous=order.rendezvous)
        if self._seat is None:
            self._seat = self._join(order, rendezvous)
        seat = self._seat
        seat.rendezvous = rendezvous
        with ExitStack() as undo:
            undo.callback(self._abandon, seat)
            loaded = _load(order, seat, load)
            rendezvous.wait_all_loaded(order.parallel.num_ranks, is_cancelled=call.is_cancelled)
            undo.pop_all()
        return loaded

    def _meet(self, order: LoadOrder, seat: GroupSeat | None) -> Rendezvous:
        """Where the model's ranks tell each other how they fare."""
        if not order.rendezvous:
            return Rendezvous.host(self._address) if seat is None else seat.rendezvous.for_next()
        if seat is not None and seat.group.epoch != order.group_epoch:
            raise FailedPreconditionError(
                "The group's leader has begun anew, and this rank has not.", hint="Restart the group's workers."
            )
        return Rendezvous.at(order.rendezvous)

    def _join(self, order: LoadOrder, rendezvous: Rendezvous) -> GroupSeat:
        group = RankGroup.join(
            rendezvous.store,
            epoch=order.group_epoch,
            parallel=order.parallel,
            rank=order.rank,
            device=self._device,
            timeout_s=order.collective_timeout_s,
        )
        return GroupSeat(rendezvous, group, Leader(group) if order.rank == 0 else Follower(group))

    def _abandon(self, seat: GroupSeat) -> None:
        seat.role.abandon(seat.rendezvous.number)
        if not seat.role.has_models:
            seat.group.leave()
            self._seat = None


def _load(order: LoadOrder, seat: GroupSeat, load: Callable[[LoadOrder, GroupSeat], T]) -> T:
    """Loads, and tells the other ranks how that went."""
    try:
        loaded = load(order, seat)
    except Exception as error:
        seat.rendezvous.report_failed(order.rank, str(error))
        raise
    seat.rendezvous.report_loaded(order.rank)
    return loaded
