"""All workers: who is there, what each serves, and the way from that to a plan."""

import asyncio
import logging
import time
from collections.abc import Mapping

from headway.controller.clients.worker import WorkerClient, WorkerReport
from headway.controller.reconcile import Work, reconcile, startable, work_of
from headway.controller.trouble import LoadTrouble
from headway.controller.worker import Worker
from headway.core.cluster import PlanWorker
from headway.core.errors import HeadwayError
from headway.store.membership import Member
from headway.store.plans import PlanStore

log = logging.getLogger(__name__)


class Fleet:
    """Knows the workers and brings them to their work. A worker that was restarted serves nothing."""

    def __init__(self, client: WorkerClient, *, plans: PlanStore) -> None:
        self.workers: dict[str, Worker] = {}
        self._client = client
        self._plans = plans

    async def observe(self, members: list[Member]) -> None:
        """Takes in who is there. A lapsed lease ends nothing that runs on its worker; a new endpoint does."""
        newcomers = []
        for worker in self.workers.values():
            worker.is_present = False
        for member in members:
            known = self.workers.get(member.member_id)
            if known is not None and known.member.endpoint == member.endpoint:
                known.member, known.is_present = member, True
            else:
                newcomers.append(member)
        await asyncio.gather(*(self._meet(member) for member in newcomers))

    def serving(self) -> dict[str, Work | None]:
        """What each worker that is present serves."""
        return {worker_id: worker.work for worker_id, worker in self.workers.items() if worker.is_present}

    def plan_workers(self) -> list[PlanWorker]:
        """Those that are present, as a planner sees them."""
        return [
            PlanWorker(worker_id=worker_id, hardware=worker.hardware)
            for worker_id, worker in self.workers.items()
            if worker.is_present
        ]

    def pursue(self, wanted: Mapping[str, Work], *, plan_id: str) -> None:
        """Starts what may start now of the way to `wanted`; to be called again and again."""
        serving, now_s = self.serving(), time.monotonic()
        actions = [
            action
            for action in reconcile(wanted, serving=serving)
            if self.workers[action.worker_id].trouble.allows(action.after, now_s=now_s)
        ]
        busy = [worker_id for worker_id, worker in self.workers.items() if worker.is_busy and worker.is_present]
        for action in startable(actions, wanted=wanted, serving=serving, busy=busy):
            self.workers[action.worker_id].start(action, plan_id=plan_id)

    def fault(self) -> HeadwayError | None:
        """Of the first worker that cannot load its model."""
        faults = (worker.trouble.fault for worker in self.workers.values())
        return next((fault for fault in faults if fault is not None), None)

    async def drain(self, *, deadline_s: float) -> None:
        """Lets all running sequences end, or cuts them off at the deadline."""
        await self.close()
        serving = [worker for worker in self.workers.values() if worker.is_present and worker.work is not None]
        await asyncio.gather(*(worker.drain(deadline_s=deadline_s) for worker in serving))

    async def close(self) -> None:
        """Stops waiting for actions."""
        await asyncio.gather(*(worker.cancel() for worker in self.workers.values()))

    async def _meet(self, member: Member) -> None:
        try:
            report = await self._client.describe(member.endpoint)
            work = await self._work_of(member.member_id, report)
        except HeadwayError as error:
            log.info("%s cannot be asked yet: %s", member.member_id, error)
            return
        if (known := self.workers.get(member.member_id)) is not None:
            await known.cancel()
        trouble = LoadTrouble() if known is None else known.trouble
        self.workers[member.member_id] = Worker(member, report=report, work=work, trouble=trouble, client=self._client)

    async def _work_of(self, worker_id: str, report: WorkerReport) -> Work | None:
        """What a worker that another controller has loaded serves; nothing if it was being drained."""
        if not report.model or report.state == "draining":
            return None
        plan = await self._plans.get(report.plan_id)
        return None if plan is None else work_of(plan).get(worker_id)
