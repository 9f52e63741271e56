"""The status of a ModelDeployment: what is planned for it, and how much of that is loaded. Pure."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from headway.controller.kubernetes.condition import MESSAGE_CHARS, Condition, conditions_of
from headway.controller.kubernetes.model_fetches import FetchFailedError, FetchingError
from headway.controller.kubernetes.model_resource import APPROVAL, ModelResource
from headway.controller.kubernetes.proposals import Proposal
from headway.controller.reconcile import is_served
from headway.core.errors import ErrorCode, HeadwayError
from headway.core.fetch_report import FetchReport
from headway.core.load_order import LoadOrder
from headway.core.plan.serving import Assignment, ServingPlan

AWAITS_APPROVAL = "AwaitsApproval"
_ASLEEP = "Asleep"

_REASONS = {
    ErrorCode.INVALID_ARGUMENT: "Invalid",
    ErrorCode.NOT_FOUND: "NotFound",
    ErrorCode.ALREADY_EXISTS: "NameTaken",
    ErrorCode.FAILED_PRECONDITION: "CannotBePlanned",
    ErrorCode.RESOURCE_EXHAUSTED: "CannotBePlanned",
}


def reason_of(fault: HeadwayError) -> str:
    """A fault in one word."""
    if isinstance(fault, FetchingError):
        return "Fetching"
    if isinstance(fault, FetchFailedError):
        return "FetchFailed"
    return _REASONS.get(fault.code, "Waiting")


def says_fault(status: Mapping[str, Any], fault: HeadwayError, *, generation: int) -> bool:
    """Whether a status says of a generation of its resource that this is why it is not planned for."""
    said = {"reason": reason_of(fault), "message": str(fault)[:MESSAGE_CHARS], "observedGeneration": generation}
    return any(each["type"] == "Planned" and said.items() <= each.items() for each in status.get("conditions", []))


def message_of(resource: ModelResource, proposal: Proposal) -> str:
    """What a proposal changes, and how it is approved."""
    command = f"kubectl annotate --overwrite modeldeployment {resource.name} {APPROVAL}={proposal.plan.plan_id}"
    return f"{proposal.plan.plan_id}: {'; '.join(proposal.changes) or 'nothing is loaded anew'}. To apply it: {command}"


def status_of(
    resource: ModelResource,
    *,
    plan: ServingPlan | None,
    plan_id: str,
    orders: Collection[LoadOrder],
    fault: HeadwayError | None,
    refusal: HeadwayError | None,
    fetched: FetchReport | None,
    proposal: Proposal | None,
    serving: Mapping[str, Collection[LoadOrder]],
    waiting_for: str,
    previous: Mapping[str, Any],
    now: str,
) -> dict[str, Any]:
    """What the status should say.

    Args:
        plan: the desired one.
        plan_id: of the plan that gave the model its groups, which the desired one leaves as they are.
        orders: what these groups are to load of it.
        fault: why the resource as it is now is not planned for; None where it is, or is about to be.
        refusal: why its model, which sleeps, could not be woken when it was asked for.
        fetched: what was fetched for it; None where nothing was, or not all.
        proposal: the plan for the resource as it is now, where that waits for approval.
        serving: what each worker serves.
        waiting_for: of the processes of the stack, those that answers need and that are not there; empty for none.
        previous: the status before: the time of a condition that is as it was stays.
        now: in UTC, as text.
    """
    assignments = [] if plan is None else [each for each in plan.assignments if each.model == resource.model]
    served = sum(is_served(order, serving) for order in orders)
    if fault is None and proposal is None and plan is not None and resource.model in plan.asleep:
        conditions = _conditions_asleep(refusal, waiting_for=waiting_for)
    else:
        conditions = _conditions(
            fault,
            awaited="" if proposal is None else message_of(resource, proposal),
            num_groups=len(assignments),
            num_served=served,
            waiting_for=waiting_for,
        )
    status: dict[str, Any] = {
        "observedGeneration": resource.generation,
        "groups": f"{served}/{len(assignments)}",
        "conditions": conditions_of(conditions, generation=resource.generation, previous=previous, now=now),
    }
    if fetched is not None and fetched.is_done:
        status["fetched"] = {"version": fetched.version, "sha256": fetched.sha256, "bytes": fetched.total_bytes}
    if proposal is not None:
        status["proposal"] = {"planId": proposal.plan.plan_id, "changes": list(proposal.changes)}
    if assignments:
        status |= {"planId": plan_id, "layout": str(assignments[0].parallel), "predicted": _predicted(assignments)}
    return status


def _conditions(
    fault: HeadwayError | None, *, awaited: str, num_groups: int, num_served: int, waiting_for: str
) -> tuple[Condition, ...]:
    if fault is not None:
        planned = Condition(type="Planned", is_so=False, reason=reason_of(fault), message=str(fault))
    elif awaited:
        planned = Condition(type="Planned", is_so=False, reason=AWAITS_APPROVAL, message=awaited)
    elif num_groups:
        planned = Condition(type="Planned", is_so=True, reason="InPlan", message=f"{num_groups} groups of workers")
    else:
        planned = Condition(type="Planned", is_so=False, reason="Waiting", message="for workers and a plan")
    groups = f"{num_served} of {num_groups} groups serve it"
    is_loaded = 0 < num_groups == num_served
    loaded = Condition(type="Loaded", is_so=is_loaded, reason="Loaded" if is_loaded else "Loading", message=groups)
    is_ready = num_served > 0 and not waiting_for
    ready = Condition(
        type="Ready",
        is_so=is_ready,
        reason="Serving" if is_ready else "NotServing",
        message=groups if not waiting_for else f"waiting for {waiting_for}",
    )
    if fault is not None and num_served:
        degraded = Condition(
            type="Degraded", is_so=True, reason=reason_of(fault), message=f"An earlier state is served. {fault}"
        )
    elif 0 < num_served < num_groups:
        degraded = Condition(type="Degraded", is_so=True, reason="GroupsMissing", message=groups)
    else:
        degraded = Condition(type="Degraded", is_so=False, reason="AsPlanned" if num_served else "NotServing")
    return planned, loaded, ready, degraded


def _conditions_asleep(refusal: HeadwayError | None, *, waiting_for: str) -> tuple[Condition, ...]:
    """Of a model that nobody asks for: requests are answered, once it is loaded for them."""
    planned = Condition(type="Planned", is_so=True, reason=_ASLEEP, message="nobody asks for it; no group has it")
    loaded = Condition(type="Loaded", is_so=False, reason=_ASLEEP, message="the next request has it loaded")
    if refusal is not None:
        ready = Condition(type="Ready", is_so=False, reason=reason_of(refusal), message=str(refusal))
    elif waiting_for:
        ready = Condition(type="Ready", is_so=False, reason="NotServing", message=f"waiting for {waiting_for}")
    else:
        ready = Condition(type="Ready", is_so=True, reason=_ASLEEP, message="the next request has it loaded")
    return planned, loaded, ready, Condition(type="Degraded", is_so=False, reason=_ASLEEP)


def _predicted(assignments: Sequence[Assignment]) -> dict[str, int]:
    """Of the slowest group, in whole milliseconds, which a resource's figures are."""
    return {
        "ttftMs": round(max(each.prediction.ttft_s for each in assignments) * 1e3),
        "tpotMs": round(max(each.prediction.tpot_loaded_s for each in assignments) * 1e3),
    }
