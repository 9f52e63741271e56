"""What would change the choice of a plan: other memory, links and batches. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from headway.core.cluster import Fabric
from headway.core.plan.training import TrainingSensitivity
from headway.core.training_cluster import NodeGroup, TrainingCluster
from headway.planner.training.alpa import StepTables
from headway.planner.training.best_cut import BestCut
from headway.planner.training.graph_search import Pipeline
from headway.planner.training.shape import PlanShape, shape_of

_FACTORS = (0.5, 2.0)
_MEMORY, _LINK, _NETWORK, _BATCH = "memory", "node link", "network", "batch"


def sensitivities(
    search: BestCut, *, tables: Sequence[StepTables], should_stop: Callable[[], bool]
) -> Iterator[TrainingSensitivity]:
    """Searches again with half and twice of each, for the sizes of micro-batches of some tables.

    Args:
        tables: of the problem as it is.
    """
    cluster, was = search.problem.cluster, shape_of(search.found)
    for factor in _FACTORS:
        other = _changed(cluster, _with_memory, factor)
        cuts = [search.cut(each, cluster=other) for each in tables]
        yield _sensitivity(_MEMORY, factor, was, cuts)
    for factor in _FACTORS:
        yield _sensitivity(_BATCH, factor, was, list(_with_batch(search, tables, factor)))
    for what, change in _LINKS.items():
        for factor in _FACTORS:
            if should_stop():
                return
            again = search.on(_changed(cluster, change, factor))
            cuts = [again.cut(again.tables(each.num_micro_batches)) for each in tables]
            yield _sensitivity(what, factor, was, cuts)


def _with_batch(search: BestCut, tables: Sequence[StepTables], factor: float) -> Iterator[Pipeline | None]:
    for each in tables:
        number = factor * each.num_micro_batches
        if number >= 1 and number == int(number):
            yield search.cut(each, num_micro_batches=int(number))


def _sensitivity(what: str, factor: float, was: PlanShape, cuts: Sequence[Pipeline | None]) -> TrainingSensitivity:
    best = min((each for each in cuts if each), key=lambda each: each.iteration_s, default=None)
    if best is None:
        return TrainingSensitivity(what=what, factor=factor)
    now = shape_of(best)
    return TrainingSensitivity(
        what=what,
        factor=factor,
        iteration_s=best.iteration_s,
        layout=str(now),
        changes=tuple(was.changes_to(now)),
    )


def _changed(
    cluster: TrainingCluster, change: Callable[[NodeGroup, float], NodeGroup], factor: float
) -> TrainingCluster:
    """The cluster with another figure of all its groups."""
    return TrainingCluster(groups=tuple(change(nodes, factor) for nodes in cluster.groups))


def _with_memory(nodes: NodeGroup, factor: float) -> NodeGroup:
    return replace(nodes, memory_bytes=int(factor * nodes.memory_bytes))


def _with_link(nodes: NodeGroup, factor: float) -> NodeGroup:
    return replace(nodes, link=_faster(nodes.link, factor))


def _with_network(nodes: NodeGroup, factor: float) -> NodeGroup:
    return replace(nodes, network=_faster(nodes.network, factor))


def _faster(fabric: Fabric, factor: float) -> Fabric:
    return replace(fabric, bytes_per_s=factor * fabric.bytes_per_s)


_LINKS: Mapping[str, Callable[[NodeGroup, float], NodeGroup]] = {_LINK: _with_link, _NETWORK: _with_network}
