"""A placement on live workers: every model of every group once, as much as possible where it is already."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.cluster import Hardware, PlanWorker
from headway.core.encoder import EncoderSpec
from headway.core.engine_kind import EngineKind
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.model import ModelFamily
from headway.core.node_span import NodeLink
from headway.core.placement import GroupShape, PlacedGroup, Placement
from headway.core.placement_problem import WorkloadSource
from headway.core.plan.placement import PLACEMENT_PLAN_VERSION, PlacementPlan, PredictedAttainment, Predictions
from headway.core.plan.serving import EngineLimits, ModelDeployment, ServingPlan
from headway.planner.certify.certificate import find_violations
from headway.planner.serving.placed import make_placed_plan
from headway.planner.serving.worker_assignment import HeldGroup, assign_workers

GIB = 1024**3
NOTHING = PredictedAttainment(attainment=0.0, models=(), utilisation=())

Groups = Sequence[tuple[str, Sequence[str]]]
Make = Callable[..., ServingPlan]


def placed(*groups: tuple[str, Sequence[str]]) -> Placement:
    """('2x1', 'ab') is a pipeline of two with the models a and b."""
    return Placement(
        groups=tuple(
            PlacedGroup(shape=GroupShape(pp=int(shape[0]), op=int(shape[2]), device=shape[4:]), models=tuple(models))
            for shape, models in groups
        )
    )


def v100s(count: int, *, machines: int = 1, memory_gib: float = 16.0) -> list[PlanWorker]:
    hardware = Hardware(
        device="cuda", name="V100-16", num_threads=1, memory_bytes=int(memory_gib * GIB), is_emulated=True
    )
    per_machine = math.ceil(count / machines)
    return [
        PlanWorker(worker_id=f"worker-{index}", hardware=hardware, machine=f"host-{index // per_machine}")
        for index in range(count)
    ]


@pytest.fixture(scope="session")
def make(make_problem: Any, make_profile: Any, make_model: Any) -> Make:
    """A plan for models that are known by their profiles: 1x1, 2x1 and 1x2, each of 2 GiB; `llms` have KV caches, and
    those of `vllm` that engine."""
    profiles = [make_profile("small", 0.1), make_profile("small", 0.06, 0.05), make_profile("small", 0.07, op=2)]
    encoder = {"family": ModelFamily.BERT, "rope": None, "encoder": EncoderSpec(num_positions=512, num_token_types=2)}

    def deployment(name: str, llms: str, vllm: str) -> ModelDeployment:
        if name in llms + vllm:
            plain: ModelDeployment = make_model(name)
            return replace(plain, engine=EngineKind.VLLM if name in vllm else EngineKind.HEADWAY)
        usual = make_model(name, num_kv_heads=8, **encoder)
        return ModelDeployment(name=name, directory="/profiled", spec=usual.spec, profile="small")

    def plan(
        groups: Groups,
        workers: list[PlanWorker],
        *,
        current: ServingPlan | None = None,
        llms: str = "",
        vllm: str = "",
        names: str = "",
        across_nodes: NodeLink | None = None,
    ) -> ServingPlan:
        placement = placed(*groups)
        names = names or "".join(sorted({name for group in placement.groups for name in group.models}))
        problem = make_problem(WorkloadSource(spec="poisson:rate=1"), names=names, profiles=profiles, num_devices=32)
        problem = replace(problem, cluster=replace(problem.cluster, across_nodes=across_nodes))
        document = PlacementPlan(
            version=PLACEMENT_PLAN_VERSION,
            plan_id="placement-1",
            created_at_s=0.0,
            problem=problem,
            placement=placement,
            buckets=(),
            predictions=Predictions(searched=NOTHING, held_out=NOTHING),
            search_s=0.0,
        )
        return make_placed_plan(
            document,
            [deployment(name, llms, vllm) for name in names],
            workers,
            limits=EngineLimits(),
            profiles={},
            plan_id="plan-1",
            created_at_s=1.0,
            current=current,
        )

    return plan


def with_vllm(workers: Sequence[PlanWorker]) -> list[PlanWorker]:
    return [replace(each, hardware=replace(each.hardware, software={"vllm": "0.32.0"})) for each in workers]


def where(plan: ServingPlan) -> dict[tuple[str, ...], set[str]]:
    found: dict[tuple[str, ...], set[str]] = {}
    for assignment in plan.assignments:
        found.setdefault(assignment.worker_ids, set()).add(assignment.model)
    return found


def test_each_group_has_workers_of_its_own_and_the_times_of_its_profiles(make: Make) -> None:
    plan = make([("1x1", "ab"), ("2x1", "bc"), ("1x1", "")], v100s(4))
    assert find_violations(plan) == []
    assert plan.placement_id == "placement-1"
    assert sorted(map(sorted, where(plan).values())) == [["a", "b"], ["b", "c"]]
    (pipeline,) = {a.parallel for a in plan.assignments if a.model == "c"}
    assert (pipeline.pp, pipeline.tp) == (2, 1)
    assert {tuple(s.base_s for s in a.stage_latencies) for a in plan.assignments} == {(0.1,), (0.06, 0.05)}
    assert all(model.slo.e2e_s == pytest.approx(0.5) for model in plan.models)  # 5 times alone


shapes = st.sampled_from(["1x1", "2x1", "1x2"])
placements = st.lists(
    st.tuples(shapes, st.sets(st.sampled_from("abcdefgh"), min_size=1, max_size=4).map(sorted)), min_size=1, max_size=6
)


@settings(max_examples=60, deadline=None)
@given(before=placements, after=placements, llms=st.sets(st.sampled_from("abcdefgh")).map(sorted).map("".join))
def test_every_model_of_every_group_is_there_once_whatever_was_before(
    make: Make, before: Groups, after: Groups, llms: str
) -> None:
    workers = v100s(12, machines=2)
    current = make(before, workers, llms=llms)
    plan = make(after, workers, current=current, llms=llms)
    assert find_violations(plan) == []
    wanted = Counter((f"{shape}", frozenset(models)) for shape, models in after)
    got = Counter(
        (f"{a.parallel.pp}x{a.parallel.tp}", frozenset(models))
        for ids, models in where(plan).items()
        for a in [next(a for a in plan.assignments if a.worker_ids == ids)]
    )
    assert got == wanted
    machine = {worker.worker_id: worker.machine for worker in workers}
    assert all(len({machine[name] for name in ids}) == 1 for ids in where(plan))


@settings(max_examples=30, deadline=None)
@given(groups=placements, order=st.randoms(use_true_random=False))
def test_the_same_placement_in_another_order_moves_nothing(make: Make, groups: list[Any], order: Any) -> None:
    workers = v100s(12)
    current = make(groups, workers, llms="abcd")
    shuffled = list(groups)
    order.shuffle(shuffled)
    again = make(shuffled, workers, current=current, llms="abcd")
    assert sorted(again.assignments, key=str) == sorted(current.assignments, key=str)


def test_a_group_stays_with_most_of_its_models_and_newcomers_take_idle_workers(make: Make) -> None:
    workers = v100s(5)
    current = make([("1x1", "ab"), ("1x1", "cd"), ("1x1", "e")], workers)
    plan = make([("1x1", "cda"), ("1x1", "b"), ("1x1", "f")], workers, current=current)
    at = {frozenset(models): ids for ids, models in where(plan).items()}
    before = {frozenset(models): ids for ids, models in where(current).items()}
    assert at[frozenset("cda")] == before[frozenset("cd")]
    assert at[frozenset("b")] == before[frozenset("ab")]
    assert at[frozenset("f")] not in before.values()


def test_who_stays_keeps_its_blocks_while_there_is_room(make: Make) -> None:
    """Two large models leave nothing: only where the newcomer finds no room are those that are there sized anew."""
    workers = v100s(1, memory_gib=8)
    current = make([("1x1", "al")], workers, llms="l")
    (kept,) = (a for a in current.assignments if a.model == "l")
    left = make([("1x1", "l")], workers, current=current, llms="l")
    assert left.assignments[0].num_blocks == kept.num_blocks
    back = make([("1x1", "al")], workers, current=left, llms="l")
    assert next(a for a in back.assignments if a.model == "l").num_blocks == kept.num_blocks
    fuller = make([("1x1", "alb")], workers, current=current, llms="l")
    assert next(a for a in fuller.assignments if a.model == "l").num_blocks < kept.num_blocks
    assert [find_violations(plan) for plan in (left, back, fuller)] == [[], [], []]


def test_groups_that_keep_their_places_give_way_where_nothing_else_fits() -> None:
    """Two lone groups, one on each machine of two, and now a pair as well."""
    workers = v100s(4, machines=2)
    held = [
        HeldGroup(worker_ids=(f"worker-{index}",), shape=GroupShape(pp=1, op=1), models=frozenset(model))
        for index, model in ((0, "a"), (2, "b"))
    ]
    worker_groups = assign_workers(placed(("1x1", "a"), ("1x1", "b"), ("2x1", "c")).groups, workers, held=held)
    assert worker_groups is not None
    assert {worker.machine for worker in worker_groups[2]} in ({"host-0"}, {"host-1"})
    assert assign_workers(placed(("3x1", "a")).groups, workers) is None


@pytest.mark.parametrize(
    ("groups", "workers", "told"),
    [
        ([("1x1", "a")] * 3, v100s(2), "needs 3 workers with V100-16; of these there are 2 (all workers: 2 x V100-16"),
        ([("2x1", "a")], v100s(2, machines=2), "a group is of equal workers on one machine"),
        ([("1x1", "abc")], v100s(1, memory_gib=6), "lacks"),
    ],
)
def test_what_cannot_be_had_is_refused(make: Make, groups: Groups, workers: list[PlanWorker], told: str) -> None:
    with pytest.raises(FailedPreconditionError) as caught:
        make(groups, workers)
    assert told in str(caught.value)


def test_a_group_across_machines_is_planned_not_served(make: Make) -> None:
    link = NodeLink(name="InfiniBand HDR", latency_s=3e-5, bytes_per_s=2e10)
    with pytest.raises(FailedPreconditionError, match="2x1 do not fit 2 workers") as caught:
        make([("2x1", "a")], v100s(2, machines=2), across_nodes=link)
    assert "without across_nodes" in caught.value.hint


def test_a_group_on_devices_that_the_problem_does_not_have_is_named(make: Make) -> None:
    with pytest.raises(InvalidArgumentError, match="a group on H100"):
        make([("1x1@H100", "a")], v100s(1))


def test_groups_are_assigned_wherever_they_have_room() -> None:
    """Best fit puts a group of four on the machine of six, and then a group of three has no place."""
    workers = [replace(worker, machine="host-1" if index >= 8 else "host-0") for index, worker in enumerate(v100s(14))]
    groups = placed(("4x1", "a"), ("3x1", "b"), ("3x1", "c"), ("4x1", "d")).groups
    worker_groups = assign_workers(groups, workers)
    assert worker_groups is not None
    assert all(len({worker.machine for worker in group}) == 1 for group in worker_groups)
    assert len({worker.worker_id for group in worker_groups for worker in group}) == 14


def test_a_model_that_nobody_knows_how_to_serve_is_named(make: Make) -> None:
    with pytest.raises(InvalidArgumentError, match="'z', and nobody says where its checkpoint is"):
        make([("1x1", "az")], v100s(1), names="a")


def test_a_group_gets_workers_with_the_engine_of_its_model(make: Make) -> None:
    first, second, third = v100s(3)
    plan = make([("1x1", "a"), ("1x1", "b")], [*with_vllm([first]), second, third], llms="b", vllm="a")
    assert where(plan) == {("worker-0",): {"a"}, ("worker-1",): {"b"}}
    assert find_violations(plan) == []
    with pytest.raises(FailedPreconditionError, match=r"needs 2 workers that compute with headway; of these .* 1\."):
        make([("1x1", "a"), ("1x1", "b")], [*with_vllm([first]), second], llms="ab")


@pytest.mark.parametrize(
    ("group", "message"),
    [(("1x1", "ab"), "'a', 'b' on one group, and a model on vllm"), (("1x2", "a"), "2 workers together.*lacks groups")],
)
def test_a_group_that_vllm_cannot_serve_is_refused(make: Make, group: tuple[str, str], message: str) -> None:
    with pytest.raises(FailedPreconditionError, match=message):
        make([group], with_vllm(v100s(2)), llms="b", vllm="a")
