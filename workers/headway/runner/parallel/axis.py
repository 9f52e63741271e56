"""Connects the ranks along one axis of a group."""

from collections.abc import Sequence
from contextlib import ExitStack
from datetime import timedelta

import torch
import torch.distributed as dist

from headway.models.layout import Alone
from headway.runner.parallel.collective_counters import CollectiveCounters
from headway.runner.parallel.communicator import Communicator
from headway.runner.parallel.process_group import ProcessGroup
from headway.runner.parallel.shared_memory import SharedMemory
from headway.runner.parallel.transport import Transport


def join_axis(
    name: str,
    ranks_by_member: Sequence[tuple[int, ...]],
    *,
    rank: int,
    store: dist.Store,
    device: torch.device,
    timeout_s: float,
    join_s: float,
    may_share_memory: bool,
    traffic: CollectiveCounters,
    lines: ExitStack,
) -> Communicator | Alone:
    """Joins this rank to the others on the axis: through shared memory on one host's CPUs, else by torch's collectives.

    Args:
        ranks_by_member: for every rank of the group, the ranks along its axis, in order.
        timeout_s: the deadline of a collective.
        join_s: seconds that the ranks have to come together.
        may_share_memory: false for torch's collectives everywhere.
        lines: the exit stack that closes the axis.

    Raises:
        RuntimeError: not all ranks came in time.
    """
    ranks = ranks_by_member[rank]
    # Every rank takes part in making every process group, in the same order, its own or not.
    groups = {
        members: dist.new_group(
            list(members),
            backend="nccl" if device.type == "cuda" else "gloo",
            timeout=timedelta(seconds=timeout_s),
        )
        for members in sorted(set(ranks_by_member))
        if len(members) > 1
    }
    if len(ranks) == 1:
        return Alone()
    place, size = ranks.index(rank), len(ranks)
    transport: Transport | None = None
    if device.type == "cpu" and may_share_memory:
        own_store = dist.PrefixStore(f"{name}/{ranks[0]}", store)
        transport = SharedMemory.meet(own_store, rank=place, size=size, timeout_s=timeout_s, join_s=join_s)
    transport = transport or ProcessGroup(groups[ranks], ranks=ranks, rank=place)
    lines.callback(transport.close)
    return Communicator(name, rank=place, size=size, transport=transport, traffic=traffic)
