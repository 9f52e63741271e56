"""Adapters in a plan: what may be served beside a model, and what is refused."""

from dataclasses import replace

import pytest

from headway.core.adapter import Adapter
from headway.core.engine_kind import EngineKind, Feature, check_request
from headway.core.errors import AlreadyExistsError, FailedPreconditionError, InvalidArgumentError, NotFoundError
from headway.core.plan.serving import ServingPlan
from headway.core.request import GenerationRequest, SamplingParams
from headway.core.served_adapters import adapters_of, keeping_adapters, with_adapter, without_adapter
from headway.rpc.convert import from_pb, to_pb
from headway.v1 import planner_pb2
from tests.router.harness import make_plan

CALM = Adapter(name="calm", directory="/adapters/calm", digest="0a")


@pytest.fixture
def plan() -> ServingPlan:
    plain = make_plan("worker-0")
    (model,) = plain.models
    return replace(plain, models=(replace(model, engine=EngineKind.VLLM, engine_args="--enable-lora"),))


def test_an_adapter_comes_and_goes_and_nothing_else_of_the_plan_changes(plan: ServingPlan) -> None:
    both = with_adapter(with_adapter(plan, "llama", CALM), "llama", replace(CALM, name="loud"))
    assert [(each.model, each.adapter.name) for each in adapters_of(both)] == [("llama", "calm"), ("llama", "loud")]
    assert from_pb(to_pb(both, planner_pb2.ServingPlan), ServingPlan) == both
    assert without_adapter(without_adapter(both, "loud"), "calm") == plan


def test_a_model_that_is_declared_anew_keeps_its_adapters_while_its_engine_takes_them(plan: ServingPlan) -> None:
    (model,) = plan.models
    served = with_adapter(plan, "llama", CALM)
    assert keeping_adapters(model, served).adapters == (CALM,)
    assert keeping_adapters(replace(model, engine=EngineKind.HEADWAY), served).adapters == ()
    assert keeping_adapters(model, None) == model


def test_what_cannot_be_served_is_refused(plan: ServingPlan) -> None:
    (model,) = plan.models
    with pytest.raises(NotFoundError, match="'other' is not served"):
        with_adapter(plan, "other", CALM)
    with pytest.raises(AlreadyExistsError, match="'llama' is served already"):
        with_adapter(plan, "llama", replace(CALM, name="llama"))
    with pytest.raises(AlreadyExistsError, match="'calm' is served already"):
        with_adapter(with_adapter(plan, "llama", CALM), "llama", CALM)
    with pytest.raises(FailedPreconditionError, match="without room for adapters"):
        with_adapter(replace(plan, models=(replace(model, engine_args=""),)), "llama", CALM)
    with pytest.raises(FailedPreconditionError, match="runs on headway, which lacks lora") as refused:
        with_adapter(replace(plan, models=(replace(model, engine=EngineKind.HEADWAY),)), "llama", CALM)
    assert refused.value.hint == "Serve the model with --engine vllm."
    with pytest.raises(NotFoundError, match="no adapter 'calm'"):
        without_adapter(plan, "calm")


def test_our_own_engine_refuses_a_request_with_an_adapter_by_the_features_name() -> None:
    asked = GenerationRequest(request_id="r", model="m", prompt_token_ids=(1,), sampling=SamplingParams(), adapter=CALM)
    check_request(asked, EngineKind.VLLM)
    with pytest.raises(InvalidArgumentError, match="which lacks lora") as refused:
        check_request(asked, EngineKind.HEADWAY)
    assert refused.value.field == Feature.LORA
