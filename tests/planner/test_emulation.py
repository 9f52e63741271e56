"""Plans for emulated devices: their times, their memory, and models that only a profile knows."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.checkpoint.model_directory import read_spec
from headway.core.catalogue import built_in_catalogue
from headway.core.catalogue.figure import Provenance
from headway.core.cluster import Hardware, PlanWorker
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.model import ModelSpec
from headway.core.parallel_config import ParallelConfig
from headway.core.plan.serving import EngineLimits, ModelDeployment, ServingPlan
from headway.core.stage_profile import StageBatch, StageProfile, stage_profile_id
from headway.planner.certify.certificate import find_violations
from headway.planner.certify.explanation import explain
from headway.planner.serving.choice import choose_plan
from headway.planner.serving.roofline import estimate_latency, estimate_stage_latencies

GIB = 1024**3
PROFILED_MODEL = Path("services/headway/cli/profiled_model")


def device(number: int, *, memory_bytes: int = 16_000_000_000) -> PlanWorker:
    hardware = Hardware(device="cuda", name="V100-16", num_threads=1, memory_bytes=memory_bytes, is_emulated=True)
    return PlanWorker(worker_id=f"worker-{number}", hardware=hardware)


def profile(pp: int, op: int, *, latency_s: float, weight_bytes: int = 2 * GIB) -> StageProfile:
    return StageProfile(
        profile_id=stage_profile_id("bert", "V100-16", pp=pp, op=op),
        model="bert",
        hardware="V100-16",
        pp=pp,
        op=op,
        weight_bytes=(weight_bytes // pp // op,) * pp,
        batches=(
            StageBatch(
                batch_size=1,
                stage_latency_s=tuple(latency_s / pp * (1 + stage) for stage in range(pp)),
                activation_bytes=(1000,) * pp,
            ),
        ),
        source="a test",
        provenance=Provenance.IMPORTED,
        created_at_s=0.0,
    )


PROFILES = {each.profile_id: each for each in (profile(1, 1, latency_s=0.2), profile(2, 2, latency_s=0.1))}


def plan(models: list[ModelDeployment], num_devices: int, **limits: Any) -> ServingPlan:
    return choose_plan(
        models,
        [device(number) for number in range(num_devices)],
        limits=EngineLimits(**limits),
        profiles={},
        stage_profiles=PROFILES,
        plan_id="plan-1",
        created_at_s=0.0,
    )


def bert(name: str = "m", *, of: str = "bert") -> ModelDeployment:
    return ModelDeployment(name=name, directory="d", spec=read_spec(PROFILED_MODEL), profile=of)


def test_an_emulated_device_takes_what_is_predicted_and_a_pipeline_what_each_stage_is_estimated_at(
    make_spec: Callable[..., ModelSpec], make_model: Callable[..., ModelDeployment]
) -> None:
    alone = plan([make_model()], 1)
    (assignment,) = alone.assignments
    assert assignment.stage_latencies == (assignment.prediction.latency,)
    assert find_violations(alone) == []
    piped = plan([make_model()], 2, pp=2)
    (assignment,) = piped.assignments
    hardware = piped.workers[0].hardware
    assert assignment.stage_latencies == estimate_stage_latencies(make_model().spec, hardware, assignment.parallel)
    assert len(assignment.stage_latencies) == 2
    assert find_violations(piped) == []
    whole = estimate_latency(make_model().spec, hardware, assignment.parallel)
    assert sum(stage.per_prefill_token_s for stage in assignment.stage_latencies) == pytest.approx(
        whole.per_prefill_token_s
    )


def test_real_devices_have_no_stage_latencies(
    make_model: Callable[..., ModelDeployment], make_worker: Callable[..., PlanWorker]
) -> None:
    real = choose_plan(
        [make_model()], [make_worker()], limits=EngineLimits(), profiles={}, plan_id="p", created_at_s=0.0
    )
    assert real.assignments[0].stage_latencies == ()
    assert not real.is_emulated


def test_memory_is_that_of_the_device_in_the_catalogue(make_model: Callable[..., ModelDeployment]) -> None:
    (assignment,) = plan([make_model()], 1).assignments
    used = assignment.weight_bytes + assignment.kv_cache_bytes + assignment.reserved_bytes
    memory = built_in_catalogue().device("V100-16").memory
    assert memory is not None
    assert used <= memory.value


def test_a_profiled_model_takes_what_its_profile_says() -> None:
    made = plan([bert("a"), bert("b")], 8, tp=2, pp=2)
    assert {assignment.model for assignment in made.assignments} == {"a", "b"}
    for assignment in made.assignments:
        assert assignment.parallel == ParallelConfig(tp=2, pp=2)
        assert [stage.base_s for stage in assignment.stage_latencies] == pytest.approx([0.05, 0.1])
        assert assignment.prediction.ttft_s == pytest.approx(0.15)
        assert [share.weight_bytes for share in assignment.shares] == [GIB // 2] * 4
        assert assignment.max_num_seqs == 1
    assert find_violations(made) == []
    assert explain(made)
    assert made.emulated_devices == "8 x V100-16"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"stage_latencies": ()}, "0 have a latency"),
        ({"weight_bytes": 10**12}, "holds"),
        ({"parallel": ParallelConfig(pp=2)}, "2 ranks"),
    ],
)
def test_the_certificate_finds_what_is_wrong_with_an_emulated_group(changes: dict[str, Any], said: str) -> None:
    made = plan([bert()], 1)
    broken = replace(made, assignments=(replace(made.assignments[0], **changes),))
    assert any(said in violation for violation in find_violations(broken))


def test_the_certificate_refuses_made_up_times_on_real_devices() -> None:
    made = plan([bert()], 1)
    real = replace(made.workers[0], hardware=replace(made.workers[0].hardware, is_emulated=False))
    violations = find_violations(replace(made, workers=(real,)))
    assert any("real" in violation for violation in violations)


def test_what_no_profile_knows_is_refused_by_name() -> None:
    with pytest.raises(InvalidArgumentError, match="no profile of bert on V100-16 with pp 4, op 1"):
        plan([bert()], 4, pp=4)
    with pytest.raises(InvalidArgumentError, match="no profile of moe"):
        plan([bert(of="moe")], 1)


def test_a_profiled_model_that_does_not_fit_is_refused() -> None:
    large = profile(1, 1, latency_s=0.1, weight_bytes=20 * GIB)
    with pytest.raises(FailedPreconditionError, match="memory"):
        choose_plan(
            [bert()],
            [device(0)],
            limits=EngineLimits(),
            profiles={},
            stage_profiles={large.profile_id: large},
            plan_id="p",
            created_at_s=0.0,
        )


@pytest.mark.parametrize("more", [(1, 0), (0, 1)])
def test_profiled_models_share_a_pipeline_whichever_stage_is_the_largest(more: tuple[int, int]) -> None:
    uneven = replace(profile(2, 1, latency_s=0.1), weight_bytes=tuple(GIB + each for each in more))
    found = choose_plan(
        [bert("a"), bert("b")],
        [device(0), device(1)],
        limits=EngineLimits(pp=2),
        profiles={},
        stage_profiles={uneven.profile_id: uneven},
        plan_id="p",
        created_at_s=0.0,
    )
    assert [sorted(share.weight_bytes for share in each.ranks) for each in found.assignments] == [[GIB, GIB + 1]] * 2


def test_what_was_measured_on_a_device_is_not_that_of_an_emulated_one() -> None:
    hardware = device(0).hardware
    assert hardware.content_hash != replace(hardware, is_emulated=False).content_hash
    assert "emulated" in hardware.label
