"""Shows what applying a placement changes."""

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headway.core.plan.placement import PlacementPlan
from headway.core.plan.serving import ServingPlan
from headway.core.plan_change import ChangeKind, PlanChange
from headway.core.units import format_bytes

_STYLES = {ChangeKind.KEEP: "dim", ChangeKind.LOAD: "green", ChangeKind.RELOAD: "yellow", ChangeKind.DRAIN: "red"}


def change_view(
    placement: PlacementPlan,
    changes: Sequence[PlanChange],
    *,
    before: float | None,
    live: ServingPlan | None,
    differences: Sequence[str] = (),
) -> RenderableType:
    """Shows what becomes of the models of each group, which models move, and the attainment to expect.

    Args:
        differences: how the stack's settings differ from those that the plan was predicted with.
    """
    expected = placement.predictions.held_out.attainment
    was = f"; what is live would have {before:.2%} of the same requests" if before is not None else ""
    replaced = live.placement_id or live.plan_id if live is not None else "nothing"
    return Group(
        Text(f"placement {placement.plan_id} in place of {replaced}", style="bold"),
        _table(changes),
        *(Text(line) for line in _moves(changes)),
        *(Text(f"! {line}", style="yellow") for line in (*_warnings(changes), *differences)),
        Text(f"expected attainment {expected:.2%}{was}"),
    )


def _table(changes: Sequence[PlanChange]) -> Table:
    table = Table("workers", "", "model", "memory of each", box=box.SIMPLE_HEAD, pad_edge=False)
    groups: dict[tuple[str, ...], list[PlanChange]] = {}
    for change in changes:
        groups.setdefault(change.worker_ids, []).append(change)
    for worker_ids, of_group in groups.items():
        for number, change in enumerate(of_group):
            memory = ", ".join(format_bytes(num) for num in dict.fromkeys(change.memory_bytes))
            place = ", ".join(worker_ids) if number == 0 else ""
            table.add_row(place, str(change.kind), change.model, memory, style=_STYLES[change.kind])
    return table


def _moves(changes: Sequence[PlanChange]) -> Iterator[str]:
    """Lists the models that are loaded at some workers and drained at others."""
    for model in dict.fromkeys(change.model for change in changes):
        to = [", ".join(c.worker_ids) for c in changes if c.model == model and c.kind is ChangeKind.LOAD]
        leaves = [", ".join(c.worker_ids) for c in changes if c.model == model and c.kind is ChangeKind.DRAIN]
        if to and leaves:
            yield f"{model} moves from {' and '.join(leaves)} to {' and '.join(to)}"


def _warnings(changes: Sequence[PlanChange]) -> Iterator[str]:
    stays = {change.model for change in changes if change.kind is not ChangeKind.DRAIN}
    for model in dict.fromkeys(change.model for change in changes if change.model not in stays):
        yield f"{model} is not served any more"
    for model in dict.fromkeys(change.model for change in changes if change.pauses):
        yield f"{model} pauses while it is loaded: there is no room for it before its place is free"
