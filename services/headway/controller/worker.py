"""One worker process, as the controller knows it."""

import logging
from collections.abc import Collection, Sequence

from headway.controller.clients.worker import WorkerControlClient, WorkerReport
from headway.controller.groups import GroupRun
from headway.core.errors import HeadwayError
from headway.core.load_order import LoadOrder
from headway.core.move import MoveTarget
from headway.store.membership import Member

log = logging.getLogger(__name__)


class Worker:
    """A worker process, from when it is met until another one takes its name.

    Attributes:
        member: its latest lease.
        hardware: as it told us.
        works: what it serves.
        run: of the group that it is part of.
        has_lease: whether it holds its lease.
        is_gone: whether it has died or is being ended.
        loading: the model of the load that runs; '' for none.
        fraction: how much of that model is loaded, in [0, 1].
    """

    def __init__(self, member: Member, *, report: WorkerReport, works: Sequence[LoadOrder]) -> None:
        self.member = member
        self.hardware = report.hardware
        self.works = tuple(works)
        self.run = GroupRun(worker_ids=works[0].worker_ids if works else (), epoch=report.group_epoch)
        self.has_lease = True
        self.is_gone = False
        self.loading = ""
        self.fraction = 0.0

    @property
    def is_present(self) -> bool:
        return self.has_lease and not self.is_gone

    def leads(self, work: LoadOrder) -> bool:
        return work.leader == self.member.member_id

    def takes_over(self, work: LoadOrder) -> bool:
        """Whether it leads a group that serves the work's checkpoint."""
        return any(self.leads(own) and own.continues(work) for own in self.works)

    def begin_load(self, model: str) -> None:
        self.loading, self.fraction = model, 0.0

    def begin(self, work: LoadOrder, *, epoch: str) -> None:
        """It has loaded its part of a work."""
        self.loading = ""
        self.works = (*(other for other in self.works if other.model != work.model), work)
        self.run = GroupRun(worker_ids=work.worker_ids, epoch=epoch)

    def end(self, works: Collection[LoadOrder]) -> None:
        """It does not serve these any more."""
        self.works = tuple(work for work in self.works if work not in works)
        self.loading, self.fraction = "", 0.0
        if not self.works:
            self.run = GroupRun()

    async def drain(
        self, client: WorkerControlClient, *, deadline_s: float, targets: Sequence[MoveTarget] = (), model: str = ""
    ) -> None:
        """Has the running sequences of a model, or all, go on at the targets, or lets them end; the deadline cuts them
        off."""
        name = self.member.member_id
        try:
            drained = await client.drain(self.member.endpoint, deadline_s=deadline_s, targets=targets, model=model)
        except HeadwayError as error:
            log.warning("%s cannot be drained: %s", name, error)
        else:
            log.info(
                "%s is drained: %d sequences have moved, %d were cut off",
                name,
                drained.num_moved,
                drained.num_cancelled,
            )
