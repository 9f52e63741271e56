"""The certifier catches every way in which a plan can be bent."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from headway.core.plan.serving import Assignment, ServingPlan
from headway.planner.certify.certificate import find_violations


@pytest.fixture
def plan(plan_for: Any, make_model: Any, make_worker: Any) -> ServingPlan:
    models = [make_model("llama"), make_model("qwen", num_kv_heads=8, max_model_len=512, dtype="bfloat16")]
    made: ServingPlan = plan_for(models, [make_worker(f"worker-{index}") for index in range(3)])
    assert find_violations(made) == []
    return made


def bend(plan: ServingPlan, change: Callable[[Assignment], Assignment]) -> ServingPlan:
    """The plan with its first assignment changed."""
    return replace(plan, assignments=(change(plan.assignments[0]), *plan.assignments[1:]))


ASSIGNMENT_FAULTS: dict[str, tuple[Callable[[Assignment], Assignment], str]] = {
    "no blocks": (lambda a: replace(a, num_blocks=0), "num_blocks is 0"),
    "one block more": (lambda a: replace(a, num_blocks=a.num_blocks + 1), "kv_cache_bytes is"),
    "other block size": (lambda a: replace(a, block_size=2 * a.block_size), "kv_cache_bytes is"),
    "negative block size": (lambda a: replace(a, block_size=-16), "block_size is -16"),
    "fewer cache bytes": (lambda a: replace(a, kv_cache_bytes=a.kv_cache_bytes - 1), "kv_cache_bytes is"),
    "too much memory": (lambda a: replace(a, reserved_bytes=2**40), "and the worker has"),
    "negative reserve": (lambda a: replace(a, reserved_bytes=-1), "reserved_bytes is -1"),
    "weights too small": (lambda a: replace(a, weight_bytes=a.weight_bytes // 2), "weight_bytes is"),
    "length beyond the model": (lambda a: replace(a, max_model_len=2049), "was built for 2048"),
    "length zero": (lambda a: replace(a, max_model_len=0), "max_model_len is 0"),
    "no sequences": (lambda a: replace(a, max_num_seqs=0), "max_num_seqs is 0"),
    "budget below sequences": (lambda a: replace(a, max_num_batched_tokens=1), "cannot all decode"),
    "host blocks without memory": (lambda a: replace(a, num_host_blocks=1), "host_cache_bytes is 0"),
    "negative host blocks": (lambda a: replace(a, num_host_blocks=-1), "num_host_blocks is -1"),
    "nowhere to swap to": (lambda a: replace(a, preemption="swap"), "no host blocks"),
    "negative drafts": (lambda a: replace(a, num_draft_tokens=-1), "num_draft_tokens is -1"),
    "unknown model": (lambda a: replace(a, model="mistral"), "which the plan does not have"),
    "unknown worker": (lambda a: replace(a, worker_id="worker-9"), "which it does not have"),
    "group of another": (lambda a: replace(a, group_id="group-1"), "Two groups are called 'group-1'"),
    "worker of another": (lambda a: replace(a, worker_id="worker-1"), "is 'group-0' and that of"),
    "ttft not a number": (
        lambda a: replace(a, prediction=replace(a.prediction, ttft_s=math.nan)),
        "prediction's ttft_s is nan",
    ),
    "endless throughput": (
        lambda a: replace(a, prediction=replace(a.prediction, output_tokens_per_s=math.inf)),
        "output_tokens_per_s is inf",
    ),
    "faster under load": (
        lambda a: replace(a, prediction=replace(a.prediction, tpot_loaded_s=a.prediction.tpot_s / 2)),
        "decode faster",
    ),
    "negative latency": (
        lambda a: replace(
            a, prediction=replace(a.prediction, latency=replace(a.prediction.latency, per_decode_s=-1.0))
        ),
        "per_decode_s is -1.0",
    ),
}


@pytest.mark.parametrize("fault", ASSIGNMENT_FAULTS)
def test_a_bent_assignment_is_caught(plan: ServingPlan, fault: str) -> None:
    change, expected = ASSIGNMENT_FAULTS[fault]
    violations = find_violations(bend(plan, change))
    assert any(expected in violation for violation in violations), violations


def test_an_unserved_model_is_caught(plan: ServingPlan) -> None:
    served = tuple(assignment for assignment in plan.assignments if assignment.model == "llama")
    assert find_violations(replace(plan, assignments=served)) == ["No worker serves model 'qwen'."]


def test_blocks_too_few_for_one_sequence_are_caught(plan: ServingPlan) -> None:
    def shrink(assignment: Assignment) -> Assignment:
        block_bytes = assignment.kv_cache_bytes // assignment.num_blocks
        return replace(assignment, num_blocks=10, kv_cache_bytes=10 * block_bytes)

    assert any("hold no sequence" in violation for violation in find_violations(bend(plan, shrink)))


def test_a_length_other_than_the_one_asked_for_is_caught(plan: ServingPlan) -> None:
    bent = replace(
        plan,
        assignments=tuple(replace(a, max_model_len=256) if a.model == "qwen" else a for a in plan.assignments),
    )
    assert any("512 was asked for" in violation for violation in find_violations(bent))


def test_repeated_names_and_a_missing_id_are_caught(plan: ServingPlan) -> None:
    assert any("no id" in violation for violation in find_violations(replace(plan, plan_id="")))
    twice = replace(plan, models=(*plan.models, plan.models[0]))
    assert any("2 models 'llama'" in violation for violation in find_violations(twice))
    twice = replace(plan, workers=(*plan.workers, plan.workers[0]))
    assert any("2 workers 'worker-0'" in violation for violation in find_violations(twice))


def test_an_empty_plan_is_caught(plan: ServingPlan) -> None:
    assert find_violations(replace(plan, models=(), assignments=())) == ["The plan serves no model."]
