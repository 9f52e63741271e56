"""Serves what ModelDeployments declare: plans for them, has that applied, and tells in their status what came of it."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from headway.controller.kubernetes.admission import Admission, admit
from headway.controller.kubernetes.api import KubernetesApi
from headway.controller.kubernetes.event import event_of
from headway.controller.kubernetes.model_fetches import ModelFetches
from headway.controller.kubernetes.model_resource import MODEL_DEPLOYMENT, ModelResource
from headway.controller.kubernetes.model_status import AWAITS_APPROVAL, message_of, reason_of, says_fault, status_of
from headway.controller.kubernetes.model_volume import ModelVolume
from headway.controller.kubernetes.plan_origins import PlanOrigins, model_orders
from headway.controller.kubernetes.planned import Planned
from headway.controller.kubernetes.proposals import Proposals, is_same, without_changes
from headway.controller.kubernetes.watch import ResourceWatch
from headway.controller.reconcile import Action
from headway.core.errors import AlreadyExistsError, ErrorCode, HeadwayError
from headway.core.load_order import LoadOrder
from headway.core.plan.serving import ModelDeployment, ServingPlan
from headway.core.served_adapters import keeping_adapters

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0
_LAST_RETRY_S = 30.0
_PATIENCE_S = 60.0
_NEEDED_FOR_ANSWERS = ("gateway", "router")


class ModelDeployments:
    """Keeps the desired plan one for the declared models, and their status true. It writes nothing that stands already.

    Args:
        num_workers: how many there should be; None where that is not known yet.
        volume: that models are on.
        fetches: that bring models there.
        is_emulated: whether models need no weights.
        refusals: why sleeping models could not be woken when they were asked for, by name.
        patience_s: how long workers that are missing are waited for before others have to do, once there are some.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        api: KubernetesApi,
        *,
        service: Planned,
        num_workers: Callable[[], int | None],
        volume: ModelVolume,
        fetches: ModelFetches,
        is_emulated: bool,
        refusals: Callable[[], Mapping[str, HeadwayError]] = dict,
        patience_s: float = _PATIENCE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.watch = ResourceWatch(api, MODEL_DEPLOYMENT)
        self._api = api
        self._service = service
        self._num_workers = num_workers
        self._volume = volume
        self._fetches = fetches
        self._is_emulated = is_emulated
        self._refusals = refusals
        self._patience_s = patience_s
        self._clock = clock
        self._waiting_since_s = clock()  # when all workers were there last, or none was
        self._planned_for: object = None
        self._faults: dict[str, HeadwayError] = {}  # by resource
        self._proposals = Proposals(service)
        self._origins = PlanOrigins(service)
        self._written: dict[str, tuple[str, dict[str, Any]]] = {}  # by uid: the version before, and the status

    async def reconcile_forever(self) -> None:
        """Plans when resources or workers are others than before, and looks every second what is loaded by now; waits
        longer after each failure."""
        wait_s = _LOOK_EVERY_S
        while True:
            self.watch.changed.clear()
            try:
                await self._step()
                wait_s = _LOOK_EVERY_S
            except HeadwayError as error:
                log.warning("model resources are looked at again in %.0f s: %s", wait_s, error)
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, _LAST_RETRY_S)
            try:
                await asyncio.wait_for(self.watch.changed.wait(), _LOOK_EVERY_S)
            except TimeoutError:
                continue

    async def _step(self) -> None:
        if self.watch.objects is None:
            return
        resources = sorted(map(ModelResource.of, self.watch.objects.values()), key=lambda each: each.claim)
        await self._fetches.keep(resources)
        if self._has_workers():
            await self._plan(resources)
        orders = model_orders(self._service.desired_plan)
        self._origins.forget_others(orders)
        for resource in resources:
            await self._tell(resource, orders.get(resource.model, frozenset()))
        uids = {resource.uid for resource in resources}
        self._written = {uid: written for uid, written in self._written.items() if uid in uids}

    def _has_workers(self) -> bool:
        """Whether to plan for those that are there: all are, or the others have been waited for."""
        num_present, now_s = len(self._service.present_workers()), self._clock()
        num_wanted = self._num_workers()
        is_complete = num_wanted is not None and num_present >= num_wanted
        if is_complete or num_present == 0:
            self._waiting_since_s = now_s
        return is_complete or now_s - self._waiting_since_s > self._patience_s

    async def _plan(self, resources: Sequence[ModelResource]) -> None:
        """Plans anew where resources have changed, or there are workers that the plan does not know. Those that are
        away are expected back."""
        plan = self._service.desired_plan
        if self._planned_for == self._given(resources):
            return
        wanted, faults = await self._read(resources)
        for resource, proposal, changes in await self._proposals.apply_approved(resources, wanted):
            approved = f"{proposal.plan.plan_id}: {'; '.join(proposal.changes) or 'nothing is loaded anew'}"
            await self._record(resource, "PlanApplied", approved)
            for other in resources:
                if other is not resource:
                    await self._report_changes(other, proposal.plan, changes)
        plan = self._service.desired_plan
        held = {resource.name for resource in resources if resource.is_manual and resource.name in wanted}
        now = without_changes(wanted, held, plan)
        priorities = {now[each.name].name: each.priority for each in resources if each.name in now}
        try:
            admission = await self._admit(list(now.values()), plan, priorities)
        except HeadwayError as error:
            if error.code in (ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED):
                raise
            admission = Admission(plan=plan, refused=dict.fromkeys((model.name for model in now.values()), error))
        refusals = {name: admission.refused.get(model.name) for name, model in now.items()}
        self._faults = faults | {name: refusal for name, refusal in refusals.items() if refusal is not None}
        changes = await self._apply(admission.plan, plan)
        changing = {name: wanted[name] for name in held if now.get(name) != wanted[name]}
        proposed, unplanned = await self._proposals.make(changing)
        self._faults |= unplanned
        self._planned_for = self._given(resources)
        for resource in resources:
            if resource.name in proposed:
                await self._record(resource, AWAITS_APPROVAL, message_of(resource, proposed[resource.name]))
            else:
                await self._report_fault(resource)
                await self._report_changes(resource, admission.plan, changes)

    def _given(self, resources: Sequence[ModelResource]) -> object:
        """What a plan is made of: the resources, the workers that the desired plan does not know, and those that it has
        and is not to have; a proposal also of the plan that it would replace."""
        plan = self._service.desired_plan
        known = set() if plan is None else {worker.worker_id for worker in plan.workers}
        present = {worker.worker_id for worker in self._service.present_workers()}
        replaced = plan.plan_id if plan is not None and self._proposals.waiting else ""
        return (
            present - known,
            known & self._service.retired,
            replaced,
            self._fetches.arrived,
            [(each.uid, each.generation, each.approved) for each in resources],
        )

    async def _read(
        self, resources: Sequence[ModelResource]
    ) -> tuple[dict[str, ModelDeployment], dict[str, HeadwayError]]:
        """The models by resource, and what is wrong with the other resources. Of a resource that became wrong the model
        stays that is planned for."""
        plan = self._service.desired_plan
        wanted: dict[str, ModelDeployment] = {}
        faults: dict[str, HeadwayError] = {}
        owner: dict[str, str] = {}
        for resource in resources:
            try:
                if (missing := self._fetches.fault_of(resource)) is not None:
                    raise missing
                read = await asyncio.to_thread(resource.read, volume=self._volume, is_emulated=self._is_emulated)
                model = keeping_adapters(read, plan)
                if model.name in owner:
                    raise AlreadyExistsError(
                        f"{owner[model.name]} serves a model as {model.name}.", hint="Give another servedName."
                    )
            except HeadwayError as error:
                faults[resource.name] = error
                before = None if plan is None else plan.model(resource.model)
                if before is None or before.name in owner:
                    continue
                model = before
            owner[model.name] = resource.name
            wanted[resource.name] = model
        return wanted, faults

    async def _admit(
        self, wanted: Sequence[ModelDeployment], plan: ServingPlan | None, priorities: Mapping[str, int]
    ) -> Admission:
        if not wanted:  # a plan serves a model at least, so what there is stays
            return Admission(plan=plan, refused={})
        current = {} if plan is None else {model.name: model for model in plan.models}
        return await admit(wanted, current=current, try_plan=self._service.propose, priorities=priorities)

    async def _apply(self, plan: ServingPlan | None, current: ServingPlan | None) -> list[Action]:
        """FailedPreconditionError where another plan than the current one was applied while this one was made."""
        if plan is None or is_same(plan, current):
            return []
        return await self._service.apply(plan, dry_run=False, replaces=None if current is None else current.plan_id)

    async def _tell(self, resource: ModelResource, orders: frozenset[LoadOrder]) -> None:
        """Writes the resource's status where it is another one than was written.

        Args:
            orders: what groups are to load of its model.
        """
        version, written = self._written_of(resource)
        plan, plan_id = self._service.desired_plan, ""
        if plan is not None and orders:
            plan_id = await self._origins.of(resource.model, orders, plan=plan, told=written.get("planId", ""))
        status = status_of(
            resource,
            plan=plan,
            plan_id=plan_id,
            orders=orders,
            fault=self._fetches.fault_of(resource) or self._faults.get(resource.name),
            refusal=self._refusals().get(resource.model),
            fetched=self._fetches.report_of(resource),
            proposal=self._proposals.waiting.get(resource.name),
            serving=self._service.serving(),
            waiting_for=", ".join(self._service.missing(_NEEDED_FOR_ANSWERS)),
            previous=written,
            now=_now(),
        )
        is_heard = status == dict(resource.status)
        is_on_its_way = status == written and version == resource.version
        if not is_heard and not is_on_its_way:
            await self._api.apply_status(MODEL_DEPLOYMENT, resource.name, status)
            self._written[resource.uid] = (resource.version, status)

    def _written_of(self, resource: ModelResource) -> tuple[str, dict[str, Any]]:
        """The version before its status was written last, and that status."""
        return self._written.get(resource.uid, ("", dict(resource.status)))

    async def _report_fault(self, resource: ModelResource) -> None:
        """An event with why the resource as it is now is not planned for, unless its status says so already."""
        fault = self._faults.get(resource.name)
        if fault is not None and not says_fault(self._written_of(resource)[1], fault, generation=resource.generation):
            await self._record(resource, reason_of(fault), str(fault), is_warning=True)

    async def _report_changes(
        self, resource: ModelResource, plan: ServingPlan | None, changes: Sequence[Action]
    ) -> None:
        """An event with what a plan changes for the resource's model, where that is anything."""
        own = [str(change) for change in changes if resource.model in change.models]
        if plan is not None and own:
            await self._record(resource, "PlanApplied", f"{plan.plan_id}: {'; '.join(own)}")

    async def _record(self, resource: ModelResource, reason: str, message: str, *, is_warning: bool = False) -> None:
        """An event. One that cannot be written is lost."""
        event = event_of(
            MODEL_DEPLOYMENT,
            name=resource.name,
            uid=resource.uid,
            namespace=self._api.namespace,
            is_warning=is_warning,
            reason=reason,
            message=message,
            now=_now(),
        )
        try:
            await self._api.create_event(event)
        except HeadwayError as error:
            log.warning("an event of %s is lost: %s", resource.name, error)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
