"""Models of both engines in one placement: devices of each, profiles on them, and workers that have them."""

from dataclasses import replace
from typing import Any

import pytest

from headway.cli.placement.cluster import clusters_with
from headway.cli.placement.deployments import find_deployments
from headway.cli.placement.generating import as_measured, with_engines
from headway.client import ClusterStatus
from headway.client.status import FleetStatus, GroupStatus
from headway.core.catalogue import built_in_catalogue
from headway.core.catalogue.figure import Provenance
from headway.core.cluster import Hardware, PlanWorker
from headway.core.engine_kind import EngineKind
from headway.core.errors import FailedPreconditionError
from headway.core.models_file import read_models_file
from headway.core.placement_problem import PlacementProblem, ProblemModel, TokenLengths, WorkloadSource
from headway.core.plan.serving import EngineLimits, ModelDeployment, ServingPlan
from headway.planner.certify.certificate import find_violations
from headway.planner.placement.planning.plan import make_placement_plan
from headway.planner.serving.generating import estimate_generation
from headway.planner.serving.placed import make_placed_plan

GIB = 1024**3
OWN = Hardware(device="cuda", name="V100-16", num_threads=1, memory_bytes=16 * GIB)
VLLM = replace(OWN, software={"vllm": "0.32.0"})
_PLACED = {EngineKind.HEADWAY, EngineKind.VLLM}
LENGTHS = {"prompt": TokenLengths(mean=300.0), "output": TokenLengths(mean=40.0)}


def workers(own: int, vllm: int) -> list[PlanWorker]:
    kinds = [OWN] * own + [VLLM] * vllm
    return [PlanWorker(worker_id=f"worker-{index}", hardware=each, machine="m") for index, each in enumerate(kinds)]


@pytest.fixture
def deployments(make_model: Any) -> list[ModelDeployment]:
    own = make_model("own", num_layers=8, num_kv_heads=8)
    return [own, replace(own, name="other", engine=EngineKind.VLLM, engine_args="--enforce-eager")]


def profiles(model: ModelDeployment, hardware: Hardware) -> Any:
    return estimate_generation(model, hardware, catalogue=built_in_catalogue(), max_devices=2, created_at_s=0.0)


def test_vllm_is_estimated_for_single_devices_with_its_blocks_and_the_device_to_itself(
    deployments: list[ModelDeployment],
) -> None:
    (profile,) = profiles(deployments[1], VLLM)
    assert (profile.pp, profile.op, profile.hardware) == (1, 1, "V100-16+vllm")
    assert profile.needs_group
    assert {each.hardware for each in profiles(deployments[0], OWN)} == {"V100-16"}


def test_only_workers_of_the_engines_asked_for_are_devices() -> None:
    def found(*engines: EngineKind, of: list[PlanWorker]) -> list[tuple[str, int]]:
        clusters = clusters_with(set(engines), of, catalogue=built_in_catalogue())
        return [(each.device, each.num_devices) for each in clusters]

    both = workers(own=2, vllm=3)
    assert found(EngineKind.HEADWAY, of=both) == [("V100-16", 2)]
    assert found(EngineKind.VLLM, of=both) == [("V100-16+vllm", 3)]
    assert found(*_PLACED, of=both) == [("V100-16+vllm", 3), ("V100-16", 2)]
    with pytest.raises(FailedPreconditionError, match="to run on vllm, and no live worker"):
        found(EngineKind.VLLM, of=workers(own=2, vllm=0))


def test_a_search_gives_each_engine_its_own_devices_and_the_plan_its_own_workers(
    deployments: list[ModelDeployment],
) -> None:
    there = workers(own=1, vllm=2)
    cluster, *others = clusters_with(_PLACED, there, catalogue=built_in_catalogue())
    problem = PlacementProblem(
        models=(
            ProblemModel(name="own", architecture="own", **LENGTHS),
            ProblemModel(
                name="other", architecture="other", engine=EngineKind.VLLM, engine_args="--enforce-eager", **LENGTHS
            ),
        ),
        profiles=(*profiles(deployments[0], OWN), *profiles(deployments[1], VLLM)),
        cluster=cluster,
        other_clusters=tuple(others),
        workload=WorkloadSource(spec="poisson:rate=4", duration_s=20.0),
    )
    placement = make_placement_plan(
        problem, {}, plan_id="plan", created_at_s=0.0, report=lambda _: None, should_stop=lambda: False
    )
    live = ServingPlan(plan_id="p", created_at_s=0.0, models=(deployments[0],), workers=tuple(there), assignments=())
    named = replace(deployments[1], engine=EngineKind.HEADWAY, engine_args="")  # served otherwise until now
    found = find_deployments(problem, ["own", "other"], live=replace(live, models=(deployments[0], named)))
    assert list(found) == deployments
    served = make_placed_plan(
        placement, found, there, limits=EngineLimits(), profiles={}, plan_id="served", created_at_s=0.0
    )
    assert {each.model: each.worker_id for each in served.assignments if each.model == "own"} == {"own": "worker-0"}
    assert {each.worker_id for each in served.assignments if each.model == "other"} <= {"worker-1", "worker-2"}
    assert {each.model for each in served.assignments} == {"own", "other"}
    assert find_violations(served) == []


def test_what_a_file_leaves_out_is_as_it_is_served(deployments: list[ModelDeployment]) -> None:
    unsaid = "models:\n- {name: own, generate: d}\n- {name: other, generate: d}\n"
    text = f"{unsaid}- {{name: new, generate: d, engine: vllm}}\n"
    live = ServingPlan(plan_id="p", created_at_s=0.0, models=tuple(deployments), workers=(), assignments=())
    found = with_engines(read_models_file(text, file="m.yaml"), live)
    assert [(each.engine, each.engine_args) for each in found] == [
        (EngineKind.HEADWAY, ""),
        (EngineKind.VLLM, "--enforce-eager"),
        (EngineKind.VLLM, None),
    ]
    assert [each.architecture for each in found] == ["d", "d, on vllm", "d, on vllm"]


def test_latencies_are_those_that_live_steps_of_a_vllm_worker_took(
    deployments: list[ModelDeployment], plan_for: Any
) -> None:
    """vLLM cannot be profiled: what its workers do for requests is all that is measured of it."""
    plan = plan_for([deployments[1]], workers(own=0, vllm=1))
    (profile,) = profiles(deployments[1], VLLM)
    assert profile.generation is not None
    fitted = replace(profile.generation.latency, base_s=0.123)

    def known(observed_s: float) -> Any:
        group = GroupStatus(
            group_id="group-0",
            worker_id="worker-0",
            endpoint="",
            model="other",
            state="ready",
            latency=fitted,
            observed_s=observed_s,
        )
        live = ClusterStatus(plan=plan, fleet=FleetStatus(groups=(group,)))
        return as_measured(profile, {"other"}, live)

    assert known(observed_s=0.5) == profile
    measured = known(observed_s=30.0)
    assert measured.generation.latency.base_s == measured.generation.stage_latencies[0].base_s == 0.123
    assert measured.provenance is Provenance.MEASURED
    assert measured.source == "fitted to 30 s of steps of other on worker-0"
