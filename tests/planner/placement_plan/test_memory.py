"""What the search thinks fits, and what workers then reserve: one rule."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.catalogue import built_in_catalogue
from headway.core.cluster import Hardware, PlanWorker
from headway.core.encoder import EncoderSpec
from headway.core.errors import FailedPreconditionError
from headway.core.held_memory import RUNTIME_BYTES
from headway.core.live_placement import live_clusters
from headway.core.model import ModelFamily
from headway.core.placement_problem import PlacementProblem, ProblemModel, WorkloadSource
from headway.core.plan.placement import PLACEMENT_PLAN_VERSION, PlacementPlan, PredictedAttainment, Predictions
from headway.core.plan.serving import EngineLimits, ModelDeployment, ServingPlan
from headway.core.scaled_profile import scale_profile
from headway.core.stage_profile import StageProfile
from headway.planner.certify.certificate import find_violations
from headway.planner.placement.planning.plan import search_placement
from headway.planner.placement.search import SearchOptions
from headway.planner.placement.workloads.source import make_workloads
from headway.planner.serving.placed import make_placed_plan

GIB = 1024**3
NOTHING = PredictedAttainment(attainment=0.0, models=(), utilisation=())

Apply = Callable[[PlacementProblem, list[PlanWorker]], ServingPlan]


@pytest.fixture(scope="session")
def apply(make_model: Any) -> Apply:
    """The search's placement of a problem, on workers."""
    encoder = EncoderSpec(num_positions=512, num_token_types=2)
    spec = make_model("m", num_kv_heads=8, family=ModelFamily.BERT, rope=None, encoder=encoder).spec

    def apply(problem: PlacementProblem, workers: list[PlanWorker]) -> ServingPlan:
        placement, _ = search_placement(
            problem,
            make_workloads(problem, {}).searched,
            report=lambda _: None,
            should_stop=lambda: False,
            options=SearchOptions(partial=True, moves=60, resamples=0),
        )
        return make_placed_plan(
            PlacementPlan(
                version=PLACEMENT_PLAN_VERSION,
                plan_id="placement-1",
                created_at_s=0.0,
                problem=problem,
                placement=placement,
                buckets=(),
                predictions=Predictions(searched=NOTHING, held_out=NOTHING),
                search_s=0.0,
            ),
            [
                ModelDeployment(name=each.name, directory="/profiled", spec=spec, profile=each.architecture)
                for each in problem.models
            ],
            workers,
            limits=EngineLimits(),
            profiles={},
            plan_id="plan-1",
            created_at_s=1.0,
        )

    return apply


def workers_of(machines: list[int], *, memory_bytes: int, name: str = "V100-16") -> list[PlanWorker]:
    hardware = Hardware(device="cuda", name=name, num_threads=1, memory_bytes=memory_bytes, is_emulated=True)
    return [
        PlanWorker(worker_id=f"worker-{name}-{machine}-{index}", hardware=hardware, machine=f"host-{machine}")
        for machine, size in enumerate(machines)
        for index in range(size)
    ]


def problem_on(workers: list[PlanWorker], profiles: list[StageProfile], *, rules: str = "serving") -> PlacementProblem:
    cluster, *others = live_clusters(workers, catalogue=built_in_catalogue())
    architectures = list(dict.fromkeys(profile.model for profile in profiles))
    return PlacementProblem(
        models=tuple(
            ProblemModel(name=f"{architecture}-{number}", architecture=architecture)
            for architecture in architectures
            for number in range(2)
        ),
        profiles=tuple(profiles),
        cluster=cluster,
        other_clusters=tuple(others),
        workload=WorkloadSource(spec="gamma:rate=8,cv=3", duration_s=20.0),
        rules=rules,
    )


sizes = st.floats(0.1, 2.5)


@settings(max_examples=40, deadline=None)
@given(
    machines=st.sampled_from([[1], [3], [2, 2], [4, 1, 3]]),
    memory_gib=st.floats(6.0, 16.0),
    a100s=st.sampled_from([[], [2], [1, 3]]),
    models=st.lists(st.tuples(sizes, sizes), min_size=1, max_size=3),
)
def test_workers_take_whatever_was_searched_for_them(
    make_profile: Any,
    apply: Apply,
    machines: list[int],
    a100s: list[int],
    memory_gib: float,
    models: list[tuple[float, float]],
) -> None:
    """Models of some weights and activations in four shapes, of which each fits alone; machines are uneven, devices of
    one kind or two."""
    workers = [
        *workers_of(machines, memory_bytes=int(memory_gib * GIB)),
        *workers_of(a100s, memory_bytes=int((22 - memory_gib) * GIB), name="A100-40"),
    ]
    profiles = [
        make_profile(f"m{number}", *stages, op=op, weight_gib=weight, activation_gib=activation / len(stages) / op)
        for number, (weight, activation) in enumerate(models)
        for stages, op in (((0.1,), 1), ((0.06, 0.05), 1), ((0.06,), 2), ((0.04, 0.03, 0.03), 1))
    ]
    if a100s:
        profiles += [scale_profile(each, device="A100-40", catalogue=built_in_catalogue()) for each in profiles]
    plan = apply(problem_on(workers, profiles), workers)
    kind = {worker.worker_id: worker.hardware.name for worker in workers}
    assert all(len({kind[name] for name in each.worker_ids}) == 1 for each in plan.assignments)
    assert plan.assignments
    assert find_violations(plan) == []


def test_only_the_artifact_counts_weights_alone(make_profile: Any, apply: Apply) -> None:
    """A device has room for two models' weights, and for one model with its activations."""
    workers = workers_of([1], memory_bytes=10 * GIB + RUNTIME_BYTES["cuda"])
    problem = problem_on(workers, [make_profile("m", 0.1, weight_gib=5.0, activation_gib=1.0)])
    assert [each.model for each in apply(problem, workers).assignments] in (["m-0"], ["m-1"])
    with pytest.raises(FailedPreconditionError, match="lacks"):
        apply(replace(problem, rules="artifact"), workers)
