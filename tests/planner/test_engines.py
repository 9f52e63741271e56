"""Plans in which several engines have models."""

from dataclasses import replace
from typing import Any

import pytest

from headway.core.cluster import PlanWorker
from headway.core.engine_kind import EngineKind
from headway.core.errors import FailedPreconditionError
from headway.core.held_memory import RUNTIME_BYTES
from headway.core.plan.serving import EngineLimits, ModelDeployment
from headway.planner.certify.certificate import find_violations


def on_vllm(model: ModelDeployment) -> ModelDeployment:
    return replace(model, engine=EngineKind.VLLM)


def with_vllm(worker: PlanWorker) -> PlanWorker:
    return replace(worker, hardware=replace(worker.hardware, software={"vllm": "0.32.0"}))


def test_each_model_is_on_workers_that_have_its_engine(plan_for: Any, make_model: Any, make_worker: Any) -> None:
    models = [on_vllm(make_model("other")), make_model("own")]
    own = [make_worker(f"worker-{index}") for index in (0, 1)]
    others = [with_vllm(make_worker(f"worker-{index}")) for index in (2, 3)]
    made = plan_for(models, [*own, *others])
    assert {each.worker_id: each.model for each in made.assignments} == {
        "worker-0": "own",
        "worker-1": "own",
        "worker-2": "other",
        "worker-3": "other",
    }
    assert {each.model: each.block_size for each in made.assignments} == {"own": 16, "other": 32}
    assert made.models == tuple(models)
    assert len(made.workers) == 4
    assert find_violations(made) == []
    assert plan_for(models, [*own, *others], current=made).assignments == made.assignments


def test_a_model_without_a_worker_of_its_engine_is_named(plan_for: Any, make_model: Any, make_worker: Any) -> None:
    with pytest.raises(FailedPreconditionError, match="'other' is to run on vllm"):
        plan_for([on_vllm(make_model("other")), make_model("own")], [make_worker("worker-0"), make_worker("worker-1")])


def test_a_limit_that_vllm_cannot_keep_is_refused_by_name(plan_for: Any, make_model: Any, make_worker: Any) -> None:
    with pytest.raises(FailedPreconditionError, match=r"limits\.num_draft_tokens .* lacks draft_tokens"):
        plan_for(
            [on_vllm(make_model("other"))],
            [with_vllm(make_worker("worker-0"))],
            limits=EngineLimits(num_draft_tokens=2),
        )


def test_the_certifier_finds_a_model_on_the_wrong_engine(plan_for: Any, make_model: Any, make_worker: Any) -> None:
    made = plan_for([make_model("own")], [make_worker("worker-0")])
    wrong = replace(made, models=tuple(map(on_vllm, made.models)))
    assert any("is to run on vllm, and worker-0 has headway" in each for each in find_violations(wrong))


def test_the_two_processes_of_vllm_count(plan_for: Any, make_model: Any, make_worker: Any) -> None:
    worker = make_worker("worker-0")
    (own,) = plan_for([make_model("own")], [worker]).assignments
    (other,) = plan_for([on_vllm(make_model("own"))], [with_vllm(worker)]).assignments
    assert other.reserved_bytes - own.reserved_bytes == 2 * 1024**3 - RUNTIME_BYTES["cpu"]
    small = make_worker("worker-0", memory_bytes=2 * 1024**3)
    with pytest.raises(FailedPreconditionError, match="memory"):
        plan_for([on_vllm(make_model("own"))], [with_vllm(small)])
