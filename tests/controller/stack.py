"""A controller in the process of a test, over a real Redis and a supervisor of real processes."""

import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from headway.controller.api_keys import ApiKeys
from headway.controller.clients.planner import PlannerClient
from headway.controller.clients.profiler import ProfilerClient
from headway.controller.clients.router import RouterClient
from headway.controller.clients.worker import WorkerControlClient
from headway.controller.desired import DesiredPlan
from headway.controller.idle_models import IdleModels
from headway.controller.launchers.local import LocalLauncher
from headway.controller.placements import Placements
from headway.controller.process import ProcessRecord, ProcessSpec
from headway.controller.replanning import Replanning
from headway.controller.replanning_loop import ReplanningLoop
from headway.controller.service import ControllerService
from headway.controller.servicer import ControllerServicer
from headway.controller.supervisor import Supervisor
from headway.controller.worker_pool import WorkerPool
from headway.core.catalogue import built_in_catalogue
from headway.core.deployment import Deployment
from headway.core.plan.placement import PlacementPlan
from headway.core.plan.serving import EngineLimits, ServingPlan
from headway.rpc.peers import Peers
from headway.store.api_keys import ApiKeyStore
from headway.store.documents import Documents
from headway.store.membership import Member, Membership
from headway.store.plans import PlanStore
from headway.store.redis import Database
from headway.store.replanning import ReplanningStore
from headway.store.schema import DEPLOYMENT, PLACEMENT, PROCESS
from headway.store.traffic import TrafficStore

OWN_MEMBER = Member(
    kind="controller", member_id="controller", endpoint="127.0.0.1:1", metrics_endpoint="", pid=1, started_at_s=1.0
)


async def always() -> bool:
    """There is one controller."""
    return True


class Stack:
    """One controller in this process. Leaving `controlling` ends it as a crash would; `shutdown` ends everything."""

    def __init__(self, database: Database, peers: Peers, deployment: Deployment, specs: list[ProcessSpec], logs: Path):
        self.membership = Membership(database)
        self.plans = PlanStore(database)
        self.supervisor = Supervisor(
            specs,
            launcher=LocalLauncher(logs),
            records=Documents(database, PROCESS, ProcessRecord),
            membership=self.membership,
            peers=peers,
            may_act=always,
        )
        stored, planner = Documents(database, PLACEMENT, PlacementPlan), PlannerClient(peers)
        pool = WorkerPool(WorkerControlClient(peers, epoch=1), plans=self.plans, end_process=self.supervisor.end_run)
        desired = DesiredPlan(self.plans, planner=planner, limits=deployment.limits, placements=stored)
        self.service = ControllerService(
            deployment,
            processes=self.supervisor,
            pool=pool,
            desired=desired,
            profiler=ProfilerClient(peers),
            plans=self.plans,
            deployments=Documents(database, DEPLOYMENT, Deployment),
            peers=peers,
            own_member=lambda: OWN_MEMBER,
        )
        self.placements = Placements(stored, planner=planner, desired=desired, pool=pool, limits=deployment.limits)
        replanning = Replanning(
            planner=planner,
            placements=self.placements,
            desired=desired,
            pool=pool,
            traffic=TrafficStore(database),
            apply=self.service.apply,
            catalogue=built_in_catalogue(),
            answer_overhead_s=deployment.answer_overhead_s,
            queue_policy=deployment.queue_policy,
        )
        self.replanning_loop = ReplanningLoop(
            ReplanningStore(database), replanning=replanning, is_ready=lambda: self.service.status().ready
        )
        self.idle_models = IdleModels(self.service, plans=self.plans, view=RouterClient(peers).view)
        self._database = database
        self._planner = PlannerClient(peers)

    def pid(self, name: str) -> int:
        handle = self.supervisor.processes[name].handle
        assert handle is not None
        return handle.pid

    def kill(self, name: str) -> int:
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)
        return pid

    def servicer(self, *, on_shutdown: Callable[[], Awaitable[None]]) -> ControllerServicer:
        """What other processes call it by."""
        return ControllerServicer(
            self.service,
            placements=self.placements,
            replanning=self.replanning_loop,
            idle_models=self.idle_models,
            api_keys=ApiKeys(ApiKeyStore(self._database), clock=time.time),
            on_shutdown=on_shutdown,
        )

    async def plan_alone(self, plan: ServingPlan) -> ServingPlan:
        """A plan for the same workers, each of which serves alone."""
        return await self._planner.make(plan.models, plan.workers, limits=EngineLimits())

    async def events(self) -> list[str]:
        """What workers were asked, in order; read once."""
        key = f"{self._database.namespace}:events"
        found = [str(event) for event in await self._database.redis.lrange(key, 0, -1)]
        await self._database.redis.delete(key)
        return found


Control = Callable[..., Any]
Serve = Callable[..., Any]
