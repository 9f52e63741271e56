"""The search for a training plan, as a job: request and result are documents of `TrainingSearch` and `TrainingPlan`."""

import base64
import uuid
from collections.abc import Callable
from typing import Any

from headway.core.batching import at_batch
from headway.core.catalogue.device import Device
from headway.core.codec import from_document
from headway.core.cost.catalogued import CatalogueCosts
from headway.core.cost.costs import Costs
from headway.core.cost.measured import MeasuredCosts
from headway.core.cost.profiled import ProfiledCosts
from headway.core.errors import InternalError
from headway.core.graph import Graph
from headway.core.graph_file import graph_of
from headway.core.plan.document import to_plan_document
from headway.core.plan.training import TrainingPlan
from headway.core.precision import Precision, cast_graph
from headway.core.search_progress import SearchProgress
from headway.core.training_search import GRAPH, TrainingSearch, check_schedule, check_solver
from headway.core.units import format_count
from headway.planner.certify.training.certificate import find_training_violations
from headway.planner.executors import search_executor
from headway.planner.intra.ilp import Solver
from headway.planner.schedule.kernels import Limits
from headway.planner.schedule.planned import schedule_plan
from headway.planner.schedule.weight_gradients import with_weight_gradients
from headway.planner.training.plan import fill_training_layout, make_training_plan
from headway.planner.training.problem import TrainingProblem


def run(
    request: dict[str, Any],
    *,
    report: Callable[[SearchProgress], None],
    should_stop: Callable[[], bool],
    resume: dict[str, Any] | None,  # noqa: ARG001 - a search that is begun again is short
) -> dict[str, Any]:
    """Searches a training plan, or prices the user's own, and certifies it; see `kinds.RunSearch`.

    Errors are those of `make_training_plan`, `fill_training_layout` and `schedule_plan`, and of `search_executor`.
    """
    search = from_document(TrainingSearch, request)
    check_schedule(search.schedule)
    check_solver(search.solver)
    graph = graph_of(base64.b64decode(search.files[GRAPH]))
    problem = TrainingProblem(
        model=search.model,
        graph=graph,
        cluster=search.cluster,
        batch=search.batch,
        precision=Precision(search.precision),
        num_layers=search.num_layers,
        micro_batches=search.micro_batches,
    )
    nonce = uuid.uuid4().hex[:6]
    costs = [_costs(search, device, problem) for device in search.devices]
    if search.layout is not None:
        plan = fill_training_layout(problem, costs, search.layout, nonce=nonce)
    else:
        with search_executor(search.processes, search.ray) as executor:
            plan = make_training_plan(
                problem,
                costs,
                method=search.method,
                explains=search.explains,
                nonce=nonce,
                report=report,
                should_stop=should_stop,
                to_document=to_plan_document,
                executor=executor,
                solver=Solver(search.solver),
            )
    step = cast_graph(at_batch(problem.graph, plan.micro_batch), problem.precision)
    plan = with_weight_gradients(plan, step, costs)
    report(SearchProgress(phase=f"scheduling {format_count(len(plan.stages), 'stage')}"))
    plan = schedule_plan(plan, search.schedule, explains=search.explains, limits=Limits(), should_stop=should_stop)
    check(plan, step, problem)
    return to_plan_document(plan)


def _costs(search: TrainingSearch, device: Device, problem: TrainingProblem) -> Costs:
    base = CatalogueCosts(device) if search.hardware is None else MeasuredCosts(search.hardware)
    if search.measured is None:
        return base
    return ProfiledCosts(base, cast_graph(problem.graph, problem.precision), search.measured)


def check(plan: TrainingPlan, step: Graph, problem: TrainingProblem) -> None:
    """Raises InternalError where the certifier finds a fault."""
    faults = find_training_violations(plan, step, problem.cluster, graph_hash=problem.graph.content_hash)
    if faults:
        raise InternalError(f"The training plan that was found is not valid: {faults[0]}")
