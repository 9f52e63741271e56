"""Scales the pools that say so: watches what is asked of the models, and decides how many cells each should have."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace

from headway.controller.kubernetes.demand import DemandSample, DemandWindow, capacities
from headway.controller.kubernetes.planned import Planned
from headway.controller.kubernetes.pool_resource import PoolResource
from headway.controller.kubernetes.scaling import ScalingDecision, ScalingPolicy, decide
from headway.controller.router_view import ModelSample, RouterView
from headway.core.cluster import PlanWorker
from headway.core.errors import ErrorCode, HeadwayError

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 5.0

WorkersWith = Callable[[int], Sequence[PlanWorker] | None]
"""The workers that there would be with so many cells of a pool; None where nobody knows what those would be."""


class PoolScaler:
    """Remembers for each pool how many cells are wanted, since when, and what was asked of the models since.

    Args:
        view: asks the router.
        refusals: models that sleep and were asked for in vain, by name.
        clock: tells seconds that do not jump.
    """

    def __init__(
        self,
        *,
        service: Planned,
        view: Callable[[], Awaitable[RouterView]],
        refusals: Callable[[], Collection[str]] = tuple,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._service = service
        self._view = view
        self._refusals = refusals
        self._clock = clock
        self._windows: dict[str, tuple[ScalingPolicy, DemandWindow]] = {}  # by uid, as all that follows
        self._wanted: dict[str, int] = {}
        self._changed_s: dict[str, float] = {}
        self._decisions: dict[str, ScalingDecision] = {}
        self._foreseen: dict[tuple[str, str, int, frozenset[str]], Mapping[str, int] | None] = {}  # by plan too

    async def watch_forever(self) -> None:
        """Looks every few seconds. What could not be seen is missing, and makes what is known stale."""
        while True:
            try:
                await self.look()
            except HeadwayError as error:
                log.info("what is asked of the models is not known: %s", error)
            await asyncio.sleep(_LOOK_EVERY_S)

    async def look(self) -> None:
        plan = self._service.desired_plan
        view = await self._view()
        if plan is None or not view.has_all_of(plan):
            return
        models = {**view.models}
        for name in self._refusals():  # nobody who was refused waits at the router
            models[name] = replace(models.get(name, ModelSample()), num_present=1)
        sample = DemandSample(at_s=self._clock(), models=models)
        for _, window in self._windows.values():
            window.add(sample)

    def keep(self, uids: set[str]) -> None:
        """Forgets other pools."""
        for kept in (self._windows, self._wanted, self._changed_s, self._decisions):
            for uid in kept.keys() - uids:
                del kept[uid]

    async def wanted(self, pool: PoolResource, *, is_settled: bool, workers_with: WorkersWith) -> ScalingDecision:
        """How many cells a pool that is scaled is to have now, and why.

        Args:
            is_settled: whether all pools have what they are to have.
        """
        policy = pool.scaling
        assert policy is not None, "others say themselves how many"
        window = self._window(pool.uid, policy)
        now_s = self._clock()
        changed_s = self._changed_s.setdefault(pool.uid, now_s)
        num_cells = self._wanted.setdefault(pool.uid, int(pool.status.get("wantedReplicas", policy.min_cells)))

        async def foresee(num: int) -> Mapping[str, int] | None:
            return await self._foresee(pool.uid, num, num_now=num_cells, workers_with=workers_with)

        try:
            decision = await decide(
                policy,
                window.demand(now_s=now_s),
                num_cells=num_cells,
                is_settled=is_settled,
                since_change_s=now_s - changed_s,
                foresee=foresee,
            )
        except HeadwayError as error:
            decision = ScalingDecision(num_cells=num_cells, reason="PlannerAway", message=str(error))
        return self._taken(pool, policy, decision, num_cells=num_cells, now_s=now_s)

    def _window(self, uid: str, policy: ScalingPolicy) -> DemandWindow:
        known = self._windows.get(uid)
        if known is None or known[0] != policy:
            window = DemandWindow(window_s=policy.window_s, peak_s=policy.cooldown_s)
            known = self._windows[uid] = (policy, window)
        return known[1]

    async def _foresee(
        self, uid: str, num: int, *, num_now: int, workers_with: WorkersWith
    ) -> Mapping[str, int] | None:
        plan = self._service.desired_plan
        if plan is None or num == num_now:
            return None if plan is None else capacities(plan)
        awake = plan.asleep.intersection(self._refusals())
        key = (plan.plan_id, uid, num, awake)
        if key not in self._foreseen:
            self._foreseen = {other: room for other, room in self._foreseen.items() if other[0] == plan.plan_id}
            self._foreseen[key] = await self._plan_with(workers_with(num), awake=awake)
        return self._foreseen[key]

    async def _plan_with(
        self, workers: Sequence[PlanWorker] | None, *, awake: frozenset[str]
    ) -> Mapping[str, int] | None:
        if not workers:
            return None
        try:
            return capacities(await self._service.plan_on(workers, awake=awake))
        except HeadwayError as error:
            if error.code in (ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED):
                raise
            return None

    def _taken(
        self, pool: PoolResource, policy: ScalingPolicy, decision: ScalingDecision, *, num_cells: int, now_s: float
    ) -> ScalingDecision:
        """Remembers a decision, unless it is only to be told. The words of one that is as before stay as they are."""
        if decision.num_cells != num_cells and policy.is_dry_run and decision.reason != "OutOfBounds":
            told = f"would go from {num_cells} to {decision.num_cells} cells: {decision.message}"
            decision = ScalingDecision(num_cells=num_cells, reason="DryRun", message=told)
        before = self._decisions.get(pool.uid)
        if decision.num_cells != num_cells:
            log.info("%s: from %d to %d cells: %s", pool.name, num_cells, decision.num_cells, decision.message)
            self._wanted[pool.uid], self._changed_s[pool.uid] = decision.num_cells, now_s
        elif before is not None and (before.num_cells, before.reason) == (decision.num_cells, decision.reason):
            return before
        self._decisions[pool.uid] = decision
        return decision
