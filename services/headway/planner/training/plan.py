"""Makes a training plan: searches, and says what was found. Pure."""

import time
from collections.abc import Callable

from headway.core.cost.costs import Costs, graph_time
from headway.core.errors import CancelledError, FailedPreconditionError
from headway.core.plan.serving import plan_id_at
from headway.core.plan.training import TrainingPlan
from headway.core.search_progress import SearchProgress
from headway.core.units import format_duration
from headway.planner.training.alpa import AlpaSearch, Found
from headway.planner.training.problem import TrainingProblem

_METHOD = "alpa"
Report = Callable[[SearchProgress], None]
MakePlan = Callable[[Found], TrainingPlan]


def make_training_plan(
    problem: TrainingProblem,
    costs: Costs,
    *,
    nonce: str,
    report: Report,
    should_stop: Callable[[], bool],
    to_document: Callable[[TrainingPlan], dict[str, object]],
) -> TrainingPlan:
    """Searches the plan with the shortest iteration.

    Args:
        nonce: part of the plan's id.
        to_document: makes what is reported as the best so far.

    Raises:
        FailedPreconditionError: nothing fits into the memory of the devices.
        CancelledError: it was stopped before it found anything.
    """
    began_s, began_cpu_s, now_s = time.monotonic(), time.process_time(), time.time()
    search = AlpaSearch(problem, problem.cluster.groups[0], costs)

    def plan_of(found: Found, *, is_complete: bool) -> TrainingPlan:
        graph = found.step.training.graph
        return TrainingPlan(
            plan_id=plan_id_at(now_s, nonce=nonce),
            created_at_s=now_s,
            model=problem.model,
            graph_hash=problem.graph.content_hash,
            cluster=problem.cluster,
            batch=problem.batch,
            num_micro_batches=found.num_micro_batches,
            precision=problem.precision.value,
            method=_METHOD,
            flops=float(graph.flops * found.num_micro_batches),
            stages=found.stages,
            iteration_s=found.iteration_s,
            relative_error=graph_time(graph, costs).relative_error,
            search_s=time.monotonic() - began_s,
            search_cpu_s=time.process_time() - began_cpu_s,
            is_complete=is_complete,
        )

    def tell(found: Found) -> None:
        report(
            SearchProgress(
                phase=f"searching: {found.num_micro_batches} micro-batches",
                best=to_document(plan_of(found, is_complete=False)),
                best_figure=f"{format_duration(found.iteration_s)} an iteration",
            )
        )

    report(SearchProgress(phase=f"searching on {problem.cluster.label}"))
    best = search.run(report=tell, should_stop=should_stop)
    if best is None:
        if should_stop():
            raise CancelledError("The search was stopped before it found a plan.", hint="Give it more time.")
        raise _too_large(problem)
    return plan_of(best, is_complete=not should_stop())


def _too_large(problem: TrainingProblem) -> FailedPreconditionError:
    graph, precision = problem.graph, problem.precision
    state = precision.weight_bytes + precision.gradient_bytes + precision.optimizer_bytes
    needed = graph.parameters * state
    there = sum(group.num_devices * group.memory_bytes for group in problem.cluster.groups)
    hint = "Use more devices, a smaller batch, or sequences that are shorter."
    if needed > there:
        return FailedPreconditionError(
            f"{problem.model} does not fit: its parameters with gradients and optimizer state are {needed} bytes, "
            f"{needed - there} more than all devices have.",
            hint=hint,
            field="cluster",
        )
    return FailedPreconditionError(
        f"{problem.model} does not fit: with its activations no split leaves room on {problem.cluster.label}.",
        hint=hint,
        field="cluster",
    )
