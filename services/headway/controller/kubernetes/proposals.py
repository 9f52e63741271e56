"""Plans that wait for approval, because the resources that they are for say so."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from headway.controller.kubernetes.model_resource import ModelResource
from headway.controller.kubernetes.planned import Planned
from headway.controller.reconcile import Action
from headway.core.cluster import PlanWorker
from headway.core.errors import ErrorCode, HeadwayError
from headway.core.plan.serving import ModelDeployment, ServingPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What would become of a resource's change.

    Attributes:
        model: as the resource has it.
        replaces: the plan that it was made to replace; None for none.
        changes: what it loads and drains, a line for each group.
    """

    model: ModelDeployment
    plan: ServingPlan
    replaces: ServingPlan | None
    changes: tuple[str, ...]

    def holds(self, model: ModelDeployment, *, current: ServingPlan | None, present: list[PlanWorker]) -> bool:
        """Whether it is still what would be proposed: of the same model, in place of the same plan, on the same
        workers."""
        known = {worker.worker_id for worker in self.plan.workers}
        return self.model == model and is_same(self.replaces, current) and known >= {each.worker_id for each in present}


class Proposals:
    """The plans that resources wait for, one for the change of each, and what approval makes of them.

    Attributes:
        waiting: by resource.
    """

    def __init__(self, service: Planned) -> None:
        self.waiting: Mapping[str, Proposal] = {}
        self._service = service

    async def apply_approved(
        self, resources: Sequence[ModelResource], wanted: Mapping[str, ModelDeployment]
    ) -> list[tuple[ModelResource, Proposal, list[Action]]]:
        """Applies the plan that a resource approves of, where it still holds; tells of which resource, and what
        changes. It is one at most: the others were made to replace another plan."""
        for resource in resources:
            proposal, current = self.waiting.get(resource.name), self._service.desired_plan
            if proposal is None or resource.approved != proposal.plan.plan_id or resource.name not in wanted:
                continue
            if not proposal.holds(wanted[resource.name], current=current, present=self._service.present_workers()):
                continue
            replaces = None if current is None else current.plan_id
            changes = await self._service.apply(proposal.plan, dry_run=False, replaces=replaces)
            return [(resource, proposal, changes)]
        return []

    async def make(
        self, changing: Mapping[str, ModelDeployment]
    ) -> tuple[dict[str, Proposal], dict[str, HeadwayError]]:
        """Makes a proposal for each change, by itself, where none waits that still holds.

        Args:
            changing: the models of the resources that wait, by resource; others wait no more.

        Returns:
            the new ones, and why there is none, by resource.

        Raises:
            HeadwayError: of the planner, which may pass by itself.
        """
        current, present = self._service.desired_plan, self._service.present_workers()
        self.waiting = {
            name: proposal
            for name, proposal in self.waiting.items()
            if name in changing and proposal.holds(changing[name], current=current, present=present)
        }
        made: dict[str, Proposal] = {}
        faults: dict[str, HeadwayError] = {}
        for name, model in changing.items():
            if name in self.waiting:
                continue
            others = () if current is None else tuple(each for each in current.models if each.name != model.name)
            try:
                plan = await self._service.propose([*others, model])
                changes = await self._service.apply(plan, dry_run=True)
            except HeadwayError as error:
                if error.code in (ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED):
                    raise
                faults[name] = error
            else:
                made[name] = Proposal(model=model, plan=plan, replaces=current, changes=tuple(map(str, changes)))
        self.waiting = {**self.waiting, **made}
        return made, faults


def without_changes(
    wanted: Mapping[str, ModelDeployment], held: Collection[str], plan: ServingPlan | None
) -> dict[str, ModelDeployment]:
    """The models by resource, those of the held ones as they are served; without those that are not served yet."""
    now: dict[str, ModelDeployment] = {}
    for name, model in wanted.items():
        served = None if plan is None else plan.model(model.name)
        if name not in held:
            now[name] = model
        elif served is not None:
            now[name] = served
    return now


def is_same(plan: ServingPlan | None, other: ServingPlan | None) -> bool:
    """Whether they differ in nothing that is loaded or counted on."""
    if plan is None or other is None:
        return plan is other
    return (plan.models, plan.assignments, plan.workers) == (other.models, other.assignments, other.workers)
