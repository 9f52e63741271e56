"""One worker process, as the controller drives it."""

import asyncio
import logging
import time

from headway.controller.clients.worker import WorkerClient, WorkerReport
from headway.controller.reconcile import Action, Work
from headway.controller.trouble import LoadTrouble
from headway.core.errors import HeadwayError
from headway.store.membership import Member

log = logging.getLogger(__name__)

_DRAIN_S = 60.0


class Worker:
    """A worker process and the one action that may run on it.

    Attributes:
        member: its latest lease.
        hardware: as it told us.
        work: what it serves; None while it serves nothing.
        trouble: with loads; shared with the processes that had this worker's name before.
        is_present: whether it holds its lease.
        fraction: of the load that runs, in [0, 1].
    """

    def __init__(
        self, member: Member, *, report: WorkerReport, work: Work | None, trouble: LoadTrouble, client: WorkerClient
    ) -> None:
        self.member = member
        self.hardware = report.hardware
        self.work = work
        self.trouble = trouble
        self.is_present = True
        self.fraction = 0.0
        self._client = client
        self._task: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        return self._task is not None and not self._task.done()

    def start(self, action: Action, *, plan_id: str) -> None:
        """Performs an action in the background."""
        assert not self.is_busy, f"{action.worker_id} is busy"
        log.info("%s", action)
        self._task = asyncio.create_task(self._perform(action, plan_id), name=f"act-{action.worker_id}")

    async def cancel(self) -> None:
        """Stops waiting for the action; a load goes on in the worker."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def drain(self, *, deadline_s: float) -> None:
        """Lets running sequences end, or cuts them off at the deadline."""
        name = self.member.member_id
        try:
            num_cancelled = await self._client.drain(self.member.endpoint, deadline_s=deadline_s)
        except HeadwayError as error:
            log.warning("%s cannot be drained: %s", name, error)
        else:
            log.info("%s is drained, %d sequences were cut off", name, num_cancelled)

    async def _perform(self, action: Action, plan_id: str) -> None:
        if action.before is not None:
            await self.drain(deadline_s=_DRAIN_S)
        self.work = None
        if action.after is not None:
            await self._load(action.after, plan_id)

    async def _load(self, work: Work, plan_id: str) -> None:
        self.fraction = 0.0
        try:
            await self._client.load(self.member.endpoint, work, plan_id=plan_id, on_progress=self._note_progress)
        except HeadwayError as error:
            name = self.member.member_id
            log.warning("%s could not load %s: %s", name, work.model, error)
            self.trouble.note_failure(error, work=work, worker_id=name, now_s=time.monotonic())
        else:
            self.work = work
            self.trouble.note_success()

    def _note_progress(self, fraction: float, stage: str) -> None:
        self.fraction = fraction
        log.debug("%s: %s, %.0f %%", self.member.member_id, stage, 100 * fraction)
