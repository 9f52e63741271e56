"""Seconds of a graph's operators as a table."""

from collections import defaultdict

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headway.core.catalogue.roofline import OperatorTime
from headway.core.cost.costs import GraphTime
from headway.core.graph import Graph
from headway.core.units import format_duration


def time_view(graph: Graph, time: GraphTime, *, num_operators: int | None) -> RenderableType:
    """Tables the total and the operators, equal ones as one row, those that take longest first.

    Args:
        num_operators: rows; None for all.
    """
    groups: dict[tuple[str, float], list[OperatorTime]] = defaultdict(list)
    for operator, each in zip(graph.operators, time.operators, strict=True):
        groups[operator.target.removesuffix(".default"), each.seconds].append(each)
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for number, name in enumerate(("operator", "number", "each", "all", "bound by", "origin", "error")):
        table.add_column(name, justify="right" if 0 < number < 4 else "left", overflow="fold")
    longest = sorted(groups.items(), key=lambda item: -item[0][1] * len(item[1]))
    for (target, seconds), members in longest[:num_operators]:
        first = members[0]
        table.add_row(
            target,
            str(len(members)),
            format_duration(seconds),
            format_duration(seconds * len(members)),
            first.bound,
            first.provenance,
            f"{first.relative_error:.0%}",
        )
    total = (
        f"{format_duration(time.seconds)} on {time.hardware}, {time.provenance}, to within {time.relative_error:.0%}"
    )
    return Group(Text(total), table)
