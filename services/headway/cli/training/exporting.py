"""Writes plans for other tools."""

from collections.abc import Sequence
from pathlib import Path

from headway.core.errors import InvalidArgumentError
from headway.core.exports.formats import FORMATS
from headway.core.graph_file import graph_of
from headway.core.plan.training import TrainingPlan


def find_format(name: str) -> str:
    """The format's name; InvalidArgumentError where there is none of that name."""
    if name not in FORMATS:
        raise InvalidArgumentError(
            f"There is no format '{name}'.", hint=f"There are {', '.join(FORMATS)}.", field="export"
        )
    return name


def export_plan(plan: TrainingPlan, graph: bytes, names: Sequence[str], *, beside: Path | None) -> list[Path]:
    """Writes a file for each format, beside the plan's own or in this directory, and returns their paths.

    Args:
        graph: that the plan is for, as a file; see `headway.core.graph_file`.

    Raises:
        FailedPreconditionError: the plan is nothing that a tool can run.
    """
    if not names:
        return []
    captured = graph_of(graph)
    paths = []
    for name in names:
        kind = FORMATS[name]
        stem = plan.plan_id if beside is None else beside.stem
        path = (Path() if beside is None else beside.parent) / f"{stem}.{name}{kind.suffix}"
        path.write_text(kind.write(plan, captured))
        paths.append(path)
    return paths
