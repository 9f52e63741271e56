"""Draws a graph with its operators coloured by backend."""

from pathlib import Path

from headway.core.backend_search import BackendPlan
from headway.core.dataflow import Dataflow
from headway.core.graph import Graph

_COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")
_INCHES_PER_LEVEL = 0.16
_WIDEST_INCHES = 60.0


def draw_backends(plan: BackendPlan, graph: Graph, path: Path) -> None:
    """Draws each operator where its depth puts it, operators of one depth above each other, and who reads whom."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    flow = Dataflow(graph)
    backend_of = {name: str(engine.backend) for engine in plan.groups for name in engine.operators}
    depths: list[int] = []
    rows: list[int] = []
    taken: dict[int, int] = {}
    for at in range(len(graph.operators)):
        depth = max((depths[source] + 1 for source in flow.predecessors(at)), default=0)
        depths.append(depth)
        rows.append(taken.get(depth, 0))
        taken[depth] = rows[-1] + 1
    width = min(_WIDEST_INCHES, 3.0 + _INCHES_PER_LEVEL * len(taken))
    figure = Figure(figsize=(width, 2.0 + 0.3 * max(taken.values())), layout="constrained")
    axes = figure.subplots()
    for at in range(len(graph.operators)):
        for source in flow.predecessors(at):
            axes.plot((depths[source], depths[at]), (rows[source], rows[at]), color="#999999", lw=0.6, zorder=1)
    names = sorted(set(backend_of.values()))
    colours = {name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(names)}
    shades = [colours.get(backend_of.get(operator.name, ""), "#ffffff") for operator in graph.operators]
    axes.scatter(depths, rows, c=shades, s=36, zorder=2, edgecolors="#333333", linewidths=0.4)
    axes.set_xlabel("depth of the operator")
    axes.set_yticks([])
    axes.set_title(f"{plan.model}: {len(plan.groups)} engine{'s' if len(plan.groups) > 1 else ''}")
    axes.legend(handles=[Patch(color=colours[name], label=name) for name in names], loc="upper left", fontsize="small")
    figure.savefig(path)
