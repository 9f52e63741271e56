"""Says what graphs of stages and slices of tokens gained over the best chain, or why they did not. Pure."""

from collections.abc import Iterator
from dataclasses import replace

from headway.core.plan.training import TrainingAlternative, TrainingPlan
from headway.core.units import format_count, format_duration
from headway.planner.training.alpa import Found
from headway.planner.training.graph_cut import FoundGraph
from headway.planner.training.graph_search import GraphSearch
from headway.planner.training.misfit import least_missing_bytes
from headway.planner.training.slice_search import FoundSlices, SliceSearch

CHAIN, GRAPH, SLICES = "alpa", "graphpipe", "terapipe"
ALIKE = "graphpipe, one size of micro-batches"


def with_methods(plan: TrainingPlan, search: GraphSearch | SliceSearch) -> TrainingPlan:
    """The plan with the best of each method beside it, and why it won."""
    own = tuple(_alternatives(search, plan.batch))
    others = tuple(each for each in plan.alternatives if each.name not in {mine.name for mine in own})
    return replace(plan, reasons=(*_reasons(search), *plan.reasons), alternatives=(*own, *others))


def _alternatives(search: GraphSearch | SliceSearch, batch: int) -> Iterator[TrainingAlternative]:
    """Each with a number: what its best plan takes, what none takes less than, or what is missing for one."""
    slices = _slices(search)
    yield _no_chain(search) if search.chain is None else _alternative(CHAIN, search.chain, batch)
    if isinstance(search, GraphSearch):
        yield from _graphs(search, batch)
        if search.why_no_slices:
            yield TrainingAlternative(name=SLICES, why_not=(search.why_no_slices,))
    if slices is not None:
        yield _no_slices(slices) if slices.sliced is None else _alternative(SLICES, slices.sliced, batch)


def _no_chain(search: GraphSearch | SliceSearch) -> TrainingAlternative:
    missing = least_missing_bytes(search.problem, search.costs)
    return TrainingAlternative(name=CHAIN, missing_bytes=missing, why_not=("No chain of stages fits into memory.",))


def _graphs(search: GraphSearch, batch: int) -> Iterator[TrainingAlternative]:
    """Chains are graphs too: without stages side by side their best is Alpa's."""
    if search.graph is not None:
        yield _alternative(GRAPH, search.graph, batch)
    elif search.chain is not None:
        why = "No stages can run side by side here: its best is alpa's chain."
        yield replace(_alternative(GRAPH, search.chain, batch), why_not=(why,))
    if search.alike is not None and search.graph is not search.alike:
        yield _alternative(ALIKE, search.alike, batch)


def _no_slices(slices: SliceSearch) -> TrainingAlternative:
    if slices.least_s == float("inf"):
        missing = least_missing_bytes(slices.problem, slices.costs)
        return TrainingAlternative(name=SLICES, missing_bytes=missing, why_not=("No slices fit into memory.",))
    why = f"Slices that cost nothing would take {format_duration(slices.least_s)}: too little is saved, or none fits."
    return TrainingAlternative(name=SLICES, least_s=slices.least_s, why_not=(why,))


def _alternative(name: str, found: Found | FoundGraph | FoundSlices, batch: int) -> TrainingAlternative:
    words = f"{len(found.stages)} stages, micro-batch {batch // found.num_micro_batches}"
    sizes = [stage.micro_batch for stage in found.stages if stage.micro_batch]
    if sizes:
        words = f"{len(found.stages)} stages, micro-batches of {', '.join(map(str, sizes))}"
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
    if search.alike is not None and graph is not search.alike:
        sizes = ", ".join(str(stage.micro_batch) for stage in graph.stages)
        saved = 1 - graph.iteration_s / search.alike.iteration_s
        what += f" (stages with micro-batches of {sizes} examples: {saved:.2%} less than all with one size)"
    return f"{what}{_beside(chain, graph.iteration_s)}"


def _slice_reason(search: SliceSearch) -> str:
    sliced = search.sliced
    if sliced is None:
        return f"terapipe: {_no_slices(search).why_not[0]}"
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
