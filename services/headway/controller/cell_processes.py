"""The processes of a stack that something else than the controller runs, such as pods of a cluster."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

from headway.controller.clients.cell import CellClient
from headway.controller.stack import SERVICE_KINDS
from headway.controller.status import ProcessStatus
from headway.core.errors import HeadwayError
from headway.observe.metrics import PROCESSES_READY
from headway.rpc.peers import Peers
from headway.store.membership import Member

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0
_KINDS = ("gateway", *SERVICE_KINDS)
_COUNTED = (*_KINDS, "cell", "worker")


class CellProcesses:
    """Knows them by their leases. It starts none; a worker's run is ended by its cell.

    Args:
        num_workers: tells how many there should be.
        has_workers: whether the last plan was made for these very workers and models.
        may_act: whether this controller may end processes now; what it may not do is tried again.
    """

    def __init__(
        self,
        peers: Peers,
        *,
        client: CellClient,
        num_workers: Callable[[], int],
        has_workers: bool,
        may_act: Callable[[], Awaitable[bool]],
    ) -> None:
        self._peers = peers
        self._client = client
        self._num_workers = num_workers
        self._may_act = may_act
        self.has_workers = has_workers
        self._ending: set[asyncio.Task[None]] = set()

    async def start(self) -> list[str]:
        """All of them are somebody else's."""
        return []

    async def watch(self, *, on_death: Callable[[str, int], None]) -> None:
        """Tells of workers whose run is over: another one has their name. One that is only away may come back."""
        known: dict[str, Member] = {}
        while True:
            for member in self._peers.members("worker"):
                before = known.get(member.member_id)
                if before is not None and before.run != member.run:
                    on_death(before.member_id, before.pid)
                known[member.member_id] = member
            self._count_ready()
            await self._peers.wait_for_change(timeout_s=_LOOK_EVERY_S)

    def end_run(self, name: str, *, pid: int) -> None:
        """Has the worker's cell end this run."""
        task = asyncio.create_task(self._end_run(name, pid), name=f"end-{name}")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def statuses(self, *, is_stopping: bool) -> tuple[ProcessStatus, ...]:
        """Those with a lease, and what is missing to a whole stack."""
        members = [member for member in self._peers.everyone if member.kind != "controller"]
        there = [_status(member) for member in sorted(members, key=lambda member: (member.kind, member.member_id))]
        kinds = [member.kind for member in members]
        missing = [kind for kind in _KINDS if kind not in kinds]
        num_present, num_wanted = kinds.count("worker"), self._num_workers()
        missing += [f"worker {number} of {num_wanted}" for number in range(num_present + 1, num_wanted + 1)]
        state = "stopped" if is_stopping else "starting"
        return (
            *there,
            *(ProcessStatus(name=name, kind=name.partition(" ")[0], pid=0, state=state) for name in missing),
        )

    def fault(self) -> HeadwayError | None:
        """Whoever starts them knows why one does not."""
        return None

    async def stop(self) -> None:
        """Whoever started them ends them."""

    async def record_all(self) -> None:
        """Whoever started them has recorded them."""

    async def _end_run(self, name: str, pid: int) -> None:
        """Asks until the run is over: nothing more is loaded there until the next one has come."""
        while True:
            try:
                if await self._may_act():
                    await self._client.end_run(name, pid=pid)
                    return
            except HeadwayError as error:
                log.warning("%s is not ended: %s", name, error)
            await asyncio.sleep(_LOOK_EVERY_S)
            if not any((member.member_id, member.pid) == (name, pid) for member in self._peers.members("worker")):
                return

    def _count_ready(self) -> None:
        """Kinds of which there is none are told as well."""
        kinds = Counter(member.kind for member in self._peers.everyone)
        for kind in _COUNTED:
            PROCESSES_READY.labels(kind).set(kinds[kind])


def _status(member: Member) -> ProcessStatus:
    return ProcessStatus(
        name=member.member_id,
        kind=member.kind,
        pid=member.pid,
        state="draining" if member.state == "draining" else "ready",
        endpoint=member.endpoint,
        metrics_endpoint=member.metrics_endpoint,
        started_at_s=member.started_at_s,
    )
