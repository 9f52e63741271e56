"""A captured graph for people and for programs."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headway.core.codec import to_document
from headway.core.cost.costs import GraphTime
from headway.core.graph import Graph, Operator
from headway.core.units import format_bytes

_SCALES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def graph_document(graph: Graph, *, with_operators: bool, time: GraphTime | None = None) -> dict[str, Any]:
    """The graph as a JSON document: totals; with the operators also all tensors; with times also the total seconds."""
    document = {
        "name": graph.name,
        "is_training": graph.is_training,
        "parameters": graph.parameters,
        "parameter_bytes": graph.parameter_bytes,
        "gradient_bytes": graph.gradient_bytes,
        "optimizer_bytes": graph.optimizer_bytes,
        "flops": graph.flops,
        "forward_flops": graph.forward_flops,
        "activation_bytes": graph.activation_bytes,
        "operators": len(graph.operators),
        "unknown_operators": graph.unknown_operators,
        "content_hash": graph.content_hash,
    }
    if time is not None:
        document |= {
            "hardware": time.hardware,
            "seconds": time.seconds,
            "relative_error": time.relative_error,
            "provenance": time.provenance.value,
        }
    if with_operators:
        document["operator_list"] = to_document(graph.operators)
        if time is not None:
            document["operator_times"] = to_document(time.operators)
        document["tensors"] = to_document(graph.tensors)
    return document


def graph_view(graph: Graph, *, num_operators: int | None) -> RenderableType:
    """Shows the totals, the kinds of operators, and the operators, those with the most FLOPs and bytes first.

    Equal operators of a repeated layer are one row.

    Args:
        num_operators: rows of operators; None for all.
    """
    return Group(_totals(graph), _kinds(graph), _operators(graph, num_operators), *_unknown(graph))


def _totals(graph: Graph) -> Text:
    held = "kept for backward" if graph.is_training else "at most at once"
    activations = f"activations of {format_bytes(graph.activation_bytes)} {held}"
    lines = [
        f"{graph.name}: {_scaled(graph.parameters)} parameters in {format_bytes(graph.parameter_bytes)}",
        f"{_scaled(graph.flops)}FLOP in {len(graph.operators)} operators, {activations}",
    ]
    if graph.is_training:
        lines.append(
            f"gradients {format_bytes(graph.gradient_bytes)}, Adam {format_bytes(graph.optimizer_bytes)}, "
            f"forward {_scaled(graph.forward_flops)}FLOP of these"
        )
    return Text("\n".join([*lines, f"hash {graph.content_hash}"]))


def _kinds(graph: Graph) -> Table:
    groups = defaultdict(list)
    for operator in graph.operators:
        groups[operator.kind.value].append(operator)
    return _table("kind", [(kind, members, "") for kind, members in groups.items()])


def _operators(graph: Graph, limit: int | None) -> Table:
    """Tables the operators, grouped by what they call and what they cost."""
    groups: dict[tuple[str, int, int, str], list[Operator]] = defaultdict(list)
    for operator in graph.operators:
        num_bytes = operator.bytes_read + operator.bytes_written
        groups[operator.target, operator.flops, num_bytes, str(operator.space or "")].append(operator)
    rows = [(target.removesuffix(".default"), members, space) for (target, _, _, space), members in groups.items()]
    return _table("operator", rows, limit=limit)


def _table(name: str, rows: Sequence[tuple[str, Sequence[Operator], str]], *, limit: int | None = None) -> Table:
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    table.add_column(name, overflow="fold")
    for column in ("number", "FLOP", "bytes"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("loops" if any(space for _, _, space in rows) else "", overflow="fold")
    costs = [(sum(op.flops for op in ops), sum(op.bytes_read + op.bytes_written for op in ops)) for _, ops, _ in rows]
    hottest = sorted(zip(costs, rows, strict=True), key=lambda pair: pair[0], reverse=True)
    for (flops, num_bytes), (title, members, space) in hottest[:limit]:
        table.add_row(title, str(len(members)), _scaled(flops) if flops else "-", format_bytes(num_bytes), space)
    if limit is not None and len(rows) > limit:
        table.caption = f"and {len(rows) - limit} more; --operators shows all"
    return table


def _unknown(graph: Graph) -> list[Text]:
    unknown = graph.unknown_operators
    names = ", ".join(f"{name} ({number})" for name, number in unknown.items())
    return [Text(f"unknown, taken to be bound by memory: {names}", style="yellow")] if unknown else []


def _scaled(number: float) -> str:
    """Writes a number with an SI prefix: `1.75e11` -> `175 G`."""
    for scale, prefix in _SCALES:
        if number >= scale:
            return f"{number / scale:.3g} {prefix}"
    return f"{number:.0f} "
