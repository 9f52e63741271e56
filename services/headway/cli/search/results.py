"""The result of a search, as people see it: one view for each kind of search."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from headway.cli.backends.view import answer_view
from headway.cli.placement.frontier_view import frontier_view
from headway.cli.placement.stored import store_plan
from headway.cli.placement.view import placement_view
from headway.cli.schedule.view import schedule_view
from headway.cli.training.view import training_view
from headway.core.backend_search import BackendAnswer
from headway.core.codec import from_document
from headway.core.frontier import Frontier
from headway.core.plan.document import plan_from_document
from headway.core.plan.placement import PlacementPlan
from headway.core.plan.training import TrainingPlan
from headway.core.schedule_search import ScheduleReport


def result_view(kind: str, result: dict[str, Any], *, state_dir: Path | None) -> RenderableType:
    """Shows a result. A plan is kept in the state directory too, so that it can be applied by its id."""
    return VIEW_BY_KIND[kind](result, state_dir)


def _placement(result: dict[str, Any], state_dir: Path | None) -> RenderableType:
    plan = plan_from_document(PlacementPlan, result)
    store_plan(plan, state_dir)
    return Group(placement_view(plan), Text(f"`headway apply {plan.plan_id}` makes it so on a running stack."))


def _frontier(result: dict[str, Any], _: Path | None) -> RenderableType:
    return frontier_view(from_document(Frontier, result))


def _training(result: dict[str, Any], _: Path | None) -> RenderableType:
    plan = plan_from_document(TrainingPlan, result)
    return Group(training_view(plan), *(Text(f"- {reason}") for reason in plan.reasons))


def _schedule(result: dict[str, Any], _: Path | None) -> RenderableType:
    return schedule_view(from_document(ScheduleReport, result))


def _backends(result: dict[str, Any], _: Path | None) -> RenderableType:
    return answer_view(from_document(BackendAnswer, result))


VIEW_BY_KIND: dict[str, Callable[[dict[str, Any], Path | None], RenderableType]] = {
    "placement": _placement,
    "frontier": _frontier,
    "training": _training,
    "schedule": _schedule,
    "backends": _backends,
}
