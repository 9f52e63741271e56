"""Finds how far a parameter can go while enough requests still meet their objectives: bisection over the search."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from headway.core.codec import to_document
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.frontier import Frontier, FrontierPoint, Question
from headway.core.placement_problem import PlacementProblem
from headway.core.search_progress import SearchProgress
from headway.core.workload_spec import WorkloadKind, WorkloadSpec, parse_workload_spec
from headway.planner.placement.planning.baselines import REPLICATION
from headway.planner.placement.planning.plan import Report, ShouldStop, search_placement
from headway.planner.placement.planning.prediction import predict, rules_of
from headway.planner.placement.search import SearchOptions
from headway.planner.placement.simulator import compile_kernels
from headway.planner.placement.workload import Workload
from headway.planner.placement.workloads.source import Workloads, make_workloads, with_slos

_PRECISION = 1.05
"""Bisection ends where two values are nearer to each other than this factor; devices are counted exactly."""
_MOST_DOUBLINGS = 8


def find_frontier(
    problem: PlacementProblem,
    files: Mapping[str, bytes],
    *,
    question: Question,
    target: float,
    report: Report,
    should_stop: ShouldStop,
    resume: Frontier | None = None,
) -> Frontier:
    """Finds the extreme value that attains the target, and what was tried on the way to it.

    From the problem's own value on, it is doubled or halved until one attains the target and one does not, and then
    bisected. Attainment is that on requests that were held out.

    Args:
        resume: what the same search had found when it ended early; its points are not tried again.

    Raises:
        InvalidArgumentError: as `make_workloads`; the target is no share; the workload has no CV to vary.
    """
    if not 0 < target <= 1:
        raise InvalidArgumentError(
            f"The attainment to keep should be above 0 and at most 1, not {target}.",
            hint="0.99 is usual.",
            field="target",
        )
    compile_kernels(rules_of(problem), generation=any(model.generates for model in problem.models))
    axis = _AXES[question]
    evaluate = _Evaluation(problem, files, question, target, report, should_stop)
    evaluate.points |= {point.value: point for point in resume.points} if resume is not None else {}
    _bracket_and_bisect(evaluate, start=axis.start(problem), axis=axis)
    return evaluate.frontier(is_complete=not should_stop())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """The parameter that is varied.

    Attributes:
        is_harder: whether more of it is harder to attain.
        is_whole: whether it is counted.
        sets_slos: of every request, also of those that have objectives of their own.
    """

    start: Callable[[PlacementProblem], float]
    at: Callable[[PlacementProblem, float], PlacementProblem]
    is_harder: bool
    is_whole: bool = False
    sets_slos: bool = False

    def extreme(self, values: list[float]) -> float | None:
        """The hardest of the values that attain the target."""
        if not values:
            return None
        return max(values) if self.is_harder else min(values)


class _Evaluation:
    """Evaluates attainment at a value, each only once."""

    def __init__(
        self,
        problem: PlacementProblem,
        files: Mapping[str, bytes],
        question: Question,
        target: float,
        report: Report,
        should_stop: ShouldStop,
    ) -> None:
        self._problem = problem
        self._files = files
        self._question = question
        self._axis = _AXES[question]
        self._target = target
        self._report = report
        self.should_stop = should_stop
        self.points: dict[float, FrontierPoint] = {}

    def attains(self, value: float) -> bool:
        if value not in self.points:
            self.points[value] = self._point(value)
            if not self.should_stop():  # else its search was cut short, and nobody should go on from that
                self._tell(value)
        return self.points[value].attainment >= self._target

    def frontier(self, *, is_complete: bool) -> Frontier:
        """The frontier as far as it is known."""
        points = tuple(sorted(self.points.values(), key=lambda point: point.value))
        return Frontier(
            question=self._question,
            target=self._target,
            points=points,
            best=self._axis.extreme([point.value for point in points if point.attainment >= self._target]),
            replication_best=self._axis.extreme([point.value for point in points if point.replication >= self._target]),
            is_complete=is_complete,
        )

    def _tell(self, value: float) -> None:
        known = self.frontier(is_complete=False)
        figure = "" if known.best is None else f"{known.best:g} {self._question}"
        self._report(SearchProgress(phase=f"tried {value:g}", best=to_document(known), best_figure=figure))

    def _point(self, value: float) -> FrontierPoint:
        problem = self._axis.at(self._problem, value)
        workloads = make_workloads(problem, self._files)
        if self._axis.sets_slos:
            workloads = Workloads(
                searched=_scaled(workloads.searched, problem), held_out=_scaled(workloads.held_out, problem)
            )

        def hear(progress: SearchProgress) -> None:
            self._report(SearchProgress(phase=f"trying {value:g}: {progress.best_figure}"))

        options = replace(SearchOptions.QUICK, partial=True, seed=problem.workload.seed)
        try:
            placement, _ = search_placement(
                problem, workloads.searched, report=hear, should_stop=self.should_stop, options=options
            )
        except FailedPreconditionError:  # nobody can be served in time
            return FrontierPoint(value=value, attainment=0.0, replication=0.0, groups="")
        found = predict(problem, placement, workloads)
        replicated = REPLICATION.weigh(problem, workloads).predictions
        best = max((found, replicated), key=lambda each: each.searched.attainment)
        return FrontierPoint(
            value=value,
            attainment=best.held_out.attainment,
            replication=replicated.held_out.attainment,
            groups=placement.shapes,
        )


def _bracket_and_bisect(evaluate: _Evaluation, *, start: float, axis: _Axis) -> None:
    factor = 2.0 if axis.is_harder == evaluate.attains(start) else 0.5
    kept, passed = start, start
    for _ in range(_MOST_DOUBLINGS):
        if evaluate.should_stop():
            return
        kept, passed = passed, passed * factor
        if axis.is_whole:
            passed = max(1.0, math.floor(passed))
        if evaluate.attains(passed) != evaluate.attains(start) or passed == kept:
            break
    low, high = sorted((kept, passed))
    is_low = evaluate.attains(low)
    if is_low == evaluate.attains(high):
        return
    while not evaluate.should_stop() and not _is_near(low, high, axis):
        middle = float((low + high) // 2) if axis.is_whole else math.sqrt(low * high)
        low, high = (middle, high) if evaluate.attains(middle) == is_low else (low, middle)


def _is_near(low: float, high: float, axis: _Axis) -> bool:
    return high - low <= 1 if axis.is_whole else high / low <= _PRECISION


def _scaled(workload: Workload, problem: PlacementProblem) -> Workload:
    return with_slos(replace(workload, slo_s=np.full(len(workload), np.nan)), problem)


def _at_devices(problem: PlacementProblem, value: float) -> PlacementProblem:
    return replace(problem, cluster=replace(problem.cluster, num_devices=int(value), nodes=()))


def _at_slo(problem: PlacementProblem, value: float) -> PlacementProblem:
    models = tuple(replace(model, slo_s=None, ttft_s=None, tpot_s=None) for model in problem.models)
    return replace(problem, models=models, workload=replace(problem.workload, slo_scale=value))


def _rate_of(problem: PlacementProblem) -> float:
    spec = parse_workload_spec(problem.workload.spec)
    return spec.options.get("rate_scale", 1.0) if spec.kind.has_file else spec.options["rate"]


def _at_rate(problem: PlacementProblem, value: float) -> PlacementProblem:
    factor = value / _rate_of(problem)

    def vary(spec: WorkloadSpec) -> WorkloadSpec:
        name = "rate_scale" if spec.kind.has_file else "rate"
        return replace(spec, options={**spec.options, name: factor * spec.options.get(name, 1.0)})

    return _with_specs(problem, vary)


def _cv_of(problem: PlacementProblem) -> float:
    spec = parse_workload_spec(problem.workload.spec)
    return spec.options.get("cv_scale" if spec.kind.has_file else "cv", 1.0)


def _at_cv(problem: PlacementProblem, value: float) -> PlacementProblem:
    factor = value / _cv_of(problem)

    def vary(spec: WorkloadSpec) -> WorkloadSpec:
        kind = WorkloadKind.GAMMA if spec.kind is WorkloadKind.POISSON else spec.kind
        name = "cv_scale" if kind.has_file else "cv"
        return replace(spec, kind=kind, options={**spec.options, name: factor * spec.options.get(name, 1.0)})

    return _with_specs(problem, vary)


def _with_specs(problem: PlacementProblem, vary: Callable[[WorkloadSpec], WorkloadSpec]) -> PlacementProblem:
    source = problem.workload
    varied = [str(vary(parse_workload_spec(text))) if text else "" for text in (source.spec, source.held_out)]
    return replace(problem, workload=replace(source, spec=varied[0], held_out=varied[1]))


_AXES = {
    Question.DEVICES: _Axis(
        start=lambda problem: float(problem.cluster.num_devices), at=_at_devices, is_harder=False, is_whole=True
    ),
    Question.RATE: _Axis(start=_rate_of, at=_at_rate, is_harder=True),
    Question.CV: _Axis(start=_cv_of, at=_at_cv, is_harder=True),
    Question.SLO: _Axis(start=lambda problem: problem.workload.slo_scale, at=_at_slo, is_harder=False, sets_slos=True),
}
