"""Keeps as many cells as WorkerPools declare, as pods of its own, and tells in their status what came of it."""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from headway.controller.kubernetes.api import PODS, KubernetesApi
from headway.controller.kubernetes.cell_pod import CellTemplate, cell_of, cell_pod, is_cell_of
from headway.controller.kubernetes.cells import Cell, CellSteps, next_steps
from headway.controller.kubernetes.planned import Planned
from headway.controller.kubernetes.pool_budget import DISRUPTION_BUDGET, budget_name, pool_budget
from headway.controller.kubernetes.pool_resource import POOL_LABEL, WORKER_POOL, PoolResource
from headway.controller.kubernetes.pool_scaler import PoolScaler
from headway.controller.kubernetes.pool_status import pool_status_of
from headway.controller.kubernetes.scaling import ScalingDecision
from headway.controller.kubernetes.watch import ResourceWatch
from headway.core.cluster import PlanWorker
from headway.core.errors import ErrorCode, HeadwayError, NotFoundError

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0
_LAST_RETRY_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shrinking:
    """An answer to whether the models can do without cells, and to which question it is: without which, on which
    workers, in place of which plan."""

    without: frozenset[str]
    staying: frozenset[str]
    plan_id: str
    refusal: HeadwayError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decision:
    """What is to become of a pool now; see `pool_status_of`."""

    pool: PoolResource
    cells: Sequence[Cell]
    steps: CellSteps
    num_wanted: int
    scaling: ScalingDecision | None = None
    fault: HeadwayError | None = None
    blocked: HeadwayError | None = None


