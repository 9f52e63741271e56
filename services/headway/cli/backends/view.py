"""A choice of backends for people and for programs."""

from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headway.cli.backends.searching import BackendsFound
from headway.core.backend_search import BackendAnswer, BackendPlan, PlannedEngine
from headway.core.codec import to_document
from headway.core.units import format_duration

_MAX_ROWS = 24
_UNKNOWN = "-"


def backends_document(found: BackendsFound) -> dict[str, Any]:
    """The choice as a JSON document."""
    measuring = {"num_measured": found.num_measured, "measuring_s": found.measuring_s}
    return to_document(found.plan) | measuring  # type: ignore[no-any-return]


def backend_plan_view(plan: BackendPlan) -> RenderableType:
    """Shows the whole against each backend alone, and the engines."""
    parts: list[RenderableType] = [_wholes(plan), _engines(plan)]
    parts += [Text(f"- {reason}") for reason in plan.dropped]
    return Group(*parts)


def answer_view(answer: BackendAnswer) -> RenderableType:
    """Shows one turn of the search."""
    if answer.plan is not None:
        return backend_plan_view(answer.plan)
    return Text(f"It wants {len(answer.wanted)} programs measured: {answer.phase}.")


def explanation(plan: BackendPlan) -> Iterator[str]:
    """Says why each engine is where it is, and what others would take."""
    ranked = sorted(plan.single.items(), key=lambda item: item[1])
    if ranked:
        name, seconds = ranked[0]
        yield f"Of the backends that run all of {plan.model} {name} is the fastest, {format_duration(seconds)}."
        yield f"The choice takes {format_duration(plan.chosen_s)}, and is wrong by {plan.deviation:.1e} at most."
    if plan.predicted_s is not None and plan.op_level_s is not None:
        yield (
            f"The sum of the best kernels is {format_duration(plan.predicted_s)}; run one after the other they took "
            f"{format_duration(plan.op_level_s)}."
        )
    for finalist in plan.contest:
        yield (
            f"In the final {finalist.name} took {format_duration(finalist.seconds)} in the median of "
            f"{finalist.num_runs} runs, {format_duration(finalist.least_s)} at least; {finalist.num_contended} were "
            "contended and dropped."
        )
    for engine in plan.groups:
        yield _why(engine)
    yield from (f"{reason}." for reason in plan.dropped)


def _why(engine: PlannedEngine) -> str:
    what = _span(engine)
    takes = f"{what} on {engine.backend} take {_duration(engine.measured_s)}"
    if engine.estimated_s is not None:
        takes += f", by kernels {_duration(engine.estimated_s)}"
    if not engine.others:
        return f"{takes}. No other backend is known to run them all."
    others = ", ".join(f"{name} {_duration(seconds)}" for name, seconds in sorted(engine.others.items()))
    return f"{takes}. Elsewhere: {others}."


def _wholes(plan: BackendPlan) -> Table:
    table = Table("Backend", "Time", "Against the choice", title=f"{plan.model}, all of it")
    table.add_row("the choice", format_duration(plan.chosen_s), "1.00")
    if plan.op_level_s is not None:
        table.add_row("the best kernels", format_duration(plan.op_level_s), f"{plan.op_level_s / plan.chosen_s:.2f}")
    for name, seconds in sorted(plan.single.items(), key=lambda item: item[1]):
        table.add_row(f"{name} alone", format_duration(seconds), f"{seconds / plan.chosen_s:.2f}")
    return table


def _engines(plan: BackendPlan) -> Table:
    table = Table("Operators", "Backend", "Estimated", "Measured", title="Engines, in the order in which they run")
    for engine in plan.groups[:_MAX_ROWS]:
        table.add_row(_span(engine), str(engine.backend), _duration(engine.estimated_s), _duration(engine.measured_s))
    if len(plan.groups) > _MAX_ROWS:
        table.add_row(f"and {len(plan.groups) - _MAX_ROWS} more; --json has all", "", "", "")
    return table


def _span(engine: PlannedEngine) -> str:
    names = engine.operators
    return names[0] if len(names) == 1 else f"{len(names)} operators, {names[0]} to {names[-1]}"


def _duration(seconds: float | None) -> str:
    return _UNKNOWN if seconds is None else format_duration(seconds)
