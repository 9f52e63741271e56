"""Whether a model has branches that are worth stages side by side, and into how many layers it is cut then. Pure."""

import re
from collections import Counter

from headway.core.dataflow import Dataflow
from headway.core.graph import Graph
from headway.planner.graphpipe.series_parallel import Parallel, Part, decompose, leaves

_MOST_LAYERS = 64
_SHARE = 0.05  # of the work: what a branch has at least
_LIGHT_SHARE = 0.1  # of the equal share of the work: a part with less is no layer of its own
_REPEATED = re.compile(
    r"^(.*?\.)?\d+(\.(.*?\.)?\d+)?(?=\.|$)"
)  # of a module's path, up to its place in a list of lists


def branch_layers(graph: Graph) -> int | None:
    """Layers for a model with branches: as many as it repeats inside them; None for one without."""
    forward = [operator for operator in graph.operators if not operator.is_backward]
    flow = Dataflow(graph)
    number = {flow.positions[operator.name]: at for at, operator in enumerate(forward)}
    edges = [
        (number[before], at)
        for at, operator in enumerate(forward)
        for before in flow.predecessors(flow.positions[operator.name])
        if before in number
    ]
    work = [float(operator.flops) for operator in forward]
    if not _has_branches(decompose(work, edges).root, work, _SHARE * sum(work)):
        return None
    repeated: Counter[str] = Counter()
    for operator in forward:
        found = _REPEATED.match(operator.module)
        repeated[found.group() if found else ""] += operator.flops
    least = _LIGHT_SHARE * sum(work) / len(repeated)
    return max(1, min(_MOST_LAYERS, sum(flops >= least for flops in repeated.values())))


def _has_branches(part: Part, work: list[float], least: float) -> bool:
    if isinstance(part, int):
        return False
    if isinstance(part, Parallel):
        heavy = [each for each in part.parts if sum(work[leaf] for leaf in leaves(each)) >= least]
        if len(heavy) > 1:
            return True
    return any(_has_branches(each, work, least) for each in part.parts)