class WorkerPools:
    """Makes and deletes cells, those that the models can do without, and no others.

    Attributes:
        pools, pods: what is declared, and the cells; to be followed.

    Args:
        scaler: decides for pools that do not say themselves how many cells they have.
        is_emulated: whether the release's devices are.
    """

    def __init__(
        self,
        api: KubernetesApi,
        *,
        service: Planned,
        template: CellTemplate,
        scaler: PoolScaler,
        is_emulated: bool,
    ) -> None:
        self.pools = ResourceWatch(api, WORKER_POOL)
        self.pods = ResourceWatch(api, PODS, selector=POOL_LABEL)
        self._api = api
        self._service = service
        self._template = template
        self._scaler = scaler
        self._is_emulated = is_emulated
        self._shrinking: dict[str, _Shrinking] = {}  # by pool
        self._staying: dict[str, tuple[str, ...]] | None = None  # cells by pool; None before it is known
        self._written: dict[str, tuple[str, dict[str, Any]]] = {}  # by uid: the version before, and the status
        self._budgets: dict[str, int] = {}  # by uid: for how many cells

    def num_workers(self) -> int | None:
        """How many workers there are to be, of all pools; one at least, as without any there is nothing to plan. None
        before that is known."""
        if self._staying is None:
            return None
        pools = map(PoolResource.of, (self.pools.objects or {}).values())
        return max(1, sum(pool.workers_per_cell * len(self._staying.get(pool.name, ())) for pool in pools))

    async def reconcile_forever(self) -> None:
        """Looks every second, as what cells serve changes without the API server; waits longer after each failure."""
        wait_s = _LOOK_EVERY_S
        while True:
            try:
                await self._step()
                wait_s = _LOOK_EVERY_S
            except HeadwayError as error:
                log.warning("worker pools are looked at again in %.0f s: %s", wait_s, error)
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, _LAST_RETRY_S)
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _step(self) -> None:
        if self.pools.objects is None or self.pods.objects is None:
            return
        pools = sorted(map(PoolResource.of, self.pools.objects.values()), key=lambda pool: pool.name)
        cells = {pool.name: self._cells_of(pool) for pool in pools}
        is_settled = self._is_settled(pools, cells)
        decisions = []
        going: set[str] = set()
        for pool in pools:
            decisions.append(await self._decide(pool, cells[pool.name], is_settled=is_settled, going=going))
            is_settled = is_settled and decisions[-1].num_wanted == sum(cell.is_live for cell in cells[pool.name])
            going |= _going(cells[pool.name], decisions[-1].steps)
        self._staying = {decision.pool.name: decision.steps.staying for decision in decisions}
        self._retire(self._staying)
        for decision in decisions:
            await self._tell(await self._take(decision))
        uids = {pool.uid for pool in pools}
        self._scaler.keep({pool.uid for pool in pools if pool.scaling is not None})
        self._written = {uid: written for uid, written in self._written.items() if uid in uids}
        self._budgets = {uid: num_cells for uid, num_cells in self._budgets.items() if uid in uids}

    def _is_settled(self, pools: Sequence[PoolResource], cells: Mapping[str, Sequence[Cell]]) -> bool:
        """Whether all cells that stay are there and ready, and all workers planned for."""
        plan = self._service.desired_plan
        planned = set() if plan is None else {worker.worker_id for worker in plan.workers}
        present = {worker.worker_id for worker in self._service.present_workers()}
        are_ready = all(cell.is_ready and cell.is_live for pool in pools for cell in cells[pool.name])
        num_staying = sum(len((self._staying or {}).get(pool.name, ())) for pool in pools)
        return are_ready and present == planned and num_staying == sum(len(of_pool) for of_pool in cells.values())

    async def _decide(
        self, pool: PoolResource, cells: Sequence[Cell], *, is_settled: bool, going: Collection[str]
    ) -> _Decision:
        """What is to become of a pool, beside the cells of others that are going."""
        num_wanted, scaling = pool.replicas, None
        if pool.scaling is not None:
            scaling = await self._scaler.wanted(
                pool, is_settled=is_settled, workers_with=lambda num: self._workers_with(pool, cells, num)
            )
            num_wanted = scaling.num_cells
        if (fault := pool.fault(is_emulated=self._is_emulated)) is not None:
            steps = CellSteps(staying=tuple(cell.name for cell in cells))
            return _Decision(pool=pool, cells=cells, steps=steps, num_wanted=num_wanted, fault=fault)
        steps = self._steps(pool, cells, num_wanted)
        blocked = await self._refusal(pool, _going(cells, steps), others=going)
        if blocked is not None:
            steps = self._steps(pool, cells, sum(cell.is_live for cell in cells))
        return _Decision(pool=pool, cells=cells, steps=steps, num_wanted=num_wanted, scaling=scaling, blocked=blocked)

    def _workers_with(self, pool: PoolResource, cells: Sequence[Cell], num_cells: int) -> list[PlanWorker] | None:
        """The workers with so many cells of the pool; a new one would have what one has that is there. None where none
        is."""
        steps, own = self._steps(pool, cells, num_cells), {cell.name for cell in cells}
        going = own - set(steps.staying)
        staying = [each for each in self._service.present_workers() if _cell_name(each.worker_id) not in going]
        example = [worker for worker in staying if _cell_name(worker.worker_id) in own]
        if steps.create and not example:
            return None
        like = _cell_name(example[0].worker_id) if example else ""
        return staying + [
            replace(worker, worker_id=f"{name}-{worker.worker_id.rpartition('-')[2]}", machine=name)
            for name in steps.create
            for worker in example
            if _cell_name(worker.worker_id) == like
        ]

    def _cells_of(self, pool: PoolResource) -> list[Cell]:
        wanted = cell_pod(pool, self._template, name=pool.name)
        pods = [pod for pod in (self.pods.objects or {}).values() if is_cell_of(pod, pool)]
        return sorted((cell_of(pod, wanted=wanted) for pod in pods), key=lambda cell: cell.name)

    def _steps(self, pool: PoolResource, cells: Sequence[Cell], num_wanted: int) -> CellSteps:
        plan, serving = self._service.desired_plan, self._service.serving()
        planned = set() if plan is None else {_cell_name(worker.worker_id) for worker in plan.workers}
        return next_steps(
            pool.name,
            cells,
            num_wanted=num_wanted,
            serving={_cell_name(worker_id) for worker_id, works in serving.items() if works},
            unplanned={cell.name for cell in cells} - planned if plan is not None else (),
        )

    async def _refusal(self, pool: PoolResource, going: set[str], *, others: Collection[str]) -> HeadwayError | None:
        """Why the models cannot do without the cells that would go, beside others that go; None where they can. Asked
        once for each plan; a refusal stands as long as the workers that would stay are the same."""
        plan = self._service.desired_plan
        if plan is None or not any(_cell_name(worker.worker_id) in going for worker in plan.workers):
            return None
        without = frozenset(going.union(others))
        workers = [each for each in self._service.present_workers() if _cell_name(each.worker_id) not in without]
        staying = frozenset(worker.worker_id for worker in workers)
        asked = self._shrinking.get(pool.name)
        is_known = asked is not None and (asked.without, asked.plan_id) == (without, plan.plan_id)
        if asked is None or not is_known or (asked.refusal is not None and asked.staying != staying):
            refusal = await self._ask(workers)
            asked = _Shrinking(without=without, staying=staying, plan_id=plan.plan_id, refusal=refusal)
            self._shrinking[pool.name] = asked
        return asked.refusal

    async def _ask(self, workers: Sequence[PlanWorker]) -> HeadwayError | None:
        try:
            await self._service.plan_on(workers)
        except HeadwayError as error:
            if error.code in (ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED):
                raise
            return error
        return None

    async def _take(self, decision: _Decision) -> _Decision:
        """Takes the steps; what the API server refuses, such as a pod above a quota, is a fault, and tried again."""
        try:
            await self._bound_disruption(decision)
            for name in decision.steps.create:
                await self._api.apply(PODS, name, cell_pod(decision.pool, self._template, name=name))
            for cell in decision.steps.delete:
                await self._delete(cell)
        except HeadwayError as error:
            if error.code is ErrorCode.UNAVAILABLE:
                raise
            log.warning("%s: %s", decision.pool.name, error)
            return replace(decision, fault=error)
        return decision

    async def _bound_disruption(self, decision: _Decision) -> None:
        """Whoever drains nodes takes one cell at a time."""
        pool = decision.pool
        num_cells = max(decision.num_wanted, sum(cell.is_live for cell in decision.cells))
        if self._budgets.get(pool.uid) != num_cells:
            await self._api.apply(DISRUPTION_BUDGET, budget_name(pool), pool_budget(pool, num_cells=num_cells))
            self._budgets[pool.uid] = num_cells

    async def _delete(self, cell: Cell) -> None:
        try:
            await self._api.delete(PODS, cell.name, uid=cell.uid)
        except NotFoundError:
            log.info("%s is gone already", cell.name)

    def _retire(self, cells: Mapping[str, Sequence[str]]) -> None:
        """Has plans made without the workers of cells that go, or whose pool is gone."""
        plan = self._service.desired_plan
        workers = {*self._service.serving(), *(() if plan is None else (worker.worker_id for worker in plan.workers))}
        staying = {name for names in cells.values() for name in names}
        self._service.retire(frozenset(name for name in workers if _cell_name(name) not in staying))

    async def _tell(self, decision: _Decision) -> None:
        pool = decision.pool
        version, written = self._written.get(pool.uid, ("", dict(pool.status)))
        status = pool_status_of(
            replace(pool, status=written),
            decision.cells,
            num_wanted=decision.num_wanted,
            scaling=decision.scaling,
            fault=decision.fault,
            blocked=decision.blocked,
            now=_now(),
        )
        is_heard = status == dict(pool.status)
        is_on_its_way = status == written and version == pool.version
        if not is_heard and not is_on_its_way:
            await self._api.apply_status(WORKER_POOL, pool.name, status)
            self._written[pool.uid] = (pool.version, status)


def _going(cells: Sequence[Cell], steps: CellSteps) -> set[str]:
    """The names of the cells that are there, and are not to be in the end."""
    return {cell.name for cell in cells if cell.is_live} - set(steps.staying)


def _cell_name(worker_id: str) -> str:
    return worker_id.rpartition("-")[0]


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
