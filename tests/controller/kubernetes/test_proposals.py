"""Changes that wait for approval, against a service that plans and applies as it is told."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import pytest

from headway.controller.kubernetes.model_resource import ModelResource
from headway.controller.kubernetes.proposals import Proposals, without_changes
from headway.core.errors import UnavailableError
from headway.core.plan.serving import ModelDeployment
from tests.controller.kubernetes.planning import EMPTY, Service

Make: TypeAlias = Callable[..., ModelDeployment]


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def proposals(service: Service) -> Proposals:
    return Proposals(service)


def resource(name: str, *, approved: str = "") -> ModelResource:
    return ModelResource(
        name=name,
        uid=name,
        generation=1,
        created_at="",
        version="1",
        approved=approved,
        spec={"apply": "Manual"},
        status={},
    )


async def test_a_change_is_applied_when_its_very_plan_is_approved(
    service: Service, proposals: Proposals, make_model: Make
) -> None:
    chat = make_model("chat")
    made, faults = await proposals.make({"chat": chat})
    assert (made["chat"].plan.plan_id, made["chat"].changes, faults) == (
        "plan-1",
        ("worker-of-chat: load chat (1 blocks)",),
        {},
    )
    for approved in ("", "plan-0"):
        assert await proposals.apply_approved([resource("chat", approved=approved)], {"chat": chat}) == []
    assert service.desired_plan is None
    [(_, _, changes)] = await proposals.apply_approved([resource("chat", approved="plan-1")], {"chat": chat})
    assert [str(change) for change in changes] == ["worker-of-chat: load chat (1 blocks)"]
    assert service.desired_plan == made["chat"].plan


async def test_one_that_waits_is_not_made_again_until_something_else_is_desired(
    service: Service, proposals: Proposals, make_model: Make
) -> None:
    changing = {"chat": make_model("chat"), "code": make_model("code")}
    assert (await proposals.make(changing))[0].keys() == {"chat", "code"}
    assert (await proposals.make(changing))[0] == {}
    await service.apply(proposals.waiting["chat"].plan, dry_run=False)
    outdated = proposals.waiting["code"].plan.plan_id
    assert await proposals.apply_approved([resource("code", approved=outdated)], changing) == []
    made, _ = await proposals.make({"code": changing["code"]})
    assert [model.name for model in made["code"].plan.models] == ["chat", "code"]
    assert proposals.waiting.keys() == {"code"}


async def test_a_resource_that_changes_again_needs_another_approval(
    service: Service, proposals: Proposals, make_model: Make
) -> None:
    await proposals.make({"chat": make_model("chat")})
    longer = {"chat": make_model("chat", max_model_len=64)}
    assert await proposals.apply_approved([resource("chat", approved="plan-1")], longer) == []
    assert (await proposals.make(longer))[0]["chat"].plan.plan_id == "plan-2"


async def test_a_change_that_cannot_be_planned_is_told_and_hinders_no_other(
    proposals: Proposals, make_model: Make
) -> None:
    made, faults = await proposals.make({"huge": make_model("huge", max_model_len=101), "chat": make_model("chat")})
    assert made.keys() == {"chat"}
    assert str(faults["huge"]) == "too long"


async def test_a_planner_that_is_away_refuses_nothing(service: Service, proposals: Proposals, make_model: Make) -> None:
    service.is_away = True
    with pytest.raises(UnavailableError):
        await proposals.make({"chat": make_model("chat")})


def test_a_held_model_stays_as_it_is_served(make_model: Make) -> None:
    served, changed, new, free = (
        make_model("chat"),
        make_model("chat", max_model_len=64),
        make_model("new"),
        make_model("free"),
    )
    wanted = {"chat": changed, "new": new, "free": free}
    plan = replace(EMPTY, models=(served,))
    assert without_changes(wanted, {"chat", "new"}, plan) == {"chat": served, "free": free}
    assert without_changes(wanted, {"chat", "new"}, None) == {"free": free}
