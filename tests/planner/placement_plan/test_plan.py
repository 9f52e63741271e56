"""From a problem to a plan: what is chosen, what is said of the alternatives, and of what cannot be had."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from headway.core.codec import from_document
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.frontier import Frontier, Question
from headway.core.placement import GroupShape, PlacedGroup, Placement
from headway.core.placement_problem import PlacementProblem, ProblemModel, WorkloadSource
from headway.core.placement_search import BestPlacement
from headway.core.plan.placement import PlacementPlan
from headway.core.search_progress import SearchProgress
from headway.planner.certify.placement import find_placement_violations
from headway.planner.placement.planning.buckets import buckets_of
from headway.planner.placement.planning.frontier import find_frontier
from headway.planner.placement.planning.plan import make_placement_plan, try_instead

SOURCE = WorkloadSource(spec="gamma:rate=8,cv=3", duration_s=200.0)


def make(problem: PlacementProblem, *, stops: Callable[[], bool] = lambda: False) -> PlacementPlan:
    return make_placement_plan(
        problem, {}, plan_id="plan-1", created_at_s=1.0, report=lambda _: None, should_stop=stops
    )


@pytest.fixture(scope="module")
def plan(make_problem: Any) -> PlacementPlan:
    return make(make_problem(SOURCE, names=("a", "b", "c", "d"), num_devices=4))


def test_a_plan_beats_its_alternatives_where_it_was_searched(plan: PlacementPlan) -> None:
    assert plan.is_complete
    assert find_placement_violations(plan) == []
    names = {each.name for each in plan.alternatives}
    assert {"selective replication", "round robin", "Clockwork-style re-placement"} <= names
    for alternative in plan.alternatives:
        assert alternative.why_not
        if alternative.placement is not None:
            assert alternative.predictions.searched.attainment <= plan.predictions.searched.attainment


def test_searched_and_held_out_requests_are_not_the_same(plan: PlacementPlan) -> None:
    searched, held_out = plan.predictions.searched, plan.predictions.held_out
    assert [each.num_requests for each in searched.models] != [each.num_requests for each in held_out.models]


def test_trying_the_plan_itself_gives_what_it_predicts(plan: PlacementPlan) -> None:
    """The requests are made again bit for bit."""
    groups = plan.placement.groups
    everywhere = ";".join(
        f"{model}@" + ",".join(str(number) for number, group in enumerate(groups) if model in group.models)
        for model in "abcd"
    )
    assert try_instead(plan, f"models={everywhere}", {}).predictions == plan.predictions


def test_a_counterfactual_names_who_loses(plan: PlacementPlan) -> None:
    tried = try_instead(plan, "groups=1x1 models=a@0,1,2,3", {})
    assert tried.placement is not None
    assert tried.placement.shapes == "4 of 1x1"
    told = " ".join(tried.why_not)
    assert "fewer of the objectives" in told
    assert "It leaves out b, c, d" in told


def test_a_counterfactual_that_does_not_fit_says_so(plan: PlacementPlan) -> None:
    tried = try_instead(plan, "groups=1x1 models=a@0;b@0;c@0;d@0", {})
    assert any("Group 0 needs 8.0 GiB on a device" in reason for reason in tried.why_not)


@pytest.mark.parametrize(
    "text",
    ["", "groups=", "groups=2", "groups=0x1", "groups=8x8", "groups=2x1,2x1,2x1", "models=z@0", "models=a@9", "x=1"],
)
def test_a_counterfactual_that_cannot_be_read_is_refused(plan: PlacementPlan, text: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        try_instead(plan, text, {})
    assert caught.value.hint


def test_a_stopped_search_keeps_the_best_so_far(make_problem: Any) -> None:
    told: list[SearchProgress] = []
    stopped = make_placement_plan(
        make_problem(SOURCE, names=("a", "b", "c", "d"), num_devices=4),
        {},
        plan_id="plan-1",
        created_at_s=1.0,
        report=told.append,
        should_stop=lambda: any(progress.best for progress in told),
    )
    assert not stopped.is_complete
    assert stopped.placement.groups
    assert find_placement_violations(stopped) == []


def test_what_cannot_be_had_is_told_with_the_best_that_can(make_problem: Any, make_profile: Any) -> None:
    problem = make_problem(
        SOURCE,
        profiles=(
            make_profile("small", 0.1),
            make_profile("huge", 0.5, weight_gib=40.0),
            make_profile("slow", 2.0),
            make_profile("slow", 1.1, 1.1),
            make_profile("long", 0.1, 0.1, 0.1, 0.1),
        ),
        names=("a",),
    )
    models = (
        *problem.models,
        ProblemModel(name="h", architecture="huge"),
        ProblemModel(name="s", architecture="slow", slo_s=1.0),
        ProblemModel(name="l", architecture="long"),
    )
    told = make(replace(problem, models=models)).findings
    assert any("'h' fits nowhere" in finding and "40.0 GiB" in finding for finding in told)
    assert any("'s' cannot meet its objective" in finding and "scale for it is 1.00" in finding for finding in told)
    assert any("'l' has profiles from 4 devices on" in finding for finding in told)


def test_where_nothing_can_be_served_that_is_an_error_with_the_best(make_problem: Any) -> None:
    with pytest.raises(FailedPreconditionError) as caught:
        make(make_problem(SOURCE, slo_s=0.01))
    assert "0.1" in str(caught.value)


def test_buckets_are_groups_that_share_models() -> None:
    shape = GroupShape(pp=1, op=1)
    groups = [("a", "b"), ("c",), ("b", "d"), ()]
    placement = Placement(groups=tuple(PlacedGroup(shape=shape, models=models) for models in groups))
    buckets = buckets_of(placement)
    assert [(bucket.models, bucket.groups) for bucket in buckets] == [(("a", "b", "d"), (0, 2)), (("c",), (1,))]


def spoil(plan: PlacementPlan, **changes: Any) -> list[str]:
    return find_placement_violations(replace(plan, **changes))


def test_the_certifier_finds_what_is_wrong(plan: PlacementPlan) -> None:
    problem, groups = plan.problem, plan.placement.groups
    cluster = problem.cluster
    assert "version 9" in spoil(plan, version=9)[0]
    for changes, told in (
        ({"num_devices": 3}, "there are 3"),
        ({"memory_bytes": 1}, "of models on each device"),
        ({"device": "H100"}, "the cluster of H100"),
    ):
        spoilt = replace(problem, cluster=replace(cluster, **changes))
        assert any(told in violation for violation in spoil(plan, problem=spoilt))
    first = replace(groups[0], models=("stranger",))
    assert any("'stranger'" in each for each in spoil(plan, placement=Placement(groups=(first, *groups[1:]))))
    twice = replace(groups[0], models=groups[0].models * 2)
    assert any("twice" in each for each in spoil(plan, placement=Placement(groups=(twice, *groups[1:]))))
    odd = replace(groups[0], shape=GroupShape(pp=1, op=3))
    assert any("no profile" in each for each in spoil(plan, placement=Placement(groups=(odd,))))
    better = replace(plan.predictions, held_out=replace(plan.predictions.held_out, attainment=1.0))
    if plan.predictions.held_out.attainment < 1:
        assert any("do not add up" in each for each in spoil(plan, predictions=better))


def test_groups_that_span_nodes_are_found(plan: PlacementPlan) -> None:
    cluster = replace(plan.problem.cluster, num_devices=8, devices_per_node=3)
    shape = PlacedGroup(shape=GroupShape(pp=2, op=1), models=())
    for count, fits in ((3, True), (4, False)):
        changed = replace(
            plan, problem=replace(plan.problem, cluster=cluster), placement=Placement(groups=(shape,) * count)
        )
        assert any("without spanning them" in each for each in find_placement_violations(changed)) != fits


def frontier(problem: PlacementProblem, question: Question, target: float = 0.95) -> Frontier:
    return find_frontier(
        problem, {}, question=question, target=target, report=lambda _: None, should_stop=lambda: False
    )


@pytest.mark.parametrize("question", list(Question))
def test_the_frontier_lies_between_what_attains_and_what_does_not(make_problem: Any, question: Question) -> None:
    problem = make_problem(WorkloadSource(spec="gamma:rate=6,cv=2", duration_s=100.0), num_devices=2)
    found = frontier(problem, question)
    assert found.best is not None
    values = [point.value for point in found.points]
    assert values == sorted(set(values))
    is_harder = question in (Question.RATE, Question.CV)
    beyond = [
        point.attainment
        for point in found.points
        if (point.value > found.best if is_harder else point.value < found.best)
    ]
    assert all(attainment < 0.95 for attainment in beyond)
    nearest = min((value for value in values if value != found.best), key=lambda value: abs(np.log(value / found.best)))
    assert question is Question.DEVICES or max(nearest / found.best, found.best / nearest) <= 1.05**2


def test_a_frontier_that_was_stopped_goes_on_from_the_values_that_it_tried(make_problem: Any) -> None:
    problem = make_problem(WorkloadSource(spec="gamma:rate=6,cv=2", duration_s=100.0), num_devices=2)
    whole, told = frontier(problem, Question.RATE), list[SearchProgress]()

    def search(*, stop_after: int | None, resume: Frontier | None = None) -> Frontier:
        told.clear()
        return find_frontier(
            problem,
            {},
            question=Question.RATE,
            target=0.95,
            report=told.append,
            should_stop=lambda: sum(each.best is not None for each in told) == stop_after,
            resume=resume,
        )

    stopped = search(stop_after=3)
    assert not stopped.is_complete
    best = next(each.best for each in reversed(told) if each.best is not None)
    assert len(best["points"]) == 3
    resumed = search(stop_after=None, resume=from_document(Frontier, best))
    assert resumed == whole
    assert len([each for each in told if each.best is not None]) == len(whole.points) - 3


def test_a_search_goes_on_from_the_best_that_it_had(make_problem: Any) -> None:
    """Stopped as soon as it may be, it has what it was given, or better."""
    problem, told = make_problem(SOURCE, names=("a", "b", "c", "d"), num_devices=4), list[SearchProgress]()
    best = make(problem).placement
    resumed = make_placement_plan(
        problem,
        {},
        plan_id="plan-1",
        created_at_s=1.0,
        report=told.append,
        should_stop=lambda: bool(told) and told[-1].phase == "searching",
        resume=best,
    )
    assert not resumed.is_complete
    first = next(each.best for each in told if each.best is not None)
    assert from_document(BestPlacement, first).placement == best
    assert resumed.predictions.searched.attainment >= make(problem).predictions.searched.attainment


def test_the_frontier_of_rate_agrees_with_what_one_device_can_do(make_problem: Any, make_profile: Any) -> None:
    """One device that takes 0.1 s, and objectives so loose that only its capacity counts: 10 requests/s."""
    problem = make_problem(
        WorkloadSource(spec="poisson:rate=2", duration_s=2000.0, slo_scale=200.0),
        names=("a",),
        profiles=(make_profile("small", 0.1),),
        num_devices=1,
    )
    assert frontier(problem, Question.RATE, target=0.99).best == pytest.approx(10, rel=0.08)
