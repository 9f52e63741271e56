"""All workers: which are present, what each serves, and the rollout from that to a plan."""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from headway.controller.clients.worker import WorkerControlClient, WorkerReport
from headway.controller.group_rollout import GroupRollout
from headway.controller.groups import broken, mates
from headway.controller.planned_orders import PlannedOrders
from headway.controller.reconcile import Action, reconcile, startable
from headway.controller.trouble import LoadTrouble
from headway.controller.worker import Worker
from headway.core.cluster import PlanWorker
from headway.core.errors import HeadwayError
from headway.core.load_order import LoadOrder
from headway.core.move import MoveTarget
from headway.store.membership import Member
from headway.store.plans import PlanStore

log = logging.getLogger(__name__)


class EndProcess(Protocol):
    def __call__(self, name: str, *, pid: int) -> None: ...


class WorkerPool:
    """Knows the workers and brings them to their work. A worker that was restarted serves nothing.

    Args:
        end_process: ends the process of a worker id and a pid; another one is started in its place.
    """

    def __init__(self, client: WorkerControlClient, *, plans: PlanStore, end_process: EndProcess) -> None:
        self.workers: dict[str, Worker] = {}
        self._client = client
        self._plans = plans
        self._end_process = end_process
        self._loads: list[GroupRollout] = []
        self._troubles: dict[tuple[tuple[str, ...], str], LoadTrouble] = {}  # by group and model

    async def observe(self, members: list[Member]) -> None:
        """Takes in who is there. A lapsed lease ends nothing that runs on its worker; another run does."""
        newcomers = []
        for worker in self.workers.values():
            worker.has_lease = False
        for member in members:
            known = self.workers.get(member.member_id)
            if known is not None and known.member.run == member.run:
                known.member, known.has_lease = member, True
            else:
                newcomers.append(member)
        orders = PlannedOrders(self._plans)
        await asyncio.gather(*(self._meet(member, orders) for member in newcomers))
        for worker_id in broken({name: worker.run for name, worker in self.workers.items() if worker.is_present}):
            log.warning("%s is alone in its group's run", worker_id)
            self._end_run(worker_id)

    def serving(self) -> dict[str, tuple[LoadOrder, ...]]:
        """What each worker that is present serves."""
        return {worker_id: worker.works for worker_id, worker in self.workers.items() if worker.is_present}

    def memory_bytes(self) -> dict[str, int]:
        """Returns the memory that each present worker may use, in bytes."""
        return {name: worker.hardware.memory_bytes for name, worker in self.workers.items() if worker.is_present}

    def plan_workers(self) -> list[PlanWorker]:
        """Returns the present workers as the planner takes them."""
        return [
            PlanWorker(
                worker_id=worker_id,
                hardware=worker.hardware,
                machine=worker.member.endpoint.rpartition(":")[0],
                pool=worker.member.pool,
            )
            for worker_id, worker in self.workers.items()
            if worker.is_present
        ]

    def pursue(self, wanted: Mapping[str, Sequence[LoadOrder]], *, plan_id: str) -> None:
        """Starts what may start now of the way to `wanted`; to be called again and again."""
        places = {(work.worker_ids, work.model) for works in wanted.values() for work in works}
        self._troubles = {place: trouble for place, trouble in self._troubles.items() if place in places}
        self._loads = [load for load in self._loads if load.is_running]
        serving, now_s = self.serving(), time.monotonic()
        needed = reconcile(wanted, serving=serving, memory_bytes=self.memory_bytes())
        actions = [action for action in needed if self._allows(action, now_s=now_s)]
        busy = {worker_id for load in self._loads for worker_id in load.action.involved if worker_id in serving}
        for action in startable(actions, wanted=wanted, serving=serving, busy=busy):
            self._start(action, plan_id=plan_id)

    def note_death(self, worker_id: str, *, pid: int) -> None:
        """A process has died; those that ran together with it are ended."""
        worker = self.workers.get(worker_id)
        if worker is None or worker.is_gone or worker.member.pid != pid:
            return
        worker.is_gone = True
        for mate in mates(worker_id, {name: worker.run for name, worker in self.workers.items()}):
            self._end_run(mate)

    def fault(self) -> HeadwayError | None:
        """The error of the first group that cannot load its model, if there is one."""
        faults = (trouble.fault for trouble in self._troubles.values())
        return next((fault for fault in faults if fault is not None), None)

    async def drain(self, *, deadline_s: float) -> None:
        """Lets all running sequences end, or cuts them off at the deadline."""
        await self.close()
        leaders = [
            worker
            for worker in self.workers.values()
            if worker.is_present and any(worker.leads(work) for work in worker.works)
        ]
        await asyncio.gather(*(worker.drain(self._client, deadline_s=deadline_s) for worker in leaders))

    async def close(self) -> None:
        """Stops waiting for actions."""
        await asyncio.gather(*(load.cancel() for load in self._loads))

    def _allows(self, action: Action, *, now_s: float) -> bool:
        if action.after is None:
            return True
        trouble = self._troubles.get((action.worker_ids, action.after.model))
        return trouble is None or trouble.allows(action.after, now_s=now_s)

    def _start(self, action: Action, *, plan_id: str) -> None:
        load = GroupRollout(
            action,
            workers={name: self.workers[name] for name in action.involved if name in self.workers},
            client=self._client,
            trouble=self._trouble_of(action),
            end_run=self._end_run,
            targets={work: self._targets(action, work) for work in action.before},
        )
        load.start(plan_id=plan_id)
        self._loads.append(load)

    def _trouble_of(self, action: Action) -> LoadTrouble:
        if action.after is None:
            return LoadTrouble()
        return self._troubles.setdefault((action.worker_ids, action.after.model), LoadTrouble())

    def _targets(self, action: Action, work: LoadOrder) -> list[MoveTarget]:
        """Other workers that serve the same, by which `action` and those that run now do not come."""
        involved = {name for load in self._loads for name in load.action.involved}.union(action.involved)
        return [
            MoveTarget(worker_id=worker_id, endpoint=worker.member.endpoint)
            for worker_id, worker in self.workers.items()
            if worker.is_present and worker_id not in involved and worker.takes_over(work)
        ]

    def _end_run(self, worker_id: str) -> None:
        worker = self.workers.get(worker_id)
        if worker is not None and not worker.is_gone:
            worker.is_gone = True
            self._end_process(worker_id, pid=worker.member.pid)

    async def _meet(self, member: Member, orders: PlannedOrders) -> None:
        try:
            report = await self._client.describe(member.endpoint)
            works = await _load_orders_of(member.member_id, report, orders)
            for model in report.leaving if works or not report.group_epoch else ():  # another controller was about to
                await self._client.unload(member.endpoint, model)
        except HeadwayError as error:
            log.info("%s cannot be asked yet: %s", member.member_id, error)
            return
        for load in self._loads:
            if member.member_id in load.action.involved:
                await load.abandon(member.member_id)
        self.workers[member.member_id] = Worker(member, report=report, works=works)
        if report.group_epoch and not works:
            log.warning("%s was left in the middle of its group's load or end", member.member_id)
            self._end_run(member.member_id)


async def _load_orders_of(worker_id: str, report: WorkerReport, orders: PlannedOrders) -> list[LoadOrder]:
    """What a worker that another controller has loaded serves; not what was being drained."""
    return [
        work
        for model, plan_id in report.plan_ids.items()
        for work in await orders.of(worker_id, plan_id=plan_id)
        if work.model == model
    ]
