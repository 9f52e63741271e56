"""What the status of a ModelDeployment says."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from headway.controller.kubernetes.model_resource import ModelResource
from headway.controller.kubernetes.model_status import status_of
from headway.controller.kubernetes.plan_origins import model_orders
from headway.controller.kubernetes.proposals import Proposal
from headway.controller.reconcile import load_orders_of
from headway.core.errors import FailedPreconditionError, HeadwayError
from headway.core.plan.serving import ServingPlan

RESOURCE = ModelResource(
    name="chat", uid="1", generation=3, created_at="2026-11-26T10:00:00Z", version="7", approved="", spec={}, status={}
)


@pytest.fixture
def plan(make_plan: Callable[..., ServingPlan]) -> ServingPlan:
    return make_plan({"worker-0": "chat", "worker-1": "chat", "worker-2": "other"})


def told(
    plan: ServingPlan | None,
    *served_by: str,
    fault: HeadwayError | None = None,
    refusal: HeadwayError | None = None,
    proposal: Proposal | None = None,
    waiting_for: str = "",
    previous: dict[str, Any] | None = None,
    now: str = "noon",
) -> dict[str, Any]:
    orders = {} if plan is None else load_orders_of(plan)
    serving = {worker_id: works if worker_id in served_by else () for worker_id, works in orders.items()}
    return status_of(
        RESOURCE,
        plan=plan,
        plan_id="plan-0",
        orders=model_orders(plan).get(RESOURCE.model, frozenset()),
        fault=fault,
        refusal=refusal,
        fetched=None,
        proposal=proposal,
        serving=serving,
        waiting_for=waiting_for,
        previous=previous or {},
        now=now,
    )


def so(status: dict[str, Any]) -> list[str]:
    """The conditions that are so."""
    return [each["type"] for each in status["conditions"] if each["status"] == "True"]


def test_it_goes_from_planned_to_loaded_and_ready(plan: ServingPlan) -> None:
    assert so(told(None)) == []
    assert so(told(plan)) == ["Planned"]
    assert so(told(plan, "worker-0")) == ["Planned", "Ready", "Degraded"]
    assert so(told(plan, "worker-0", "worker-1")) == ["Planned", "Loaded", "Ready"]
    assert told(plan, "worker-0")["groups"] == "1/2"


def test_another_models_groups_do_not_count(plan: ServingPlan) -> None:
    assert told(plan, "worker-2")["groups"] == "0/2"


def test_it_is_not_ready_without_the_processes_that_answer(plan: ServingPlan) -> None:
    status = told(plan, "worker-0", "worker-1", waiting_for="gateway")
    assert so(status) == ["Planned", "Loaded"]
    assert status["conditions"][2]["message"] == "waiting for gateway"


def test_a_change_that_cannot_be_planned_leaves_it_serving_and_tells_why(plan: ServingPlan) -> None:
    fault = FailedPreconditionError("It needs 90 GB; a worker has 80.", hint="Give it two.")
    status = told(plan, "worker-0", "worker-1", fault=fault)
    assert so(status) == ["Loaded", "Ready", "Degraded"]
    [planned, _, _, degraded] = status["conditions"]
    assert (planned["reason"], planned["message"]) == (
        "CannotBePlanned",
        "It needs 90 GB; a worker has 80. Give it two.",
    )
    assert "earlier state is served" in degraded["message"]


def test_one_that_sleeps_is_ready_unless_there_was_no_room_to_wake_it(plan: ServingPlan) -> None:
    others = tuple(each for each in plan.assignments if each.model != "chat")
    models = (replace(plan.models[0], min_replicas=0), *plan.models[1:])
    sleeping = replace(plan, models=models, assignments=others)
    assert so(told(sleeping)) == ["Planned", "Ready"]
    assert {each["reason"] for each in told(sleeping)["conditions"]} == {"Asleep"}
    assert told(sleeping)["groups"] == "0/0"
    status = told(sleeping, refusal=FailedPreconditionError("There is no room.", hint="Add workers."))
    assert so(status) == ["Planned"]
    assert status["conditions"][2]["reason"] == "CannotBePlanned"
    assert so(told(sleeping, waiting_for="router")) == ["Planned"]


def test_a_conditions_time_is_that_of_its_last_change(plan: ServingPlan) -> None:
    before = told(plan, now="noon")
    after = told(plan, "worker-0", "worker-1", previous=before, now="one")
    times = {each["type"]: each["lastTransitionTime"] for each in after["conditions"]}
    assert times == {"Planned": "noon", "Loaded": "one", "Ready": "one", "Degraded": "noon"}


def test_the_slowest_group_is_what_is_predicted(plan: ServingPlan) -> None:
    assert told(plan)["predicted"] == {"ttftMs": 100, "tpotMs": 20}
    assert told(plan)["planId"] == "plan-0"


def test_a_change_that_waits_for_approval_says_how_it_is_approved(plan: ServingPlan) -> None:
    model = plan.models[0]
    proposal = Proposal(model=model, plan=replace(plan, plan_id="plan-2"), replaces=plan, changes=("load chat on a",))
    status = told(plan, "worker-0", "worker-1", proposal=proposal)
    assert so(status) == ["Loaded", "Ready"]
    [planned, *_] = status["conditions"]
    assert planned["reason"] == "AwaitsApproval"
    assert planned["message"].startswith("plan-2: load chat on a. To apply it: kubectl annotate")
    assert "serving.headway.dev/apply=plan-2" in planned["message"]
    assert status["proposal"] == {"planId": "plan-2", "changes": ["load chat on a"]}
    assert status["planId"] == "plan-0"
