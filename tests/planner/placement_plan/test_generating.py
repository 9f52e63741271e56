"""Language models among the others: lengths, objectives, search, and what a plan says of them on the workers."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from headway.core.catalogue import built_in_catalogue
from headway.core.cluster import Hardware, PlanWorker
from headway.core.encoder import EncoderSpec
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.generation import generation_profile_of
from headway.core.held_memory import MemoryRule, side_by_side
from headway.core.line import QueuePolicy
from headway.core.model import ModelFamily
from headway.core.placement import GroupShape, PlacedGroup, Placement
from headway.core.placement_problem import (
    PlacementProblem,
    ProblemModel,
    ServingCluster,
    TokenLengths,
    TraceFile,
    WorkloadSource,
    planned_policy,
)
from headway.core.plan.placement import PlacementPlan
from headway.core.plan.serving import EngineLimits, ModelDeployment
from headway.core.slo import Slo
from headway.core.stage_profile import StageProfile
from headway.planner.certify.certificate import find_violations
from headway.planner.certify.placement import find_placement_violations
from headway.planner.placement.planning.plan import make_placement_plan, search_placement, try_instead
from headway.planner.placement.planning.prediction import rules_of
from headway.planner.placement.search import SearchOptions
from headway.planner.placement.simulator import Rules, simulate
from headway.planner.placement.simulator.generation import generation_workload, simulate_generation
from headway.planner.placement.workloads.source import make_workloads
from headway.planner.serving.generating import estimate_generation
from headway.planner.serving.placed import make_placed_plan

GIB = 1024**3
V100 = Hardware(device="cuda", name="V100-16", num_threads=1, memory_bytes=16 * GIB, is_emulated=True)
WORKLOAD = WorkloadSource(spec="gamma:rate=12,cv=2", duration_s=60.0, slo_scale=4.0)


@pytest.fixture(scope="module")
def llama(make_model: Any) -> ModelDeployment:
    model: ModelDeployment = make_model("llama", num_layers=8, num_kv_heads=8)
    return model


@pytest.fixture(scope="module")
def estimates(llama: ModelDeployment) -> list[StageProfile]:
    return estimate_generation(llama, V100, catalogue=built_in_catalogue(), max_devices=4, created_at_s=0.0)


@pytest.fixture(scope="module")
def problem(make_profile: Callable[..., StageProfile], estimates: list[StageProfile]) -> PlacementProblem:
    """Two BERTs and a language model on four devices."""
    berts = tuple(ProblemModel(name=name, architecture="small") for name in "ab")
    lengths = {"prompt": TokenLengths(mean=300.0, cv=0.7), "output": TokenLengths(mean=40.0, cv=0.5)}
    return PlacementProblem(
        models=(*berts, ProblemModel(name="chat", architecture="llama", share=0.5, **lengths)),
        profiles=(make_profile("small", 0.1), make_profile("small", 0.055, 0.055), *estimates),
        cluster=ServingCluster(device="V100-16", num_devices=4, devices_per_node=4, memory_bytes=12 * GIB),
        workload=WORKLOAD,
    )


@pytest.fixture(scope="module")
def plan(problem: PlacementProblem) -> PlacementPlan:
    return make_placement_plan(
        problem, {}, plan_id="plan", created_at_s=0.0, report=lambda _: None, should_stop=lambda: False
    )


def test_every_shape_that_the_model_allows_is_estimated_as_it_will_be_served(
    estimates: list[StageProfile], llama: ModelDeployment, plan: PlacementPlan
) -> None:
    assert {(each.pp, each.op) for each in estimates} == {(1, 1), (2, 1), (4, 1), (1, 2), (2, 2), (1, 4)}
    for estimate in estimates:
        shape = GroupShape(pp=estimate.pp, op=estimate.op)
        alone = replace(plan, placement=Placement(groups=(PlacedGroup(shape=shape, models=("chat",)),)))
        workers = [PlanWorker(worker_id=f"worker-{number}", hardware=V100) for number in range(4)]
        served = make_placed_plan(
            alone,
            [replace(llama, name="chat")],
            workers,
            limits=EngineLimits(),
            profiles={},
            plan_id="served",
            created_at_s=0.0,
        )
        assert estimate.generation is not None
        assert generation_profile_of(served.assignments[0]) == replace(estimate.generation, memory=None)
        assert served.models[0].slo == plan.problem.slo(plan.problem.models[2])
        assert len(served.assignments[0].worker_ids) == shape.num_devices


@pytest.mark.parametrize("shape", [GroupShape(pp=1, op=1), GroupShape(pp=2, op=1), GroupShape(pp=2, op=2)])
@pytest.mark.parametrize("names", [("a", "chat"), ("chat", "code"), ("code", "b", "chat", "a")])
def test_models_that_share_a_group_have_the_blocks_that_they_get_on_the_workers(
    shape: GroupShape,
    names: tuple[str, ...],
    make_profile: Callable[..., StageProfile],
    make_model: Any,
    estimates: list[StageProfile],
    llama: ModelDeployment,
    plan: PlacementPlan,
) -> None:
    code = make_model("code-llama", num_layers=16, num_kv_heads=4)
    berts = [make_profile("small", *[0.1] * shape.pp, op=shape.op, activation_gib=0.1)]
    others = estimate_generation(code, V100, catalogue=built_in_catalogue(), max_devices=4, created_at_s=0.0)
    lengths = {"prompt": TokenLengths(mean=300.0), "output": TokenLengths(mean=40.0)}
    problem = replace(
        plan.problem,
        models=(*plan.problem.models, ProblemModel(name="code", architecture="code-llama", **lengths)),
        profiles=(*berts, *estimates, *others),
    )
    shared = Placement(groups=(PlacedGroup(shape=shape, models=names),))
    bert = make_model(
        "m", family=ModelFamily.BERT, rope=None, encoder=EncoderSpec(num_positions=512, num_token_types=2)
    ).spec
    served = make_placed_plan(
        replace(plan, problem=problem, placement=shared, buckets=()),
        [
            replace(llama, name="chat"),
            replace(code, name="code"),
            *(ModelDeployment(name=name, directory="/profiled", spec=bert, profile="small") for name in "ab"),
        ],
        [PlanWorker(worker_id=f"worker-{number}", hardware=V100) for number in range(4)],
        limits=EngineLimits(),
        profiles={},
        plan_id="served",
        created_at_s=0.0,
    )
    assert find_violations(served) == []
    by_name = {model.name: model for model in problem.placed_models}
    profiles = [by_name[name].on(shape) for name in names]
    expected = side_by_side([each for each in profiles if each is not None], MemoryRule.RESERVED)
    for assignment, generation in zip(served.assignments, expected, strict=True):
        if generation is None:
            assert assignment.num_blocks == 0
        else:
            assert generation_profile_of(assignment) == replace(generation, memory=None)


def test_language_models_are_placed_among_the_others(plan: PlacementPlan) -> None:
    assert {name for group in plan.placement.groups for name in group.models} == {"a", "b", "chat"}
    assert find_placement_violations(plan) == []
    attainment = {each.model: each.attainment for each in plan.predictions.held_out.models}
    assert min(attainment.values()) > 0.8
    assert {each.name for each in plan.alternatives} >= {"selective replication", "round robin"}


def test_two_rare_language_models_share_the_only_device(problem: PlacementProblem) -> None:
    """Either alone would leave the other out."""
    chat = replace(problem.models[2], share=1.0)
    rare = replace(
        problem,
        models=(chat, replace(chat, name="code")),
        cluster=replace(problem.cluster, num_devices=1),
        workload=WorkloadSource(spec="poisson:rate=0.5", duration_s=200.0, slo_scale=8.0),
    )
    found = make_placement_plan(
        rare, {}, plan_id="plan", created_at_s=0.0, report=lambda _: None, should_stop=lambda: False
    )
    assert find_placement_violations(found) == []
    assert found.predictions.held_out.attainment > 0.95
    alone = try_instead(found, "models=code@", {})
    assert alone.predictions.held_out.attainment < 0.6
    assert any("It leaves out code" in each for each in alone.why_not)


def test_sharing_groups_keeps_more_objectives_than_groups_of_one_kind(problem: PlacementProblem) -> None:
    """A language model with rare requests, and a BERT whose bursts need both devices."""
    bert, _, chat = problem.models
    mixed = replace(
        problem,
        models=(replace(bert, share=9.0), replace(chat, share=0.25)),
        cluster=replace(problem.cluster, num_devices=2),
        workload=WorkloadSource(spec="gamma:rate=9,cv=3", duration_s=200.0, slo_scale=6.0),
    )
    found = make_placement_plan(
        mixed, {}, plan_id="plan", created_at_s=0.0, report=lambda _: None, should_stop=lambda: False
    )
    assert find_placement_violations(found) == []
    assert any(set(group.models) == {"a", "chat"} for group in found.placement.groups)
    apart = try_instead(found, "groups=2*1x1 models=a@0;chat@1", {})
    assert found.predictions.held_out.attainment > apart.predictions.held_out.attainment + 0.05


def test_the_simulation_of_all_is_that_of_each_part(problem: PlacementProblem) -> None:
    workload = make_workloads(problem, {}).searched
    models = problem.placed_models
    single, pair = GroupShape(pp=1, op=1), GroupShape(pp=1, op=2)
    placement = Placement(
        groups=(
            PlacedGroup(shape=single, models=("chat",)),
            PlacedGroup(shape=single, models=("a", "b")),
            PlacedGroup(shape=pair, models=("chat",)),
        )
    )
    outcome = simulate(models, placement, workload, Rules.SERVING)
    chosen = workload.model == 2
    profiles = [models[2].on(placement.groups[number].shape) for number in (0, 2)]
    alone = simulate_generation(
        generation_workload(workload.take(chosen), models),
        [{2: profile.generation} for profile in profiles if profile and profile.generation],
    )
    assert outcome.finish_s[chosen].tolist() == (workload.arrival_s[chosen] + alone.e2e_s).tolist()
    assert outcome.attainment_by_model["chat"] == alone.is_met.mean()
    assert set(outcome.group[chosen]) <= {-1, 0, 2}
    assert set(outcome.group[~chosen]) <= {-1, 1}
    met = sum(
        share * (workload.model == number).sum() for number, share in enumerate(outcome.attainment_by_model.values())
    )
    assert outcome.attainment == pytest.approx(met / len(workload))
    assert 0 < outcome.utilisation[0] <= 1


def test_without_knowledge_of_its_memory_a_model_that_generates_needs_a_group_to_itself(plan: PlacementPlan) -> None:
    shared = Placement(groups=(PlacedGroup(shape=GroupShape(pp=1, op=1), models=("a", "chat")),))
    profiles = [
        replace(each, generation=replace(each.generation, memory=None)) if each.generation is not None else each
        for each in plan.problem.profiles
    ]
    problem = replace(plan.problem, profiles=tuple(profiles))
    workload = make_workloads(problem, {}).searched
    with pytest.raises(InvalidArgumentError, match=r"Group 0 has other models beside .chat., and nothing says how"):
        simulate(problem.placed_models, shared, workload, Rules.SERVING)
    told = find_placement_violations(replace(plan, problem=problem, placement=shared))
    assert any("others beside 'chat', and nothing says how they share its memory" in each for each in told)
    found, _ = search_placement(
        problem,
        workload,
        report=lambda _: None,
        should_stop=lambda: False,
        options=SearchOptions(moves=60, resamples=0, partial=True),
    )
    assert all(len(group.models) == 1 for group in found.groups if "chat" in group.models)


def test_the_rules_of_the_artifact_know_no_language_models(problem: PlacementProblem) -> None:
    workload = make_workloads(problem, {}).searched
    with pytest.raises(InvalidArgumentError, match="'chat' generates, which these rules know nothing of"):
        simulate(problem.placed_models, Placement(groups=()), workload, Rules.ARTIFACT)


def test_models_that_generate_are_simulated_first_come_first_served(problem: PlacementProblem) -> None:
    by_slack = replace(problem, queue_policy=QueuePolicy.LEAST_SLACK)
    with pytest.raises(InvalidArgumentError, match="'chat' generates") as refusal:
        rules_of(by_slack)
    assert refusal.value.field == "queue_policy"
    assert planned_policy(QueuePolicy.LEAST_SLACK, generates=True) is QueuePolicy.FCFS
    assert planned_policy(QueuePolicy.LEAST_SLACK, generates=False) is QueuePolicy.LEAST_SLACK
    assert planned_policy(QueuePolicy.PRIORITY, generates=False) is QueuePolicy.FCFS


def test_objectives_are_scaled_from_tokens_alone_unless_one_is_given(problem: PlacementProblem) -> None:
    chat = problem.models[2]
    ttft_s, tpot_s = problem.alone_s(chat)
    assert problem.slo(chat) == Slo(ttft_s=4 * ttft_s, tpot_s=4 * tpot_s)
    assert problem.slo(replace(chat, slo_s=9.0)) == Slo(e2e_s=9.0)
    assert problem.slo(replace(chat, tpot_s=0.1)) == Slo(tpot_s=0.1)


def test_recorded_lengths_are_kept_and_missing_ones_drawn(problem: PlacementProblem) -> None:
    rows = [
        "at_s,model,slo_ms,prompt_tokens,output_tokens",
        "5.0,chat,,17,4",
        "5.5,a,,9,",
        "6.0,chat,,21,",
        "8.0,chat,,5,6",
    ]
    content = "\n".join([*rows, "9.0,a,,3,"]).encode()
    file = TraceFile(name="day.csv", sha256=hashlib.sha256(content).hexdigest())
    recorded = replace(problem, workload=WorkloadSource(spec="replay:day.csv", files=(file,)))
    workloads = make_workloads(recorded, {"day.csv": content})
    lengths = workloads.searched.lengths
    assert lengths is not None
    assert lengths.prompt.tolist() == [17, 0, 21]
    assert lengths.output[0] == 4
    assert lengths.output[1] == 0
    assert lengths.output[2] > 0
    generated = make_workloads(problem, {}).searched
    assert generated.lengths is not None
    drawn = generated.lengths.prompt[generated.model == 2]
    assert drawn.mean() == pytest.approx(300, rel=0.25)
    assert drawn.std() / drawn.mean() == pytest.approx(0.7, abs=0.2)
    assert np.array_equal(drawn, make_workloads(problem, {}).searched.lengths.prompt[generated.model == 2])  # type: ignore[union-attr]


def test_objectives_that_nothing_can_keep_are_told_with_the_best(problem: PlacementProblem) -> None:
    chat = replace(problem.models[2], ttft_s=1e-6)
    with pytest.raises(FailedPreconditionError, match="'chat' can't keep its objectives: alone its shortest prompt"):
        make_placement_plan(
            replace(problem, models=(chat,)),
            {},
            plan_id="plan",
            created_at_s=0.0,
            report=lambda _: None,
            should_stop=lambda: False,
        )
