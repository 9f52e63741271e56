"""A plan: the best placement found, what to expect of it, and the alternatives. Pure but for the time it takes."""

import time
from collections.abc import Callable, Mapping

from headway.core.codec import to_document
from headway.core.errors import CancelledError
from headway.core.placement import Placement
from headway.core.placement_problem import PlacementProblem
from headway.core.placement_search import BestPlacement
from headway.core.plan.placement import (
    PLACEMENT_PLAN_VERSION,
    PlacementAlternative,
    PlacementPlan,
    Predictions,
)
from headway.core.search_progress import SearchProgress
from headway.planner.placement.planning.baselines import BASELINES, other_policy
from headway.planner.placement.planning.buckets import buckets_of
from headway.planner.placement.planning.candidate import CandidatePlacement
from headway.planner.placement.planning.counterfactual import instead
from headway.planner.placement.planning.findings import findings_of
from headway.planner.placement.planning.prediction import predict, rules_of
from headway.planner.placement.planning.reasons import why_not
from headway.planner.placement.search import BetterPlacement, SearchOptions, search_kinds
from headway.planner.placement.search.parallel import SearchExecutor
from headway.planner.placement.simulator import compile_kernels
from headway.planner.placement.workload import Workload
from headway.planner.placement.workloads.source import make_workloads

Report = Callable[[SearchProgress], None]
ShouldStop = Callable[[], bool]


def make_placement_plan(
    problem: PlacementProblem,
    files: Mapping[str, bytes],
    *,
    plan_id: str,
    created_at_s: float,
    report: Report,
    should_stop: ShouldStop,
    executor: SearchExecutor | None = None,
    resume: Placement | None = None,
) -> PlacementPlan:
    """Searches until done or `should_stop`; a plan that was stopped has the best so far.

    A baseline that keeps more objectives on the requests that are searched takes the place of what the search found.

    Args:
        files: content of those that the problem's workload names.
        report: hears of every phase, and of every better placement.
        executor: see `search_kinds`.
        resume: a placement to go on from: the best of the same search, which ended early.

    Raises:
        InvalidArgumentError: as `make_workloads` and `search_kinds`.
        FailedPreconditionError: no model can be served in time on any group; says the best that can be had.
        CancelledError: stopped before anything was found.
    """
    report(SearchProgress(phase="making the requests"))
    workloads = make_workloads(problem, files)
    report(SearchProgress(phase="compiling the simulator"))
    compile_kernels(rules_of(problem), generation=any(model.generates for model in problem.models))
    began_s = time.perf_counter()
    placement, is_complete = search_placement(
        problem, workloads.searched, report=report, should_stop=should_stop, executor=executor, resume=resume
    )
    search_s = time.perf_counter() - began_s
    if not placement.groups and not is_complete:
        raise CancelledError("The search was stopped before it found a placement.", hint="Give it more time.")
    found = CandidatePlacement(name="search", placement=placement, predictions=predict(problem, placement, workloads))
    others = []
    for baseline in BASELINES:
        if baseline.is_quick or not should_stop():
            report(SearchProgress(phase=f"comparing with {baseline.name}"))
            others.append(baseline.weigh(problem, workloads))
    best = max((found, *(each for each in others if each.placement is not None)), key=_searched)
    assert best.placement is not None
    rest = [each for each in (found, *others) if each is not best]
    if (otherwise := other_policy(best, problem, workloads)) is not None:
        rest.append(otherwise)
    return PlacementPlan(
        version=PLACEMENT_PLAN_VERSION,
        plan_id=plan_id,
        created_at_s=created_at_s,
        problem=problem,
        placement=best.placement,
        buckets=buckets_of(best.placement),
        predictions=best.predictions,
        alternatives=tuple(_alternative(each, problem, best.predictions) for each in rest),
        findings=findings_of(problem, best.placement, workloads.searched),
        search_s=search_s,
        is_complete=is_complete,
    )


def search_placement(
    problem: PlacementProblem,
    workload: Workload,
    *,
    report: Report,
    should_stop: ShouldStop,
    options: SearchOptions | None = None,
    executor: SearchExecutor | None = None,
    resume: Placement | None = None,
) -> tuple[Placement, bool]:
    """Finds the best placement, and whether the search came to its end. Models that nothing serves are left out."""

    def hear(better: BetterPlacement) -> None:
        best = BestPlacement(placement=better.placement, attainment=better.attainment)
        report(SearchProgress(phase="searching", best=to_document(best), best_figure=str(best)))

    found = search_kinds(
        problem.placed_models,
        problem.kinds,
        workload=workload,
        rules=rules_of(problem),
        options=options or SearchOptions(partial=True, seed=problem.workload.seed),
        report=hear,
        should_stop=should_stop,
        executor=executor,
        known=() if resume is None else (resume,),
    )
    return found.placement, found.complete


def try_instead(plan: PlacementPlan, text: str, files: Mapping[str, bytes]) -> PlacementAlternative:
    """Simulates another placement on the plan's requests.

    Raises:
        InvalidArgumentError: as `instead`; a file is missing.
        FailedPreconditionError: a file is not what it was.
    """
    workloads = make_workloads(plan.problem, files)
    other = instead(text, problem=plan.problem, placement=plan.placement, workload=workloads.searched)
    candidate = CandidatePlacement(name=text, placement=other, predictions=predict(plan.problem, other, workloads))
    return _alternative(candidate, plan.problem, plan.predictions)


def _alternative(candidate: CandidatePlacement, problem: PlacementProblem, chosen: Predictions) -> PlacementAlternative:
    reasons = why_not(problem, chosen, other=candidate.predictions, placement=candidate.placement)
    return PlacementAlternative(
        name=candidate.name,
        placement=candidate.placement,
        predictions=candidate.predictions,
        why_not=(*candidate.remarks, *reasons),
    )


def _searched(candidate: CandidatePlacement) -> float:
    return candidate.predictions.searched.attainment
