"""Makes a training plan: searches, and says what was found. Pure."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from headway.core.cost.checked import CheckedCosts
from headway.core.cost.costs import Costs, graph_time
from headway.core.errors import CancelledError
from headway.core.plan.serving import plan_id_at
from headway.core.plan.training import TrainingPlan
from headway.core.search_progress import SearchProgress
from headway.core.training_layout import TrainingLayout
from headway.core.training_search import METHODS, check_method
from headway.core.units import format_count, format_duration
from headway.planner.intra.ilp import Solver
from headway.planner.training.alpa import AlpaSearch, Found, mesh_pricing
from headway.planner.training.baselines import BASELINES, narrowed
from headway.planner.training.candidates import CandidateExecutor
from headway.planner.training.exact import refine
from headway.planner.training.explanation import explain
from headway.planner.training.fixed import lay_out
from headway.planner.training.graph_cut import FoundGraph
from headway.planner.training.graph_reasons import with_methods
from headway.planner.training.graph_search import GraphSearch, Pipeline
from headway.planner.training.misfit import misfit_of
from headway.planner.training.narrower import best_with_fewer_splits
from headway.planner.training.problem import TrainingProblem
from headway.planner.training.slice_search import FoundSlices, SliceSearch
from headway.planner.training.stages import StageMaker

FIXED = "fixed"
_REFINING_S = (1.0, 20.0)  # of processor time, at least and at most
_REFINING_SHARE = 0.2  # of the search's
_TOLD_GAIN = 1e-4
GRAPHPIPE, TERAPIPE, AUTO = "graphpipe", "terapipe", "auto"
Report = Callable[[SearchProgress], None]
ToDocument = Callable[[TrainingPlan], dict[str, object]]


@dataclass(slots=True, kw_only=True)
class _Planning:
    """One call of a planner: what it makes becomes a plan with this name and this clock.

    Attributes:
        elsewhere_cpu_s: processor time of candidates that other processes tried.
    """

    problem: TrainingProblem
    costs: Sequence[Costs]
    method: str
    nonce: str
    began_s: float = field(default_factory=time.monotonic)
    began_cpu_s: float = field(default_factory=time.process_time)
    now_s: float = field(default_factory=time.time)
    elsewhere_cpu_s: float = 0.0

    def refined(self, found: Pipeline, solver: Solver, *, report: Report, should_stop: Callable[[], bool]) -> Pipeline:
        """The same pipeline, its stages solved once more within a share of the search's time; slices, and stages with
        sizes of micro-batches of their own, stay as they are."""
        if isinstance(found, FoundSlices) or (isinstance(found, FoundGraph) and found.simulated_s is not None):
            return found
        report(SearchProgress(phase=f"solving stages once more by {solver}"))
        began_s = time.process_time()
        least_s, most_s = _REFINING_S
        budget_s = min(most_s, max(least_s, _REFINING_SHARE * (began_s - self.began_cpu_s + self.elsewhere_cpu_s)))
        checked = [CheckedCosts(each) for each in self.costs]
        pricing = mesh_pricing(self.problem.cluster, checked)
        maker = StageMaker(step=found.step, pricing=pricing, prices=found.prices)

        def is_over() -> bool:
            return should_stop() or time.process_time() - began_s > budget_s

        return refine(found, maker, self.problem.cluster, solver=solver, should_stop=is_over)

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
            relative_error=max(graph_time(graph, each).relative_error for each in self.costs),
            search_s=time.monotonic() - self.began_s,
            search_cpu_s=time.process_time() - self.began_cpu_s + self.elsewhere_cpu_s,
            is_complete=is_complete,
        )


def make_training_plan(
    problem: TrainingProblem,
    costs: Sequence[Costs],
    *,
    method: str = METHODS[0],
    explains: bool = False,
    nonce: str,
    report: Report,
    should_stop: Callable[[], bool],
    to_document: ToDocument,
    executor: CandidateExecutor | None = None,
    solver: Solver = Solver.HIGHS,
) -> TrainingPlan:
    """Searches the plan with the shortest iteration.

    Args:
        costs: of each group of nodes.
        method: one of `METHODS`.
        explains: whether other ways to train are priced too, and what would change the choice.
        nonce: part of the plan's id.
        to_document: makes what is reported as the best so far.
        executor: tries several numbers of micro-batches at once; None to try one after the other.
        solver: of the integer programs with which the stages that were chosen are solved once more.

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
    best = searching.run(report=tell, should_stop=should_stop, executor=executor)
    planning.elsewhere_cpu_s = searching.elsewhere_cpu_s
    if best is None:
        if should_stop():
            raise CancelledError("The search was stopped before it found a plan.", hint="Give it more time.")
        raise misfit_of(problem, costs).error()
    if isinstance(best, Found) and method not in BASELINES:
        best = best_with_fewer_splits(problem, costs, best, should_stop=should_stop)
    searched_s = best.iteration_s
    best = planning.refined(best, solver, report=report, should_stop=should_stop)
    plan = planning.plan(best, is_complete=not should_stop())
    if explains and not should_stop():
        report(SearchProgress(phase="pricing other ways to train"))
        plan = explain(problem, costs, _of_one_size(best, searching), should_stop=should_stop).of(plan)
    plan = plan if isinstance(searching, AlpaSearch) else with_methods(plan, searching)
    return _with_refined(plan, searched_s, solver)


def _search(problem: TrainingProblem, costs: Sequence[Costs], method: str) -> AlpaSearch | GraphSearch | SliceSearch:
    if method == AUTO:
        return GraphSearch.with_slices(problem, costs)
    if method == GRAPHPIPE:
        return GraphSearch(problem, costs)
    return (SliceSearch if method == TERAPIPE else AlpaSearch)(problem, costs)


def _of_one_size(best: Pipeline, searching: AlpaSearch | GraphSearch | SliceSearch) -> Pipeline:
    """The pipeline, or where its stages have micro-batches of their own sizes the graph that it was made of: by what
    changes that it is told what would change the choice."""
    if isinstance(searching, GraphSearch) and best is searching.graph and searching.alike is not None:
        return searching.alike
    return best


def _with_refined(plan: TrainingPlan, searched_s: float, solver: Solver) -> TrainingPlan:
    """The plan, told where integer programs made it faster than the search had it."""
    gain = 1 - plan.iteration_s / searched_s
    if gain < _TOLD_GAIN:
        return plan
    told = f"Stages solved once more exactly ({solver}) save {gain:.2%} of an iteration, in the same memory."
    return replace(plan, reasons=(*plan.reasons, told))


def fill_training_layout(
    problem: TrainingProblem, costs: Sequence[Costs], layout: TrainingLayout, *, nonce: str
) -> TrainingPlan:
    """Makes the plan that a user gave; see `headway.planner.training.fixed.lay_out` for what is wrong with one."""
    planning = _Planning(problem=problem, costs=costs, method=FIXED, nonce=nonce)
    return planning.plan(lay_out(problem, costs, layout))


def _of_method(problem: TrainingProblem, method: str) -> TrainingProblem:
    check_method(method)
    return narrowed(problem, BASELINES[method]) if method in BASELINES else problem
