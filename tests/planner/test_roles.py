"""Workers for prefill and workers for decode: as the operator says, or not at all."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.model import EncoderSpec
from headway.core.plan.serving import EngineLimits, ModelDeployment, Role, ServingPlan
from headway.planner.certify.certificate import find_violations
from headway.planner.certify.explanation import explain
from headway.rpc.convert import from_pb, to_pb
from headway.v1 import planner_pb2

SPLIT = EngineLimits(prefill_workers=1, decode_workers=2)
Plan = Callable[..., ServingPlan]


@pytest.fixture
def plan(plan_for: Plan, make_model: Callable[..., ModelDeployment], make_worker: Callable[..., Any]) -> ServingPlan:
    return plan_for([make_model()], [make_worker(f"worker-{i}") for i in range(3)], limits=SPLIT)


def test_the_first_workers_compute_prompts(plan: ServingPlan) -> None:
    roles = {assignment.worker_id: assignment.role for assignment in plan.assignments}
    assert roles == {"worker-0": Role.PREFILL, "worker-1": Role.DECODE, "worker-2": Role.DECODE}
    assert find_violations(plan) == []
    assert plan.alternatives == (), "no other layout is weighed"
    assert from_pb(to_pb(plan, planner_pb2.ServingPlan), ServingPlan) == plan


def test_the_explanation_says_who_does_what(plan: ServingPlan) -> None:
    first, second, *_ = explain(plan)
    rate = sum(a.prediction.output_tokens_per_s for a in plan.assignments if a.role is Role.DECODE)
    assert f"{rate:.0f} output tokens/s" in first
    assert "prompts are computed by worker-0, as was asked for" in second
    assert "worker-1, worker-2, which goes on" in second


def test_without_the_flags_no_worker_has_a_role(
    plan_for: Plan, make_model: Callable[..., ModelDeployment], make_worker: Callable[..., Any]
) -> None:
    plan = plan_for([make_model()], [make_worker(f"worker-{i}") for i in range(3)])
    assert {assignment.role for assignment in plan.assignments} == {Role.BOTH}


@pytest.mark.parametrize(
    ("limits", "reason", "hint"),
    [
        (EngineLimits(prefill_workers=1), "one of each", "--prefill-workers 1 --decode-workers 1"),
        (EngineLimits(decode_workers=1), "one of each", "or neither"),
        (replace(SPLIT, tp=2), "between lone workers only", "Leave --tp"),
        (replace(SPLIT, pp=2), "between lone workers only", "Leave --tp"),
        (replace(SPLIT, enable_prefix_cache=False), "prefix cache", "--no-prefix-cache"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_does(
    plan_for: Plan,
    make_model: Callable[..., ModelDeployment],
    make_worker: Callable[..., Any],
    limits: EngineLimits,
    reason: str,
    hint: str,
) -> None:
    with pytest.raises(InvalidArgumentError, match=reason) as caught:
        plan_for([make_model()], [make_worker(f"worker-{i}") for i in range(3)], limits=limits)
    assert hint in caught.value.hint


def test_models_that_have_nothing_to_decode_are_refused(
    plan_for: Plan, make_model: Callable[..., ModelDeployment], make_worker: Callable[..., Any]
) -> None:
    workers = [make_worker(f"worker-{i}") for i in range(3)]
    encoder = make_model(encoder=EncoderSpec(num_positions=512))
    with pytest.raises(InvalidArgumentError, match="does not generate"):
        plan_for([encoder], workers, limits=SPLIT)
    with pytest.raises(InvalidArgumentError, match="serve one model"):
        plan_for([make_model("a"), make_model("b")], workers, limits=SPLIT)


@pytest.mark.parametrize("num_workers", [2, 4])
def test_as_many_workers_are_needed_as_have_a_role(
    plan_for: Plan, make_model: Callable[..., ModelDeployment], make_worker: Callable[..., Any], num_workers: int
) -> None:
    with pytest.raises(FailedPreconditionError, match="1 prefill and 2 decode workers are wanted"):
        plan_for([make_model()], [make_worker(f"worker-{i}") for i in range(num_workers)], limits=SPLIT)


@pytest.mark.parametrize(
    ("roles", "violation"),
    [
        ((Role.PREFILL,) * 3, "groups for prefill and none for decode"),
        ((Role.DECODE,) * 3, "groups for decode and none for prefill"),
        ((Role.PREFILL, Role.DECODE, Role.BOTH), "some have a role and some have none"),
    ],
)
def test_roles_that_do_not_go_together_are_violations(
    plan: ServingPlan, roles: tuple[Role, ...], violation: str
) -> None:
    assignments = tuple(replace(a, role=role) for a, role in zip(plan.assignments, roles, strict=True))
    assert [violation in found for found in find_violations(replace(plan, assignments=assignments))] == [True]


def test_groups_between_which_blocks_cannot_go_are_violations(plan: ServingPlan) -> None:
    first, *others = plan.assignments
    without = replace(plan, assignments=(replace(first, enable_prefix_cache=False), *others))
    assert any("it has no prefix cache" in found for found in find_violations(without))
    uneven = replace(plan, assignments=(replace(first, block_size=32, num_blocks=first.num_blocks // 2), *others))
    assert any("blocks of 16, 32 tokens" in found for found in find_violations(uneven))
