"""Plans in which several engines have models."""

from dataclasses import replace
from typing import Any

import pytest

from headway.controller.reconcile import load_orders_of
from headway.core.cluster import PlanWorker
from headway.core.engine_kind import EngineKind
from headway.core.engine_server import ServerFacts
from headway.core.errors import FailedPreconditionError
from headway.core.held_memory import RUNTIME_BYTES
from headway.core.model import ModelFamily
from headway.core.plan.serving import EngineLimits, ModelDeployment
from headway.planner.certify.certificate import find_violations
from headway.planner.certify.explanation import explain


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
    limits = EngineLimits(max_num_batched_tokens=512)
    (own,) = plan_for([make_model("own")], [worker], limits=limits).assignments
    (other,) = plan_for([on_vllm(make_model("own"))], [with_vllm(worker)], limits=limits).assignments
    assert other.reserved_bytes - own.reserved_bytes == 2 * 1024**3 - RUNTIME_BYTES["cpu"]
    small = make_worker("worker-0", memory_bytes=2 * 1024**3)
    with pytest.raises(FailedPreconditionError, match="memory"):
        plan_for([on_vllm(make_model("own"))], [with_vllm(small)])


def with_devices(worker: PlanWorker, number: int) -> PlanWorker:
    worker = with_vllm(worker)
    return replace(worker, hardware=replace(worker.hardware, num_devices=number))


def test_layers_are_split_over_the_devices_of_a_worker(
    plan_for: Any, make_model: Any, make_spec: Any, make_worker: Any
) -> None:
    models = [on_vllm(make_model("other")), make_model("own")]
    workers = [*(make_worker(f"worker-{index}") for index in (0, 1)), with_devices(make_worker("worker-2"), 2)]
    limits = EngineLimits(tp=2)
    made = plan_for(models, workers, limits=limits)
    (other,) = [each for each in made.assignments if each.model == "other"]
    (own,) = [each for each in made.assignments if each.model == "own"]
    assert (own.worker_ids, other.worker_ids) == (("worker-0", "worker-1"), ("worker-2",))
    assert own.parallel == other.parallel == limits.parallel
    assert [share.worker_id for share in other.ranks] == ["worker-2", "worker-2"]
    assert [share.weight_bytes for share in other.ranks] == [share.weight_bytes for share in own.ranks]
    assert other.max_num_batched_tokens == 2 * 2048
    assert find_violations(made) == []
    assert plan_for(models, workers, limits=limits, current=made).assignments == made.assignments
    (order,) = load_orders_of(made)["worker-2"]
    assert not order.is_in_group
    assert order.parallel.tp == 2
    assert len(order.memory_bytes) == 1
    half = replace(made, assignments=(replace(other, ranks=other.ranks[:1]), own))
    assert any("worker-2 has 2 devices, and the plan gives it 1 parts" in each for each in find_violations(half))
    assert any("worker-2 has 2 devices" in each for each in explain(made))


def test_a_worker_with_other_devices_than_are_asked_for_is_named(
    plan_for: Any, make_model: Any, make_worker: Any
) -> None:
    models, workers = [on_vllm(make_model("other"))], [with_devices(make_worker("worker-0"), 2)]
    with pytest.raises(FailedPreconditionError, match=r"limits\.tp is 4, and worker-0 has 2 devices for vllm"):
        plan_for(models, workers, limits=EngineLimits(tp=4))
    with pytest.raises(FailedPreconditionError, match=r"limits\.pp .* lacks groups"):
        plan_for(models, workers, limits=EngineLimits(pp=2))


def test_a_quantised_checkpoint_is_split_as_its_heads_are(
    plan_for: Any, make_model: Any, make_spec: Any, make_worker: Any
) -> None:
    spec = make_spec(family=ModelFamily.OTHER, stored_bytes=100_000_000)
    made = plan_for([on_vllm(replace(make_model("other"), spec=spec))], [with_devices(make_worker("worker-0"), 2)])
    (assignment,) = made.assignments
    assert [share.weight_bytes for share in assignment.ranks] == [50_000_000, 50_000_000]
    assert find_violations(made) == []


def test_weights_count_as_their_files_and_a_latent_cache_as_it_is(
    plan_for: Any, make_model: Any, make_spec: Any, make_worker: Any
) -> None:
    spec = make_spec(family=ModelFamily.OTHER, latent_dim=576, stored_bytes=123_456_789, dtype="bfloat16")
    made = plan_for([on_vllm(replace(make_model("other"), spec=spec))], [with_vllm(make_worker("worker-0"))])
    (assignment,) = made.assignments
    assert assignment.weight_bytes == 123_456_789
    assert assignment.kv_cache_bytes == assignment.num_blocks * 32 * spec.num_layers * 576 * 2
    assert find_violations(made) == []
    lighter = replace(assignment, weight_bytes=123_456_788)
    assert any("weight_bytes" in each for each in find_violations(replace(made, assignments=(lighter,))))


def served(worker: PlanWorker, model: str, **facts: Any) -> PlanWorker:
    """A worker that stands in for a server of the model."""
    base: dict[str, Any] = {"num_blocks": 50, "block_size": 24, "max_model_len": 480, "has_prefix_cache": True}
    server = ServerFacts(model=model, url=f"http://{worker.worker_id}", names=(model,), **base | facts)
    software = {EngineKind.VLLM_SERVER: "0.32.0"}
    return replace(worker, hardware=replace(worker.hardware, memory_bytes=2**50, software=software, server=server))


def on_server(model: ModelDeployment) -> ModelDeployment:
    return replace(model, engine=EngineKind.VLLM_SERVER)


def test_models_are_on_their_own_servers_as_those_are(plan_for: Any, make_model: Any, make_worker: Any) -> None:
    models = [on_server(make_model("there")), make_model("own"), on_server(make_model("elsewhere"))]
    workers = [
        make_worker("worker-0"),
        served(make_worker("worker-1"), "elsewhere", has_prefix_cache=False),
        served(make_worker("worker-2"), "there", num_blocks=40),
        served(make_worker("worker-3"), "there"),
    ]
    made = plan_for(models, workers)
    assert find_violations(made) == []
    assert {each.worker_id: each.model for each in made.assignments} == {
        "worker-0": "own",
        "worker-1": "elsewhere",
        "worker-2": "there",
        "worker-3": "there",
    }
    sizes = {each.worker_id: (each.num_blocks, each.block_size) for each in made.assignments}
    assert [sizes[f"worker-{index}"] for index in (1, 2, 3)] == [(50, 24), (40, 24), (40, 24)]
    assert {each.model: each.enable_prefix_cache for each in made.assignments} == {
        "own": True,
        "there": True,
        "elsewhere": False,
    }
    assert all(each.max_model_len <= 480 for each in made.assignments if each.model != "own")


def test_servers_that_cannot_serve_one_model_together_are_told(
    plan_for: Any, make_model: Any, make_worker: Any
) -> None:
    model = on_server(make_model("there"))
    one = served(make_worker("worker-0"), "there")
    with pytest.raises(FailedPreconditionError, match="blocks of 24 and 32 tokens"):
        plan_for([model], [one, served(make_worker("worker-1"), "there", block_size=32)])
    with pytest.raises(FailedPreconditionError, match="'there' is to run on vllm-server, and no worker"):
        plan_for([model], [served(make_worker("worker-0"), "elsewhere")])
    with pytest.raises(FailedPreconditionError, match="http://worker-0 takes 100 tokens"):
        plan_for([replace(model, max_model_len=200)], [served(make_worker("worker-0"), "there", max_model_len=100)])
