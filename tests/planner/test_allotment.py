"""Models that are to be served on different terms: in a layout, by roles, on some pools."""

import random
from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.cluster import Hardware, PlanWorker
from headway.core.errors import FailedPreconditionError
from headway.core.parallel_config import ParallelConfig
from headway.core.plan.serving import EngineLimits, ModelDeployment, Role, ServingPlan
from headway.planner.certify.certificate import find_violations
from headway.planner.serving.allotment import allot

TP2 = ParallelConfig(tp=2)
HARDWARE = Hardware(device="cpu", name="Test CPU", num_threads=1, memory_bytes=2**30)


def pool_of(worker: PlanWorker, pool: str, *, machine: str = "") -> PlanWorker:
    return replace(worker, pool=pool, machine=machine)


def homes(plan: ServingPlan) -> dict[str, list[tuple[str, ...]]]:
    """The groups of each model."""
    found = defaultdict(list)
    for assignment in plan.assignments:
        found[assignment.model].append(assignment.worker_ids)
    return dict(found)


def test_each_model_has_its_own_layout(plan_for: Any, make_model: Any, make_worker: Any) -> None:
    models = [make_model("small"), replace(make_model("wide"), parallel=TP2)]
    workers = [make_worker(f"worker-{index}") for index in range(4)]
    plan = plan_for(models, workers)
    assert homes(plan) == {"small": [("worker-2",), ("worker-3",)], "wide": [("worker-0", "worker-1")]}
    assert plan.models == tuple(models)
    assert find_violations(plan) == []
    assert plan_for(models, workers, current=plan).assignments == plan.assignments
    other = [replace(models[0], parallel=TP2), models[1]]
    assert {each.parallel for each in plan_for(other, workers).assignments} == {TP2}


def test_a_group_stays_on_one_machine(plan_for: Any, make_model: Any, make_worker: Any) -> None:
    models = [make_model("small"), replace(make_model("wide"), parallel=TP2, max_replicas=1)]
    workers = [
        pool_of(make_worker(f"worker-{index}"), "", machine=name) for index, name in enumerate(("a", "b", "b", "c"))
    ]
    assert homes(plan_for(models, workers))["wide"] == [("worker-1", "worker-2")]


def test_groups_stay_whole_where_fewer_workers_are_left_for_them(
    plan_for: Any, make_model: Any, make_worker: Any
) -> None:
    """In whichever order workers come: leases tell of them by when they started."""
    wide = replace(make_model("wide"), parallel=TP2)
    workers = [
        pool_of(make_worker(f"cell-{index // 2}-{index % 2}"), "", machine=f"{index // 2}") for index in range(12)
    ]
    random.Random(3).shuffle(workers)
    before = plan_for([make_model("small"), wide], workers)
    after = plan_for([make_model("small"), wide, make_model("other")], workers, current=before)
    assert len(homes(before)["wide"]) == 3
    assert len(homes(after)["wide"]) == 2
    for plan in (before, after):
        assert all(first[:-1] == second[:-1] for first, second in homes(plan)["wide"]), "each in one cell"
    assert set(homes(after)["wide"]) < set(homes(before)["wide"])
    assert set(homes(after)["small"]) <= set(homes(before)["small"])


def test_a_group_more_takes_one_worker_of_each_of_several_models(
    plan_for: Any, make_model: Any, make_worker: Any
) -> None:
    """And not all that one of them has, which its neighbours may be."""
    workers = [pool_of(make_worker(f"worker-{index}"), "", machine=f"{index}") for index in range(24)]
    models = [make_model(f"small-{index}") for index in range(4)]
    wide = [replace(make_model(f"wide-{index}"), parallel=ParallelConfig(tp=2, pp=2)) for index in range(3)]
    before = plan_for([*models, *wide[:2]], workers)
    after = plan_for([*models, *wide], workers, current=before)
    assert [len(homes(before)[model.name]) for model in models] == [4, 4, 4, 4]
    assert [len(homes(after)[model.name]) for model in models] == [3, 3, 3, 3]
    assert len(homes(after)["wide-2"]) == 1
    for model in [*models, *wide[:2]]:
        assert set(homes(after)[model.name]) <= set(homes(before)[model.name])


def test_what_some_models_give_up_goes_to_others_before_what_anyone_keeps(
    plan_for: Any, make_model: Any, make_worker: Any
) -> None:
    workers = [pool_of(make_worker(f"worker-{index}"), "", machine=f"{index}") for index in range(48)]
    models = [
        make_model("small"),
        replace(make_model("wide"), parallel=ParallelConfig(tp=2, pp=2)),
        replace(make_model("long"), parallel=ParallelConfig(pp=2)),
        replace(make_model("newcomer"), parallel=TP2),
    ]
    before = plan_for(models[:3], workers)
    after = plan_for(models, workers, current=before)
    assert [len(homes(before)[model.name]) for model in models[:3]] == [16, 4, 8]
    assert [len(homes(after)[model.name]) for model in models] == [12, 3, 6, 6]
    for model in models[:3]:
        assert set(homes(after)[model.name]) < set(homes(before)[model.name])


