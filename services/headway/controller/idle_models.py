"""Models that may be unloaded while nobody asks for them: which are, and how they come back.

Such a model stays in the plan and has no group there: it sleeps. All others keep what they have. When it is asked for
it gets back the groups that it had, where they still have room; otherwise the planner is asked for all that is awake.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Protocol

from headway.controller.idleness import Idleness
from headway.controller.router_view import ModelSample, RouterView
from headway.core.cluster import PlanWorker
from headway.core.errors import ErrorCode, FailedPreconditionError, HeadwayError, InvalidArgumentError, NotFoundError
from headway.core.plan.serving import DEFAULT_IDLE_S, Assignment, ServingPlan
from headway.observe.metrics import MODEL_ASLEEP, MODEL_WAKES
from headway.store.plans import PlanStore

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0
_RETRY_S = 10.0
_REMEMBERED_S = 60.0  # that it was asked for in vain
_NUM_PLANS_BACK = 20
_NUM_ATTEMPTS = 3
_PASSING = (ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED)


class Revisable(Protocol):
    """The desired plan, and what it can be made into: the controller's service."""

    @property
    def desired_plan(self) -> ServingPlan | None: ...

    def present_workers(self) -> list[PlanWorker]: ...

    async def propose_awake(self, *names: str) -> ServingPlan: ...

    async def revise(self, plan: ServingPlan, *, replaces: str) -> None: ...


class IdleModels:
    """Puts models to sleep and wakes them.

    Attributes:
        refusals: why a model was not woken when it was asked for last, by name.

    Args:
        view: asks the router.
        clock: tells seconds that do not jump.
    """

    def __init__(
        self,
        service: Revisable,
        *,
        plans: PlanStore,
        view: Callable[[], Awaitable[RouterView]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.refusals: Mapping[str, HeadwayError] = {}
        self._service = service
        self._plans = plans
        self._view = view
        self._clock = clock
        self._idleness = Idleness()
        self._refused_s: dict[str, float] = {}  # when
        self._waking = asyncio.Lock()

    async def keep(self) -> None:
        """Looks every second, while there is a model that may sleep. What cannot be seen is no reason for anything."""
        while True:
            try:
                await self.look()
            except HeadwayError as error:
                log.info("who is asked for is looked at again: %s", error)
            await asyncio.sleep(_LOOK_EVERY_S)

    async def look(self) -> None:
        """Wakes what requests wait for at the router, and puts to sleep what nobody has asked for long enough.

        HeadwayError where the router is away, or the plan cannot be changed now.
        """
        plan = self._service.desired_plan
        self._tell()
        if plan is None or plan.placement_id or not any(model.may_sleep for model in plan.models):
            return
        view, now_s = await self._view(), self._clock()
        lasting = (name for name in self.refusals if now_s - self._refused_s[name] < _REMEMBERED_S)
        self.refusals = {name: self.refusals[name] for name in lasting}
        for name in sorted(plan.asleep):
            if view.models.get(name, ModelSample()).num_present:  # on their way to it when it went to sleep
                await self._try_to_wake(name)
        if self._service.desired_plan is not plan or not view.has_all_of(plan):
            return
        awake = [model for model in plan.models if model.may_sleep and model.name not in plan.asleep]
        self._idleness.observe(view, models=[model.name for model in awake], now_s=now_s)
        idle = frozenset(
            model.name
            for model in awake
            if self._idleness.idle_s(model.name, now_s=now_s) >= (model.idle_s or DEFAULT_IDLE_S)
        )
        if idle:
            log.info("nobody has asked for %s for long: unloaded", ", ".join(sorted(idle)))
            await self._service.revise(_without(plan, idle), replaces=plan.plan_id)
            self._tell()

    async def wake(self, name: str) -> str:
        """Has a model planned for, if it sleeps; returns the id of the plan that does.

        Raises:
            NotFoundError: there is no such model.
            FailedPreconditionError: there is no room for it. For some seconds nobody is asked again.
            UnavailableError: the planner or Redis is away.
        """
        async with self._waking:
            for attempt in range(_NUM_ATTEMPTS):
                plan = self._service.desired_plan
                if plan is None or plan.model(name) is None:
                    raise NotFoundError(f"The model '{name}' is not declared.", field="model")
                if name not in plan.asleep:
                    return plan.plan_id
                self._check_refused(name)
                try:
                    await self._plan_for(name, plan)
                except HeadwayError as error:
                    if error.code in _PASSING:
                        raise
                    if self._service.desired_plan is plan or attempt == _NUM_ATTEMPTS - 1:
                        raise self._refused(name, error) from None
                    continue  # the plan was changed meanwhile
                MODEL_WAKES.labels(name, "planned").inc()
                self.refusals = {other: why for other, why in self.refusals.items() if other != name}
                self._tell()
                break
        woken = self._service.desired_plan
        assert woken is not None, "it was desired just now"
        return woken.plan_id

    async def _try_to_wake(self, name: str) -> None:
        try:
            await self.wake(name)
        except FailedPreconditionError as error:
            log.debug("requests wait in vain: %s", error)

    async def _plan_for(self, name: str, plan: ServingPlan) -> None:
        """Desires a plan in which a model has groups again, one of which can load it now."""
        present = {worker.worker_id for worker in self._service.present_workers()}
        former = await self._former_assignments(plan, name)
        if former and all(present.issuperset(each.worker_ids) for each in former):
            again = replace(plan, plan_id="", created_at_s=time.time(), assignments=(*plan.assignments, *former))
            try:
                await self._service.revise(again, replaces=plan.plan_id)
            except InvalidArgumentError as error:
                log.info("%s cannot have its groups back: %s", name, error)
            else:
                return
        woken = await self._service.propose_awake(name)
        if not any(present.issuperset(each.worker_ids) for each in woken.assignments if each.model == name):
            raise FailedPreconditionError("The workers that have room for it are away.")
        await self._service.revise(woken, replaces=plan.plan_id)

    async def _former_assignments(self, plan: ServingPlan, name: str) -> tuple[Assignment, ...]:
        """The groups that a model, as it is now declared, had last."""
        for plan_id in (await self._plans.history())[:_NUM_PLANS_BACK]:
            before = await self._plans.get(plan_id)
            if before is None or before.model(name) != plan.model(name):
                break
            if found := tuple(each for each in before.assignments if each.model == name):
                return found
        return ()

    def _check_refused(self, name: str) -> None:
        if name in self.refusals and self._clock() - self._refused_s[name] < _RETRY_S:
            raise self.refusals[name].with_traceback(None)

    def _refused(self, name: str, error: HeadwayError) -> FailedPreconditionError:
        refusal = FailedPreconditionError(
            f"There is no room to load '{name}' again: {error.message}",
            hint="Try again when another model is idle, or add workers.",
            field="model",
            retry_after_s=_RETRY_S,
        )
        MODEL_WAKES.labels(name, "refused").inc()
        log.warning("%s", refusal)
        self._refused_s[name] = self._clock()
        self.refusals = {**self.refusals, name: refusal}
        return refusal

    def _tell(self) -> None:
        if (plan := self._service.desired_plan) is not None:
            for model in plan.models:
                MODEL_ASLEEP.labels(model.name).set(model.name in plan.asleep)


def _without(plan: ServingPlan, names: frozenset[str]) -> ServingPlan:
    """The plan without the groups of some models; the others keep theirs."""
    assignments = tuple(each for each in plan.assignments if each.model not in names)
    return replace(plan, plan_id="", created_at_s=time.time(), assignments=assignments)
