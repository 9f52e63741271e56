"""Makes a training plan: searches, and says what was found. Pure."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from headway.core.cost.costs import Costs, graph_time
from headway.core.errors import CancelledError
from headway.core.plan.serving import plan_id_at
from headway.core.plan.training import TrainingPlan
from headway.core.search_progress import SearchProgress
from headway.core.training_layout import TrainingLayout
from headway.core.training_search import METHODS, check_method
from headway.core.units import format_count, format_duration
from headway.planner.training.alpa import AlpaSearch
from headway.planner.training.baselines import BASELINES, narrowed
from headway.planner.training.explanation import explain
from headway.planner.training.fixed import lay_out
from headway.planner.training.graph_reasons import with_methods
from headway.planner.training.graph_search import GraphSearch, Pipeline
from headway.planner.training.misfit import misfit_of
from headway.planner.training.problem import TrainingProblem
from headway.planner.training.slice_search import FoundSlices, SliceSearch

FIXED = "fixed"
GRAPHPIPE, TERAPIPE, AUTO = "graphpipe", "terapipe", "auto"
Report = Callable[[SearchProgress], None]
ToDocument = Callable[[TrainingPlan], dict[str, object]]


@dataclass(slots=True, kw_only=True)
class _Planning:
    """One call of a planner: what it makes becomes a plan with this name and this clock."""

    problem: TrainingProblem
    costs: Costs
    method: str
    nonce: str
    began_s: float = field(default_factory=time.monotonic)
    began_cpu_s: float = field(default_factory=time.process_time)
    now_s: float = field(default_factory=time.time)

    def plan(self, found: Pipeline, *, is_complete: bool = True) -> TrainingPlan:
        graph = found.step.training.graph
        return TrainingPlan(
            plan_id=plan_id_at(self.now_s, nonce=self.nonce),
            created_at_s=self.now_s,
            model=self.problem.model,
            graph_hash=self.problem.graph.content_hash,
            cluster=self.problem.cluster,
            batch=self.problem.batch,
            num_micro_batches=found.num_micro_batches,
            slices=found.tokens if isinstance(found, FoundSlices) else (),
            precision=self.problem.precision.value,
            method=self.method,
            flops=float(graph.flops * found.num_micro_batches),
            stages=found.stages,
            iteration_s=found.iteration_s,
            relative_error=graph_time(graph, self.costs).relative_error,
            search_s=time.monotonic() - self.began_s,
            search_cpu_s=time.process_time() - self.began_cpu_s,
            is_complete=is_complete,
        )


def make_training_plan(
    problem: TrainingProblem,
    costs: Costs,
    *,
    method: str = METHODS[0],
    explains: bool = False,
    nonce: str,
    report: Report,
    should_stop: Callable[[], bool],
    to_document: ToDocument,
) -> TrainingPlan:
    """Searches the plan with the shortest iteration.

    Args:
        method: one of `METHODS`.
        explains: whether other ways to train are priced too, and what would change the choice.
        nonce: part of the plan's id.
        to_document: makes what is reported as the best so far.

    Raises:
        InvalidArgumentError: no such method.
        FailedPreconditionError: nothing fits into the memory of the devices, or the method is not for such a model.
        CancelledError: it was stopped before it found anything.
    """
    problem = _of_method(problem, method)
    planning = _Planning(problem=problem, costs=costs, method=method, nonce=nonce)

    def tell(found: Pipeline) -> None:
        report(
            SearchProgress(
                phase=f"searching: {format_count(found.num_micro_batches, 'micro-batch', 'es')}",
                best=to_document(planning.plan(found, is_complete=False)),
                best_figure=f"{format_duration(found.iteration_s)} an iteration",
            )
        )

    report(SearchProgress(phase=f"searching on {problem.cluster.label}"))
    searching = _search(problem, costs, method)
    best = searching.run(report=tell, should_stop=should_stop)
    if best is None:
        if should_stop():
            raise CancelledError("The search was stopped before it found a plan.", hint="Give it more time.")
        raise misfit_of(problem, costs).error()
    plan = planning.plan(best, is_complete=not should_stop())
    if explains and not should_stop():
        report(SearchProgress(phase="pricing other ways to train"))
        plan = explain(problem, costs, best, should_stop=should_stop).of(plan)
    return plan if isinstance(searching, AlpaSearch) else with_methods(plan, searching)


def _search(problem: TrainingProblem, costs: Costs, method: str) -> AlpaSearch | GraphSearch | SliceSearch:
    nodes = problem.cluster.groups[0]
    if method == AUTO:
        return GraphSearch.with_slices(problem, nodes, costs)
    if method == GRAPHPIPE:
        return GraphSearch(problem, nodes, costs)
    return (SliceSearch if method == TERAPIPE else AlpaSearch)(problem, nodes, costs)


def fill_training_layout(problem: TrainingProblem, costs: Costs, layout: TrainingLayout, *, nonce: str) -> TrainingPlan:
    """Makes the plan that a user gave; see `headway.planner.training.fixed.lay_out` for what is wrong with one."""
    planning = _Planning(problem=problem, costs=costs, method=FIXED, nonce=nonce)
    return planning.plan(lay_out(problem, costs, layout))


def _of_method(problem: TrainingProblem, method: str) -> TrainingProblem:
    check_method(method)
    return narrowed(problem, BASELINES[method]) if method in BASELINES else problem
