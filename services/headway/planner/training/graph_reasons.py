"""Says what a graph of stages gained over the best chain, or why it did not. Pure."""

from dataclasses import replace

from headway.core.plan.training import TrainingAlternative, TrainingPlan
from headway.core.units import format_duration
from headway.planner.training.alpa import Found
from headway.planner.training.graph_search import FoundGraph, GraphSearch

CHAIN, GRAPH = "alpa", "graphpipe"


def with_methods(plan: TrainingPlan, search: GraphSearch) -> TrainingPlan:
    """The plan with the best of each method beside it, and why it won."""
    alternatives = (_alternative(CHAIN, search.chain, plan.batch), _alternative(GRAPH, search.graph, plan.batch))
    others = tuple(each for each in plan.alternatives if each.name not in (CHAIN, GRAPH))
    return replace(plan, reasons=(_reason(search), *plan.reasons), alternatives=(*alternatives, *others))


def _alternative(name: str, found: Found | FoundGraph | None, batch: int) -> TrainingAlternative:
    if found is None:
        why = "no stages side by side: the layers are a chain, or none of their graphs fits" if name == GRAPH else ""
        return TrainingAlternative(name=name, why_not=(why or "no chain of stages fits into memory",))
    words = f"{len(found.stages)} stages, micro-batch {batch // found.num_micro_batches}"
    return TrainingAlternative(name=name, iteration_s=found.iteration_s, layout=words)


def _reason(search: GraphSearch) -> str:
    chain, graph = search.chain, search.graph
    if graph is None:
        return "graphpipe has no stages that can run side by side here, so that the plan is alpa's chain."
    what = (
        f"graphpipe: {len(graph.stages)} stages, {graph.depth} on the longest way, "
        f"{format_duration(graph.iteration_s)} an iteration"
    )
    if graph.decomposition.added:
        added, lost = len(graph.decomposition.added), format_duration(graph.decomposition.serialized_s)
        what += f" ({added} orders of layers added to make them series-parallel, no work; {lost} can no longer overlap)"
    if chain is None:
        return f"{what}; no chain of stages fits."
    share = chain.iteration_s / graph.iteration_s
    than = f"alpa's chain of {len(chain.stages)} stages: {format_duration(chain.iteration_s)}"
    return f"{what}, {share:.2f}x as fast as {than}."
