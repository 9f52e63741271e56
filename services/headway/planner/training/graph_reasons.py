"""Says what graphs of stages and slices of tokens gained over the best chain, or why they did not. Pure."""

from collections.abc import Iterator
from dataclasses import replace

from headway.core.plan.training import TrainingAlternative, TrainingPlan
from headway.core.units import format_count, format_duration
from headway.planner.training.alpa import Found
from headway.planner.training.graph_search import FoundGraph, GraphSearch
from headway.planner.training.slice_search import FoundSlices, SliceSearch

CHAIN, GRAPH, SLICES = "alpa", "graphpipe", "terapipe"
_NONE = {
    CHAIN: "no chain of stages fits into memory",
    GRAPH: "no stages side by side: the layers are a chain, or none of their graphs fits",
    SLICES: "no pipeline of slices fits into memory, or none has more than one stage",
}


def with_methods(plan: TrainingPlan, search: GraphSearch | SliceSearch) -> TrainingPlan:
    """The plan with the best of each method beside it, and why it won."""
    own = tuple(_alternatives(search, plan.batch))
    others = tuple(each for each in plan.alternatives if each.name not in {mine.name for mine in own})
    return replace(plan, reasons=(*_reasons(search), *plan.reasons), alternatives=(*own, *others))


def _alternatives(search: GraphSearch | SliceSearch, batch: int) -> Iterator[TrainingAlternative]:
    yield _alternative(CHAIN, search.chain, batch)
    slices = _slices(search)
    if isinstance(search, GraphSearch):
        yield _alternative(GRAPH, search.graph, batch)
        if search.why_no_slices:
            yield TrainingAlternative(name=SLICES, why_not=(search.why_no_slices,))
    if slices is not None:
        yield _alternative(SLICES, slices.sliced, batch)


def _alternative(name: str, found: Found | FoundGraph | FoundSlices | None, batch: int) -> TrainingAlternative:
    if found is None:
        return TrainingAlternative(name=name, why_not=(_NONE[name],))
    words = f"{len(found.stages)} stages, micro-batch {batch // found.num_micro_batches}"
    if isinstance(found, FoundSlices):
        words += f" in {len(found.tokens)} slices"
    return TrainingAlternative(name=name, iteration_s=found.iteration_s, layout=words)


def _reasons(search: GraphSearch | SliceSearch) -> Iterator[str]:
    slices = _slices(search)
    if isinstance(search, GraphSearch):
        yield _graph_reason(search)
    if slices is not None:
        yield _slice_reason(slices)


def _slices(search: GraphSearch | SliceSearch) -> SliceSearch | None:
    return search if isinstance(search, SliceSearch) else search.slices


def _graph_reason(search: GraphSearch) -> str:
    chain, graph = search.chain, search.graph
    if graph is None:
        return "graphpipe has no stages that can run side by side here."
    what = (
        f"graphpipe: {len(graph.stages)} stages, {graph.depth} on the longest way, "
        f"{format_duration(graph.iteration_s)} an iteration"
    )
    if graph.decomposition.added:
        added, lost = len(graph.decomposition.added), format_duration(graph.decomposition.serialized_s)
        what += f" ({added} orders of layers added to make them series-parallel, no work; {lost} can no longer overlap)"
    return f"{what}{_beside(chain, graph.iteration_s)}"


def _slice_reason(search: SliceSearch) -> str:
    sliced = search.sliced
    if sliced is None:
        return "terapipe has no pipeline of slices that fits and has more than one stage."
    whole = format_count(sliced.num_micro_batches, "micro-batch", "es")
    what = (
        f"terapipe: {whole} in slices of {', '.join(map(str, sliced.tokens))} tokens through {len(sliced.stages)} "
        f"stages, {format_duration(sliced.iteration_s)} an iteration"
    )
    return f"{what}{_beside(search.chain, sliced.iteration_s)}"


def _beside(chain: Found | None, iteration_s: float) -> str:
    if chain is None:
        return "; no chain of stages fits."
    share = chain.iteration_s / iteration_s
    than = f"alpa's chain of {format_count(len(chain.stages), 'stage')}: {format_duration(chain.iteration_s)}"
    return f", {share:.2f}x as fast as {than}."
