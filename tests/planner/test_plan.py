"""Whole plans: certified, or refused with the nearest thing that works."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.latency import LatencyModel
from headway.core.plan.serving import EngineLimits
from headway.core.profile import Profile, profile_id
from headway.planner.certify.certificate import find_violations
from headway.planner.serving.prediction import predict

GIB = 1024**3
MEASURED = LatencyModel(
    base_s=3e-3,
    per_prefill_token_s=1e-4,
    per_prefill_pair_s=1e-8,
    per_decode_s=3e-4,
    per_context_token_s=1e-7,
    relative_error=0.04,
)


def make_profile(model: Any, worker: Any) -> Profile:
    return Profile(
        profile_id=profile_id(model.spec, worker.hardware),
        architecture=model.spec.architecture,
        model_hash=model.spec.content_hash,
        hardware=worker.hardware,
        measurements=(),
        latency=MEASURED,
        created_at_s=1.0,
    )


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_models_on_any_workers_give_a_certified_plan_or_a_reason(
    data: st.DataObject, models_strategy: Any, workers_strategy: Any, limits_strategy: Any, plan_for: Any
) -> None:
    models, workers = data.draw(models_strategy), data.draw(workers_strategy)
    limits = data.draw(limits_strategy)
    try:
        plan = plan_for(models, workers, limits=limits)
    except (FailedPreconditionError, InvalidArgumentError):
        return
    assert find_violations(plan) == []
    assert plan == plan_for(models, list(reversed(workers)), limits=limits)


def test_a_model_gets_the_worker_its_own_length_and_the_usual_limits(
    plan_for: Any, make_model: Any, make_worker: Any
) -> None:
    (assignment,) = plan_for([make_model()], [make_worker()]).assignments
    assert (assignment.group_id, assignment.worker_id, assignment.model) == ("group-0", "worker-0", "llama")
    assert assignment.block_size == 16
    assert assignment.max_num_seqs == 128
    assert assignment.max_num_batched_tokens == 512
    assert assignment.max_model_len == 2048
    assert assignment.enable_prefix_cache
    assert assignment.kv_cache_bytes == 1 * GIB
    assert assignment.prediction.latency.origin == "estimated"


def test_an_operator_sets_every_limit(plan_for: Any, make_model: Any, make_worker: Any) -> None:
    limits = EngineLimits(
        block_size=32,
        max_num_seqs=4,
        max_num_batched_tokens=64,
        kv_cache_bytes=64 * 2**20,
        enable_prefix_cache=False,
        max_num_prefill_tokens=32,
        host_cache_bytes=128 * 2**20,
        preemption="recompute",
        num_draft_tokens=3,
    )
    (assignment,) = plan_for([make_model(max_model_len=1000)], [make_worker()], limits=limits).assignments
    assert assignment.block_size == 32
    assert assignment.max_num_seqs == 4
    assert assignment.max_num_batched_tokens == 64
    assert assignment.kv_cache_bytes == 64 * 2**20
    assert assignment.max_model_len == 1000
    assert not assignment.enable_prefix_cache
    assert assignment.max_num_prefill_tokens == 32
    assert assignment.host_cache_bytes == 128 * 2**20
    assert assignment.preemption == "recompute"
    assert assignment.num_draft_tokens == 3


def test_a_stored_profile_replaces_the_estimate_and_changes_nothing_else(
    plan_for: Any, make_model: Any, make_worker: Any
) -> None:
    model, worker = make_model(), make_worker()
    profile = make_profile(model, worker)
    estimated = plan_for([model], [worker]).assignments[0]
    measured = plan_for([model], [worker], profiles={profile.profile_id: profile}).assignments[0]
    assert measured.prediction.latency == MEASURED
    assert measured.prediction.profile_id == profile.profile_id
    assert replace(measured, prediction=estimated.prediction) == estimated


def test_workers_keep_their_models_when_a_plan_is_made_again(plan_for: Any, make_model: Any, make_worker: Any) -> None:
    models = [make_model("small", num_layers=2), make_model("large", num_layers=32)]
    workers = [make_worker(f"worker-{index}", memory_bytes=16 * GIB) for index in range(3)]
    first = plan_for(models, workers)
    swapped = replace(
        first,
        assignments=tuple(
            replace(assignment, model="small" if assignment.model == "large" else "large")
            for assignment in first.assignments
        ),
    )
    again = plan_for(models, workers, current=swapped)
    assert [a.model for a in again.assignments] == [a.model for a in swapped.assignments]
    assert [a.model for a in again.assignments] != [a.model for a in first.assignments]


def test_workers_are_taken_in_the_order_of_their_numbers(plan_for: Any, make_model: Any, make_worker: Any) -> None:
    plan = plan_for([make_model()], [make_worker(f"worker-{index}") for index in (10, 2, 1)])
    assert [worker.worker_id for worker in plan.workers] == ["worker-1", "worker-2", "worker-10"]


def test_a_model_too_large_is_named_with_the_missing_bytes(plan_for: Any, make_model: Any, make_worker: Any) -> None:
    model, worker = make_model(num_layers=64, hidden_size=4096), make_worker(memory_bytes=4 * GIB)
    with pytest.raises(FailedPreconditionError, match=r"Model 'llama' fits no worker.*lacks") as caught:
        plan_for([model], [worker])
    missing_bytes = int(caught.value.message.split("(")[-1].split()[0])
    assert "memory" in caught.value.hint
    plan_for([model], [make_worker(memory_bytes=worker.hardware.memory_bytes + missing_bytes)])
    with pytest.raises(FailedPreconditionError):
        plan_for([model], [make_worker(memory_bytes=worker.hardware.memory_bytes + missing_bytes - 1)])


def test_the_refusal_names_the_longest_context_that_fits(plan_for: Any, make_model: Any, make_worker: Any) -> None:
    worker = make_worker(memory_bytes=2 * GIB)
    long = make_model(max_model_len=120_000, max_position=131_072, num_kv_heads=8)
    with pytest.raises(FailedPreconditionError, match="lacks") as caught:
        plan_for([long], [worker])
    longest = int(caught.value.hint.split("max_model_len to ")[1].split()[0])
    assert plan_for([replace(long, max_model_len=longest)], [worker]).assignments[0].max_model_len == longest
    with pytest.raises(FailedPreconditionError):
        plan_for([replace(long, max_model_len=longest + 16)], [worker])


def test_models_that_compete_for_one_large_worker_are_refused(plan_for: Any, make_model: Any, make_worker: Any) -> None:
    large = {"num_layers": 32, "hidden_size": 2048}
    workers = [make_worker("worker-0", memory_bytes=GIB), make_worker("worker-1", memory_bytes=32 * GIB)]
    with pytest.raises(FailedPreconditionError, match="2 models cannot share 2 workers"):
        plan_for([make_model("a", **large), make_model("b", **large)], workers)


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        (EngineLimits(max_num_seqs=0), "max_num_seqs"),
        (EngineLimits(block_size=-1), "block_size"),
        (EngineLimits(max_num_seqs=64, max_num_batched_tokens=32), "max_num_batched_tokens"),
        (EngineLimits(kv_cache_bytes=1000), "kv_cache_bytes"),
    ],
)
def test_limits_that_make_no_sense_are_refused(
    plan_for: Any, make_model: Any, make_worker: Any, limits: EngineLimits, field: str
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        plan_for([make_model()], [make_worker()], limits=limits)
    assert caught.value.field == field


def test_lengths_that_the_model_cannot_take_are_refused(plan_for: Any, make_model: Any, make_worker: Any) -> None:
    for length in (0, 1, 2049):
        with pytest.raises(InvalidArgumentError, match="max_model_len"):
            plan_for([make_model(max_model_len=length)], [make_worker()])


def test_no_models_and_equal_names_are_refused(plan_for: Any, make_model: Any, make_worker: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="no model"):
        plan_for([], [make_worker()])
    with pytest.raises(InvalidArgumentError, match="Two models are named 'llama'"):
        plan_for([make_model(), make_model()], [make_worker("worker-0"), make_worker("worker-1")])
    with pytest.raises(InvalidArgumentError, match="Two workers are named 'worker-0'"):
        plan_for([make_model()], [make_worker(), make_worker()])


def test_a_prediction_follows_from_the_latency_model() -> None:
    prediction = predict(
        MEASURED,
        profile_id="p",
        num_blocks=320,
        block_size=16,
        max_num_seqs=128,
        max_num_batched_tokens=256,
        max_model_len=2048,
    )
    assert prediction.ttft_s == pytest.approx(2 * 3e-3 + 512 * 1e-4 + 512 * 512 / 2 * 1e-8)
    assert prediction.tpot_s == pytest.approx(3e-3 + 3e-4 + 512 * 1e-7)
    assert prediction.tpot_loaded_s == pytest.approx(3e-3 + 10 * (3e-4 + 512 * 1e-7))
    assert prediction.output_tokens_per_s == pytest.approx(10 / prediction.tpot_loaded_s)


def test_models_have_as_many_replicas_as_they_are_to_have(plan_for: Any, make_model: Any, make_worker: Any) -> None:
    workers = [make_worker(f"worker-{index}") for index in range(4)]
    few = replace(make_model("few"), max_replicas=1)
    many = replace(make_model("many"), min_replicas=3)
    for models in ([few, many], [many], [few]):
        plan = plan_for(models, workers)
        assert find_violations(plan) == []
        counts = Counter(each.model for each in plan.assignments)
        assert counts["few"] == (few in models)
        assert counts["many"] == (0 if many not in models else 3 if few in models else 4)
    with pytest.raises(FailedPreconditionError, match=r"'many' 3.* there are 2 workers"):
        plan_for([many], workers[:2])
    unbounded = replace(plan, models=(replace(few, max_replicas=None),))
    assert find_violations(unbounded) == []
    assert "which is to have 2 at least" in find_violations(replace(plan, models=(replace(few, min_replicas=2),)))[0]
