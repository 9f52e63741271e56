"""Loading as one rank of a group: meet the others, load, wait until all of them have."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TypeVar

import torch

from headway.core.errors import FailedPreconditionError
from headway.core.load_order import LoadOrder
from headway.runner.parallel.follower import Follower
from headway.runner.parallel.group import RankGroup
from headway.runner.parallel.leader import Leader
from headway.runner.parallel.rendezvous import Rendezvous
from headway.worker.load_call import LoadCall

T = TypeVar("T")


@dataclass(slots=True)
class GroupMembership:
    """This worker's place in a group, while it has models there.

    Attributes:
        rendezvous: where the ranks of the latest model meet.
        role: leader or follower: how it takes part in the group's steps.
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
        self._membership: GroupMembership | None = None

    def load(self, order: LoadOrder, *, call: LoadCall, load: Callable[[LoadOrder, GroupMembership], T]) -> T:
        """Joins the group, unless it is in it, then calls `load`, which must not talk to the other ranks. Returns once
        all ranks have loaded.

        They join first, so that a load that fails on one is told to all; with any fault of its first model the group is
        left.

        Args:
            load: called with the order, its rendezvous filled in, and the membership; it takes its model up there, with
                the rendezvous' number.

        Raises:
            HeadwayError: a rank could not load, here or elsewhere, or did not join, or the caller has gone away.
        """
        if self._membership is not None and not self._membership.role.has_models:
            self._membership = None  # the leader has let all go
        rendezvous = self._meet(order, self._membership)
        if not order.rendezvous:
            order = replace(order, rendezvous=str(rendezvous))
            call.tell(0.0, "waiting for the group's other ranks", rendezvous=order.rendezvous)
        if self._membership is None:
            self._membership = self._join(order, rendezvous)
        membership = self._membership
        membership.rendezvous = rendezvous
        with ExitStack() as undo:
            undo.callback(self._abandon, membership)
            loaded = _load(order, membership, load)
            rendezvous.wait_all_loaded(order.parallel.num_ranks, is_cancelled=call.is_cancelled)
            undo.pop_all()
        return loaded

    def _meet(self, order: LoadOrder, membership: GroupMembership | None) -> Rendezvous:
        """Returns the rendezvous where the model's ranks watch whether the others are alive."""
        if not order.rendezvous:
            return Rendezvous.host(self._address) if membership is None else membership.rendezvous.for_next()
        if membership is not None and membership.group.epoch != order.group_epoch:
            raise FailedPreconditionError(
                "The group's leader has begun anew, and this rank has not.", hint="Restart the group's workers."
            )
        return Rendezvous.at(order.rendezvous)

    def _join(self, order: LoadOrder, rendezvous: Rendezvous) -> GroupMembership:
        group = RankGroup.join(
            rendezvous.store,
            epoch=order.group_epoch,
            parallel=order.parallel,
            rank=order.rank,
            device=self._device,
            timeout_s=order.collective_timeout_s,
        )
        return GroupMembership(rendezvous, group, Leader(group) if order.rank == 0 else Follower(group))

    def _abandon(self, membership: GroupMembership) -> None:
        membership.role.abandon(membership.rendezvous.number)
        if not membership.role.has_models:
            membership.group.leave()
            self._membership = None


def _load(order: LoadOrder, membership: GroupMembership, load: Callable[[LoadOrder, GroupMembership], T]) -> T:
    """Loads, and tells the other ranks how that went."""
    try:
        loaded = load(order, membership)
    except Exception as error:
        membership.rendezvous.report_failed(order.rank, str(error))
        raise
    membership.rendezvous.report_loaded(order.rank)
    return loaded
