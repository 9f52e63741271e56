"""The controller's work: processes as the deployment wants them, workers as the plan wants them."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from headway.controller.clients.profiler import ProfilerClient
from headway.controller.desired import DesiredPlan
from headway.controller.reconcile import Action, load_orders_of, reconcile
from headway.controller.status import ProcessStatus, StackStatus, assess_readiness, worker_status
from headway.controller.worker_pool import WorkerPool
from headway.core.cluster import PlanWorker
from headway.core.deployment import Deployment
from headway.core.engine_kind import FEATURES, Feature
from headway.core.errors import FailedPreconditionError, HeadwayError, NotFoundError
from headway.core.load_order import LoadOrder
from headway.core.plan.serving import ModelDeployment, ServingPlan
from headway.core.profile import profile_id
from headway.rpc.peers import Peers
from headway.store.documents import Documents
from headway.store.membership import Member
from headway.store.plans import PlanStore

log = logging.getLogger(__name__)

_STEP_EVERY_S = 0.25
_PROFILE_AFTER_S = 2.0  # of readiness: the first requests come first
_PROFILE_RETRY_S = 30.0


class Processes(Protocol):
    """Those of the stack: a supervisor's, or cells'. `has_workers` tells, once it has started, whether workers that
    the last plan was made for run on.
    """

    has_workers: bool

    async def start(self) -> list[str]: ...

    async def watch(self, *, on_death: Callable[[str, int], None]) -> None: ...

    def statuses(self, *, is_stopping: bool) -> tuple[ProcessStatus, ...]: ...

    def fault(self) -> HeadwayError | None: ...

    async def stop(self) -> None: ...


class ControllerService:
    """Drives the processes and a pool of workers towards a deployment and a desired plan.

    Args:
        own_member: gives the controller's own lease, for the status.
        data_faults: tells what of Redis cannot be read, for the status.
    """

    def __init__(
        self,
        deployment: Deployment,
        *,
        processes: Processes,
        pool: WorkerPool,
        desired: DesiredPlan,
        profiler: ProfilerClient,
        plans: PlanStore,
        deployments: Documents[Deployment],
        peers: Peers,
        own_member: Callable[[], Member],
        data_faults: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._deployment = deployment
        self._processes = processes
        self._pool = pool
        self._desired = desired
        self._profiler = profiler
        self._plans = plans
        self._deployments = deployments
        self._peers = peers
        self._own_member = own_member
        self._data_faults = data_faults
        self._stopping = False
        self._retired: frozenset[str] = frozenset()

    async def start(self) -> None:
        """Launches or adopts every process. A plan lives as long as the workers that it was made for: if none of
        them is left, a new one is made, unless it was applied: then workers of their names are loaded as it says."""
        await self._processes.start()
        if self._processes.has_workers or self._deployment.placement_id:
            await self._desired.resume()

    async def supervise_forever(self) -> None:
        """Restarts processes that die, and with a worker those that serve together with it."""
        await self._processes.watch(on_death=lambda name, pid: self._pool.note_death(name, pid=pid))

    async def reconcile_forever(self) -> None:
        """Brings the workers to the plan, and again whenever something changed."""
        while not self._stopping:
            try:
                await self._step()
            except HeadwayError as error:
                log.warning("trying again: %s", error)
            await self._peers.wait_for_change(timeout_s=_STEP_EVERY_S)

    async def profile_forever(self) -> None:
        """Has the models measured that are served on estimates, once everything serves, and predicts anew."""
        done: set[str] = set()
        while self._deployment.profile:
            await asyncio.sleep(_PROFILE_AFTER_S)
            plan = self._desired.plan
            if plan is None or not self.status().ready:
                continue
            try:
                await self._profile(plan, done)
            except HeadwayError as error:
                log.warning("predictions stay estimates for now: %s", error)
                await asyncio.sleep(_PROFILE_RETRY_S)

    async def apply(self, plan: ServingPlan, *, dry_run: bool, replaces: str | None = None) -> list[Action]:
        """Desires another plan; returns what changes. The change itself goes on afterwards.

        Args:
            replaces: the id of the plan that this one was made to replace; None for whichever is desired now.

        Raises:
            InvalidArgumentError: the plan is not valid.
            FailedPreconditionError: it needs workers that are not there, or another plan was applied meanwhile.
        """
        plan = await self._desired.named(plan)
        await self._desired.certify(plan)
        self._check_workers(plan)
        needed = reconcile(load_orders_of(plan), serving=self.serving(), memory_bytes=self._pool.memory_bytes())
        if not dry_run:
            await self._desire(plan, replaces=replaces)
        return needed

    async def revise(self, plan: ServingPlan, *, replaces: str) -> None:
        """Desires a plan that has other models loaded on the workers of the desired one. Those of them that are away
        are expected back.

        Raises:
            InvalidArgumentError: the plan is not valid.
            FailedPreconditionError: another plan was applied meanwhile.
        """
        plan = await self._desired.named(plan)
        await self._desired.certify(plan)
        await self._desire(plan, replaces=replaces)

    async def propose_awake(self, *names: str) -> ServingPlan:
        """A plan for the models that are loaded now, and for some that sleep, on all workers of the desired plan and
        those that have come since.

        HeadwayError of the planner where there is none.
        """
        plan = await self.plan("")
        present = {worker.worker_id: worker for worker in self.present_workers()}
        away = (each for each in plan.workers if each.worker_id not in present and each.worker_id not in self._retired)
        return await self._desired.propose_awake(frozenset(names), [*present.values(), *away])

    async def propose(self, models: Sequence[ModelDeployment]) -> ServingPlan:
        """A plan for models on the workers that there are, which keeps as much of the desired one as it can.

        HeadwayError of the planner where there is none.
        """
        return await self._desired.propose(models, self.present_workers())

    def retire(self, worker_ids: frozenset[str]) -> None:
        """Has nothing planned for these workers from now on, and for all others again."""
        self._retired = worker_ids

    @property
    def retired(self) -> frozenset[str]:
        return self._retired

    async def plan_on(self, workers: Sequence[PlanWorker], *, awake: frozenset[str] = frozenset()) -> ServingPlan:
        """A plan for what is desired on other workers, which need not be there.

        Args:
            awake: models that sleep now and are to be loaded.

        HeadwayError of the planner where there is none.
        """
        await self.plan("")  # NotFoundError where nothing is desired yet
        return await self._desired.propose_awake(awake, workers)

    @property
    def desired_plan(self) -> ServingPlan | None:
        return self._desired.plan

    def present_workers(self) -> list[PlanWorker]:
        """Workers that may be planned for."""
        return [worker for worker in self._pool.plan_workers() if worker.worker_id not in self._retired]

    def serving(self) -> Mapping[str, tuple[LoadOrder, ...]]:
        """What each worker serves."""
        return self._pool.serving()

    def missing(self, kinds: Collection[str]) -> list[str]:
        """Processes of these kinds that are not there."""
        statuses = self._processes.statuses(is_stopping=self._stopping)
        return [each.name for each in statuses if each.kind in kinds and each.state in ("starting", "restarting")]

    async def plan(self, plan_id: str) -> ServingPlan:
        """A plan by its id, the desired one for ''."""
        plan = await self._plans.get(plan_id) if plan_id else self._desired.plan
        if plan is None:
            raise NotFoundError(
                f"There is no plan '{plan_id}'." if plan_id else "There is no plan yet.",
                hint="`headway status` says what is being waited for.",
                field="plan_id",
            )
        return plan

    async def plan_ids(self) -> list[str]:
        """Returns the ids of the plans, the newest first."""
        return await self._plans.history()

    def status(self) -> StackStatus:
        plan = self._desired.plan
        processes = self._processes.statuses(is_stopping=self._stopping)
        readiness = assess_readiness(
            processes, wanted=None if plan is None else load_orders_of(plan), workers=self._pool.workers
        )
        return StackStatus(
            processes=(self._own_status(), *processes),
            workers=tuple(worker_status(worker) for _, worker in sorted(self._pool.workers.items())),
            plan_id="" if plan is None else plan.plan_id,
            asleep=() if plan is None else tuple(sorted(plan.asleep)),
            ready=readiness.ready and not self._stopping,
            waiting_for=readiness.waiting_for,
            progress=readiness.progress,
            answer_overhead_s=self._deployment.answer_overhead_s,
            queue_policy=self._deployment.queue_policy,
            faults=(*([self._peers.fault] if self._peers.fault else []), *self._data_faults()),
        )

    def fault(self) -> HeadwayError | None:
        """The error that start-up cannot get past by itself, if there is one."""
        return self._processes.fault() or self._desired.fault or self._pool.fault()

    async def shutdown(self, *, grace_s: float) -> None:
        """Ends everything that the controller started, workers first; their requests have `grace_s` to end."""
        self._stopping = True
        await self._pool.drain(deadline_s=grace_s)
        await self._processes.stop()

    async def close(self) -> None:
        """Leaves everything running, for the next controller."""
        self._stopping = True
        await self._pool.close()

    async def _desire(self, plan: ServingPlan, *, replaces: str | None) -> None:
        await self._desired.set(plan, replaces=replaces)
        self._deployment = replace(self._deployment, models=plan.models, placement_id=plan.placement_id)
        await self._deployments.put(self._deployment)

    async def _step(self) -> None:
        await self._pool.observe(self._peers.members("worker"))
        if self._desired.plan is None and self._deployment.models:
            workers = self._pool.plan_workers()
            if len(workers) >= self._deployment.workers.count and self._peers.members("planner"):
                await self._desired.make(self._deployment.models, workers)
        if (plan := self._desired.plan) is not None and not self._stopping:
            self._pool.pursue(load_orders_of(plan), plan_id=plan.plan_id)

    async def _profile(self, plan: ServingPlan, done: set[str]) -> None:
        for assignment in plan.assignments:
            model, worker = plan.model(assignment.model), plan.worker(assignment.worker_id)
            assert model is not None, "a certified plan has its models"
            assert worker is not None, "a certified plan has its workers"
            profile = profile_id(model.spec, worker.hardware, assignment.parallel, backend=model.backend)
            can_be_timed = Feature.MEASURED_STEPS in FEATURES[model.engine]
            if assignment.prediction.profile_id or profile in done or not can_be_timed:
                continue
            await self._profiler.profile(
                model.spec,
                worker_id=worker.worker_id,
                model=model.name,
                beside_others=bool(self._deployment.workers.cores),  # else they would take turns on the cores
            )
            done.add(profile)
            await self._desired.refresh()
            return  # the plan is another one now

    def _check_workers(self, plan: ServingPlan) -> None:
        present = {worker.worker_id: worker for worker in self._pool.plan_workers()}
        for wanted in plan.workers:
            worker = present.get(wanted.worker_id)
            if worker is None:
                raise FailedPreconditionError(
                    f"The plan needs {wanted.worker_id}, which is not running.",
                    hint=f"The workers are {', '.join(sorted(present)) or 'not up yet'}.",
                    field="plan.workers",
                )
            if worker.hardware.memory_bytes < wanted.hardware.memory_bytes:
                raise FailedPreconditionError(
                    f"{wanted.worker_id} has {worker.hardware.memory_bytes} bytes of memory; the plan counts on "
                    f"{wanted.hardware.memory_bytes}.",
                    hint="Make the plan for the workers that there are.",
                    field="plan.workers",
                )

    def _own_status(self) -> ProcessStatus:
        member = self._own_member()
        return ProcessStatus(
            name=member.kind,
            kind=member.kind,
            pid=member.pid,
            state="ready",
            endpoint=member.endpoint,
            metrics_endpoint=member.metrics_endpoint,
            started_at_s=member.started_at_s,
        )
