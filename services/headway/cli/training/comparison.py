"""Training plans of several methods, models and clusters side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from headway.cli.wide_table import WideTable
from headway.core.plan.training import TrainingPlan
from headway.core.units import format_duration

_LEFT = ("model", "cluster", "method")
_FIGURES = ("iteration", "of the best", "examples/s", "bubble", "stages", "micro-batches", "slices", "full", "searched")
_COLUMNS = (*_LEFT, *_FIGURES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What one method found for one model on one cluster.

    Attributes:
        plan: None where there is none.
        why_not: in a sentence then.
    """

    model: str
    cluster: str
    method: str
    plan: TrainingPlan | None = None
    why_not: str = ""

    @property
    def memory_share(self) -> float:
        """Of the fullest device; 0 without a plan."""
        if self.plan is None:
            return 0.0
        groups = self.plan.cluster.groups
        return max(stage.memory.total_bytes / groups[stage.group].memory_bytes for stage in self.plan.stages)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Attributes:
    cells: methods of one model and cluster one after the other.
    """

    cells: Sequence[Cell]

    def best_s(self, cell: Cell) -> float | None:
        """The shortest iteration of any method for the cell's model and cluster; None where none has a plan."""
        alike = (each.plan for each in self.cells if (each.model, each.cluster) == (cell.model, cell.cluster))
        return min((plan.iteration_s for plan in alike if plan is not None), default=None)

    def document(self) -> list[dict[str, Any]]:
        """As `--json` prints it: null where there is no plan."""
        return [self._row(cell) for cell in self.cells]

    def view(self) -> RenderableType:
        """A row for each cell, and below why some have no plan."""
        rows = [self._texts(cell) for cell in self.cells]
        table = WideTable(
            [(name, "left" if name in _LEFT else "right") for name in _COLUMNS], rows, num_names=len(_LEFT)
        )
        missing = [cell for cell in self.cells if cell.plan is None]
        lines = [Text(f"- {cell.model} on {cell.cluster}, {cell.method}: {cell.why_not}") for cell in missing]
        return Group(table, *lines)

    def _texts(self, cell: Cell) -> tuple[str, ...]:
        plan, best_s = cell.plan, self.best_s(cell)
        if plan is None or best_s is None:
            return (cell.model, cell.cluster, cell.method, "no plan", *[""] * (len(_FIGURES) - 1))
        return (
            cell.model,
            cell.cluster,
            cell.method,
            format_duration(plan.iteration_s),
            f"{plan.iteration_s / best_s:.2f}x",
            f"{plan.throughput:.4g}",
            f"{plan.bubble:.0%}",
            str(len(plan.stages)),
            str(plan.num_micro_batches),
            str(len(plan.slices) or 1),
            f"{cell.memory_share:.0%}",
            format_duration(plan.search_cpu_s),
        )

    def _row(self, cell: Cell) -> dict[str, Any]:
        plan, best_s = cell.plan, self.best_s(cell)
        row: dict[str, Any] = {"model": cell.model, "cluster": cell.cluster, "method": cell.method}
        if plan is None or best_s is None:
            return {**row, "iteration_s": None, "why_not": cell.why_not}
        return {
            **row,
            "iteration_s": plan.iteration_s,
            "of_best": plan.iteration_s / best_s,
            "throughput": plan.throughput,
            "bubble": plan.bubble,
            "num_stages": len(plan.stages),
            "depth": plan.depth,
            "num_micro_batches": plan.num_micro_batches,
            "slices": list(plan.slices),
            "memory_share": cell.memory_share,
            "search_cpu_s": plan.search_cpu_s,
            "is_complete": plan.is_complete,
            "plan_id": plan.plan_id,
            "why_not": None,
        }
