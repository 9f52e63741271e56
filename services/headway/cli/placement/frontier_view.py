"""The answer to a frontier question, as text."""

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headway.core.frontier import Frontier, Question

WORDS = {
    Question.DEVICES: ("fewest devices", "devices"),
    Question.RATE: ("highest rate", "requests/s (of a trace: times its own)"),
    Question.CV: ("highest CV", "CV (of a trace: times its own)"),
    Question.SLO: ("tightest SLO", "SLO scale (times the latency alone)"),
}


def frontier_view(frontier: Frontier) -> RenderableType:
    """Shows the answer and every value that was tried."""
    name, unit = WORDS[frontier.question]
    table = Table(unit, "attainment", "selective replication", "groups", box=box.SIMPLE_HEAD, pad_edge=False)
    for point in frontier.points:
        table.add_row(f"{point.value:.4g}", f"{point.attainment:.2%}", f"{point.replication:.2%}", point.groups or "-")
    ended = "" if frontier.is_complete else " (ended before it was done)"
    return Group(
        Text(f"{name} for {frontier.target:.4g} of requests within their SLO: {_value(frontier.best)}{ended}", "bold"),
        Text(f"with selective replication alone: {_value(frontier.replication_best)}"),
        table,
    )


def _value(value: float | None) -> str:
    return "none that was tried" if value is None else f"{value:.4g}"
