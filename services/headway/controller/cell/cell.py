"""The cell: whether its workers have what the plan gives them, and how they are emptied."""

import asyncio
import logging
from collections.abc import Iterator, Sequence

from headway.controller.clients.worker import WorkerControlClient
from headway.controller.reconcile import load_orders_of
from headway.core.errors import HeadwayError
from headway.core.move import MoveTarget
from headway.rpc.peers import Peers
from headway.store.membership import Member
from headway.store.plans import PlanStore

log = logging.getLogger(__name__)

_SERVING = ("ready", "rank")


class Cell:
    """The workers `worker_ids`, as their leases and the plan tell of them.

    Args:
        ready_without_plan: see `CellConfig`.
    """

    def __init__(
        self,
        worker_ids: Sequence[str],
        *,
        peers: Peers,
        plans: PlanStore,
        client: WorkerControlClient,
        ready_without_plan: bool = False,
    ) -> None:
        self._worker_ids = worker_ids
        self._peers = peers
        self._plans = plans
        self._client = client
        self._ready_without_plan = ready_without_plan

    async def is_ready(self) -> bool:
        """Whether every worker is there and has loaded all that the plan says. Whoever replaces one cell after the
        other waits for this, so that a model is always somewhere.

        UnavailableError where Redis is away.
        """
        plan = await self._plans.current()
        if plan is None and not self._ready_without_plan:
            return False
        members = {member.member_id: member for member in self._members()}
        orders = {} if plan is None else load_orders_of(plan)
        return all(
            worker_id in members and {order.model for order in orders.get(worker_id, ())} <= _loaded(members[worker_id])
            for worker_id in self._worker_ids
        )

    async def drain(self, *, deadline_s: float) -> None:
        """Has what runs here go on at other cells, or end; returns when nothing runs, at the latest after the
        deadline. What is cut off then goes on elsewhere too, computed anew."""
        await asyncio.gather(
            *(
                self._drain(member, model, deadline_s)
                for member in self._members()
                if member.is_leader
                for model in member.models
            )
        )

    async def _drain(self, member: Member, model: str, deadline_s: float) -> None:
        try:
            drained = await self._client.drain(
                member.endpoint, deadline_s=deadline_s, targets=list(self._targets(model)), model=model
            )
        except HeadwayError as error:
            log.warning("%s is not drained of %s: %s", member.member_id, model, error)
        else:
            log.info(
                "%s is drained of %s: %d sequences have moved, %d were cut off",
                member.member_id,
                model,
                drained.num_moved,
                drained.num_cancelled,
            )

    def _targets(self, model: str) -> Iterator[MoveTarget]:
        """Other cells' workers that have the model; one that has another checkpoint of it refuses what comes."""
        for member in self._peers.members("worker"):
            is_here = member.member_id in self._worker_ids
            if not is_here and member.is_leader and member.state == "ready" and model in member.models:
                yield MoveTarget(worker_id=member.member_id, endpoint=member.endpoint)

    def _members(self) -> list[Member]:
        return [member for member in self._peers.members("worker") if member.member_id in self._worker_ids]


def _loaded(member: Member) -> set[str]:
    return set(member.models) if member.state in _SERVING else set()