def test_models_are_served_by_their_pools_only(plan_for: Any, make_model: Any, make_worker: Any) -> None:
    workers = [pool_of(make_worker(f"{pool}-{index}"), pool) for pool in ("h100", "l4") for index in range(3)]
    models = [
        replace(make_model("chat"), pools=("h100",)),
        make_model("any"),
        replace(make_model("code"), pools=("l4",)),
    ]
    plan = plan_for(models, workers)
    assert all(worker_id.startswith("h100") for (worker_id,) in homes(plan)["chat"])
    assert all(worker_id.startswith("l4") for (worker_id,) in homes(plan)["code"])
    assert Counter(each.model for each in plan.assignments) == {"chat": 2, "any": 2, "code": 2}
    assert find_violations(plan) == []

    alone = plan_for(models[:1], workers)
    assert {worker_id for (worker_id,) in homes(alone)["chat"]} == {"h100-0", "h100-1", "h100-2"}
    assert len(alone.workers) == 6, "the plan knows workers that it has nothing for"
    with pytest.raises(FailedPreconditionError, match=r"pools that may serve 'chat': a100.*The pools are h100, l4"):
        plan_for([replace(models[0], pools=("a100",)), models[1]], workers)


def test_a_model_with_roles_has_workers_of_its_own(plan_for: Any, make_model: Any, make_worker: Any) -> None:
    models = [make_model("plain"), replace(make_model("split"), prefill_workers=1, decode_workers=2)]
    workers = [make_worker(f"worker-{index}") for index in range(5)]
    plan = plan_for(models, workers)
    roles = Counter((each.model, each.role) for each in plan.assignments)
    assert roles == {("split", Role.PREFILL): 1, ("split", Role.DECODE): 2, ("plain", Role.BOTH): 2}
    assert find_violations(plan) == []
    with pytest.raises(FailedPreconditionError, match=r"'plain' 1; 'split' 3. There are 3"):
        plan_for(models, workers[:3])


def test_one_whose_layout_is_open_gets_the_workers_that_it_turns_out_to_need(
    plan_for: Any, make_model: Any, make_worker: Any
) -> None:
    large = make_model("large", num_layers=64)
    workers = [make_worker(f"worker-{index}", memory_bytes=1_000_000_000) for index in range(4)]
    with pytest.raises(FailedPreconditionError, match="'large' fits no worker"):
        plan_for([large], workers[:1])
    models = [large, replace(make_model("single"), parallel=ParallelConfig())]
    plan = plan_for(models, workers)
    assert find_violations(plan) == []
    assert {each.parallel.num_ranks for each in plan.assignments if each.model == "large"} == {2}


def test_a_plan_that_breaks_the_terms_is_not_certified(plan_for: Any, make_model: Any, make_worker: Any) -> None:
    plan = plan_for([make_model("chat")], [make_worker("worker-0")])
    for changes, told in (
        ({"parallel": TP2}, "'chat' is to have tp 2"),
        ({"pools": ("h100", "a100")}, "worker-0 is of no pool, and 'chat' is for h100 and a100"),
        ({"prefill_workers": 1, "decode_workers": 1}, "has 0 groups for prefill, and is to have 1"),
    ):
        broken = replace(plan, models=(replace(plan.models[0], **changes),))
        assert any(told in violation for violation in find_violations(broken)), find_violations(broken)


@pytest.mark.parametrize("own", ["a", "b"])
def test_workers_that_only_some_may_use_are_not_made_up_for_twice(make_model: Any, make_worker: Any, own: str) -> None:
    """Whichever pool comes first: what `wide` alone may use counts before it gets any of what both may use."""
    [shared] = {"a", "b"} - {own}
    workers = [pool_of(make_worker(f"{pool}-{index}"), pool) for pool in "ab" for index in range(8)]
    models = [replace(make_model("small"), pools=(shared,)), replace(make_model("wide"), parallel=TP2)]
    small, wide = _allot(models, workers)
    assert {worker.pool for worker in small.workers} == {shared}
    assert len(small.workers) == 8
    assert {worker.pool for worker in wide.workers} == {own}


@settings(max_examples=60, deadline=None)
@given(
    terms=st.lists(
        st.tuples(st.sampled_from([1, 2, 3]), st.sets(st.sampled_from("abc"), min_size=1), st.integers(1, 2)),
        min_size=2,
        max_size=4,
        unique_by=lambda each: (each[0], frozenset(each[1])),
    ),
    pools=st.lists(st.sampled_from("abc"), min_size=1, max_size=8),
)
def test_workers_are_found_wherever_there_are_any(
    make_model: Any, terms: list[tuple[int, set[str], int]], pools: list[str]
) -> None:
    """Against trying all ways to seat the groups."""
    models = [
        replace(
            make_model(f"model-{index}"),
            parallel=ParallelConfig(tp=size),
            pools=tuple(sorted(of)),
            min_replicas=num,
            max_replicas=num,
        )
        for index, (size, of, num) in enumerate(terms)
    ]
    workers = [
        PlanWorker(worker_id=f"worker-{index}", hardware=HARDWARE, pool=pool) for index, pool in enumerate(pools)
    ]
    groups = [(size, of) for size, of, num in terms for _ in range(num)]
    if not can_be_seated(groups, Counter(pools)):
        with pytest.raises(FailedPreconditionError):
            _allot(models, workers)
        return
    allotted = _allot(models, workers)
    names = [worker.worker_id for each in allotted for worker in each.workers]
    assert len(names) == len(set(names))
    for each in allotted:
        least = sum(size * num for (size, _, num), model in zip(terms, models, strict=True) if model in each.models)
        assert len(each.workers) == least
        assert {worker.pool for worker in each.workers} <= each.terms.pools


def _allot(models: list[ModelDeployment], workers: list[PlanWorker]) -> Any:
    return allot(models, workers, limits=EngineLimits(), current=None)


def can_be_seated(groups: list[tuple[int, set[str]]], room: Counter[str]) -> bool:
    if not groups:
        return True
    (size, pools), *others = groups
    return any(room[pool] >= size and can_be_seated(others, room - Counter({pool: size})) for pool in pools)
