"""Plans for models that do not generate."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from headway.core.encoder import EncoderSpec
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.model import ModelFamily
from headway.core.plan.serving import Assignment, EngineLimits, ModelDeployment, ServingPlan
from headway.planner.certify.certificate import find_violations
from headway.planner.certify.explanation import explain
from headway.rpc.convert import from_pb, to_pb
from headway.v1 import planner_pb2


@pytest.fixture
def bert(make_model: Any) -> Callable[..., ModelDeployment]:
    def make(**changes: Any) -> ModelDeployment:
        usual = {
            "family": ModelFamily.BERT,
            "architecture": "BertModel",
            "num_kv_heads": 8,
            "max_position": 512,
            "activation": "gelu",
            "rope": None,
            "encoder": EncoderSpec(num_positions=512, num_token_types=2),
        }
        model: ModelDeployment = make_model("bert", **(usual | changes))
        return model

    return make


def test_memory_goes_to_weights_and_workspace(bert: Any, plan_for: Any, make_worker: Any) -> None:
    plan: ServingPlan = plan_for([bert()], [make_worker()])
    (assignment,) = plan.assignments
    assert (assignment.num_blocks, assignment.kv_cache_bytes, assignment.enable_prefix_cache) == (0, 0, False)
    assert assignment.max_model_len == 512
    assert assignment.prediction.input_tokens_per_s > 0
    assert find_violations(plan) == []
    assert from_pb(to_pb(plan, planner_pb2.ServingPlan), ServingPlan) == plan


def test_it_is_placed_beside_a_model_that_generates(
    bert: Any, make_model: Any, plan_for: Any, make_worker: Any
) -> None:
    limits = EngineLimits(kv_cache_bytes=1 << 30, host_cache_bytes=1 << 28)
    workers = [make_worker(f"worker-{index}") for index in range(3)]
    plan: ServingPlan = plan_for([bert(), make_model("llama")], workers, limits=limits)
    assert {assignment.model for assignment in plan.assignments} == {"bert", "llama"}
    assert find_violations(plan) == []


def test_a_worker_without_room_is_refused(bert: Any, plan_for: Any, make_worker: Any) -> None:
    with pytest.raises(FailedPreconditionError, match="lacks"):
        plan_for([bert()], [make_worker(memory_bytes=256 << 20)])


def test_a_length_beyond_the_model_is_refused(bert: Any, plan_for: Any, make_worker: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="max_model_len"):
        plan_for([bert(max_model_len=513)], [make_worker()])


FAULTS: dict[str, tuple[Callable[[Assignment], Assignment], str]] = {
    "blocks": (lambda a: replace(a, num_blocks=1), "num_blocks is 1"),
    "cache bytes": (lambda a: replace(a, kv_cache_bytes=16), "kv_cache_bytes is 16"),
    "weights too small": (lambda a: replace(a, weight_bytes=a.weight_bytes // 2), "weight_bytes is"),
    "negative reserve": (lambda a: replace(a, reserved_bytes=-1), "reserved_bytes is -1"),
    "too much memory": (lambda a: replace(a, reserved_bytes=2**40), "and the worker has"),
    "length beyond the model": (lambda a: replace(a, max_model_len=513), "was built for 512"),
    "no sequences": (lambda a: replace(a, max_num_seqs=0), "max_num_seqs is 0"),
    "no time": (lambda a: replace(a, prediction=replace(a.prediction, ttft_s=0.0)), "ttft_s is 0.0"),
    "output tokens": (lambda a: replace(a, prediction=replace(a.prediction, tpot_s=0.1)), "tpot_s is 0.1"),
}


@pytest.mark.parametrize(("change", "violation"), FAULTS.values(), ids=FAULTS.keys())
def test_the_certifier_finds_what_is_bent(
    bert: Any, plan_for: Any, make_worker: Any, change: Callable[[Assignment], Assignment], violation: str
) -> None:
    plan: ServingPlan = plan_for([bert()], [make_worker()])
    bent = replace(plan, assignments=(change(plan.assignments[0]),))
    assert any(violation in found for found in find_violations(bent))


def test_the_explanation_speaks_of_one_pass(bert: Any, plan_for: Any, make_worker: Any) -> None:
    text = " ".join(explain(plan_for([bert()], [make_worker()])))
    assert "one pass" in text
    assert "input tokens/s" in text
    assert "KV" not in text.replace("for KV blocks", "")
