"""Loading as one rank of a group: meet the others, load, wait until all of them have."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import TypeVar

import torch

from headway.runner.parallel.group import RankGroup
from headway.runner.parallel.rendezvous import Rendezvous
from headway.worker.load_call import LoadCall
from headway.worker.order import LoadOrder

T = TypeVar("T")


def load_in_group(
    order: LoadOrder,
    *,
    device: str,
    address: str,
    call: LoadCall,
    load: Callable[[LoadOrder, RankGroup], T],
) -> T:
    """Joins the group, then calls `load`, which must not talk to the other ranks. Returns once all ranks have loaded.

    They join first, so that a load that fails on one is told to all; with any fault the group is left.

    Args:
        address: where other ranks reach this process.
        load: called with the order, its rendezvous filled in, and the group.

    Raises:
        HeadwayError: a rank could not load, here or elsewhere, or did not join, or the caller has gone away.
    """
    rendezvous = Rendezvous.at(order.rendezvous) if order.rendezvous else Rendezvous.host(address)
    if not order.rendezvous:
        order = replace(order, rendezvous=str(rendezvous))
        call.tell(0.0, "waiting for the group's other ranks", rendezvous=order.rendezvous)
    group = RankGroup.join(
        rendezvous.store,
        epoch=order.group_epoch,
        parallel=order.parallel,
        rank=order.rank,
        device=torch.device(device),
        timeout_s=order.collective_timeout_s,
    )
    with ExitStack() as undo:
        undo.callback(group.leave)
        loaded = _load(order, group, rendezvous, load)
        rendezvous.wait_all_loaded(order.parallel.num_ranks, is_cancelled=call.is_cancelled)
        undo.pop_all()
    return loaded


def _load(order: LoadOrder, group: RankGroup, rendezvous: Rendezvous, load: Callable[[LoadOrder, RankGroup], T]) -> T:
    """Loads, and tells the other ranks how that went."""
    try:
        loaded = load(order, group)
    except Exception as error:
        rendezvous.report_failed(order.rank, str(error))
        raise
    rendezvous.report_loaded(order.rank)
    return loaded
