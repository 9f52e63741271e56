"""One worker process, as the controller knows it."""

import logging
from collections.abc import Collection, Sequence

from headway.controller.clients.worker import WorkerClient, WorkerReport
from headway.controller.groups import GroupRun
from headway.controller.reconcile import Work
from headway.core.errors import HeadwayError
from headway.core.move import MoveTarget
from headway.store.membership import Member

log = logging.getLogger(__name__)


class Worker:
    """A worker process, from when it is met until another one takes its name.

    Attributes:
        member: its latest lease.
        hardware: as it told us.
        work: what it serves; None while it serves nothing.
        run: of the group that it is part of.
        has_lease: whether it holds its lease.
        is_gone: whether it has died or is being ended.
        fraction: of the load that runs, in [0, 1].
    """

    def __init__(self, member: Member, *, report: WorkerReport, work: Work | None) -> None:
        self.member = member
        self.hardware = report.hardware
        self.work = work
        self.run = GroupRun(worker_ids=work.worker_ids if work else (), epoch=report.group_epoch)
        self.has_lease = True
        self.is_gone = False
        self.fraction = 0.0

    @property
    def is_present(self) -> bool:
        return self.has_lease and not self.is_gone

    def takes_over(self, works: Collection[Work]) -> bool:
        """Whether it leads a group that serves one of the works' checkpoints."""
        own = self.work
        return own is not None and own.leader == self.member.member_id and any(own.continues(work) for work in works)

    def begin(self, work: Work, *, epoch: str) -> None:
        """It has loaded its part of a work."""
        self.work = work
        self.run = GroupRun(worker_ids=work.worker_ids, epoch=epoch)

    def end(self) -> None:
        """It serves nothing any more."""
        self.work = None
        self.run = GroupRun()
        self.fraction = 0.0

    async def drain(self, client: WorkerClient, *, deadline_s: float, targets: Sequence[MoveTarget] = ()) -> None:
        """Has running sequences go on at the targets, or lets them end; the deadline cuts them off."""
        name = self.member.member_id
        try:
            drained = await client.drain(self.member.endpoint, deadline_s=deadline_s, targets=targets)
        except HeadwayError as error:
            log.warning("%s cannot be drained: %s", name, error)
        else:
            log.info(
                "%s is drained: %d sequences have moved, %d were cut off",
                name,
                drained.num_moved,
                drained.num_cancelled,
            )
