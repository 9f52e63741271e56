"""GraphPipe's search over sizes of micro-batches, and PipeDream's in the same frame. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headway.planner.graphpipe.partitioner import Partitioner
from headway.planner.graphpipe.pipeline import GraphPipeline, StageChoice, make_chain
from headway.planner.graphpipe.problem import PipelineProblem
from headway.planner.graphpipe.series_parallel import Decomposition, Parallel, Series, decompose
from headway.planner.graphpipe.stage_sizes import with_stage_sizes

_MOST_MIXED = 3
_NEAR = (1.01, 1.03, 1.1, 1.2, 1.4)


@dataclass(frozen=True, kw_only=True)
class GraphSearch:
    """Attributes:
    decomposition: of the problem's operators, with what was added to make it series-parallel.
    least: the pipeline with the least time per sample: equation 1. Of equal ones that with the shorter iteration.
    fastest: that with the shortest simulated iteration, of the best for each size of micro-batches.
    of_sizes: the best for each size of micro-batches.
    partitioners: that found them.
    """

    decomposition: Decomposition
    least: GraphPipeline
    fastest: GraphPipeline
    of_sizes: tuple[GraphPipeline, ...]
    partitioners: tuple[Partitioner, ...]

    @cached_property
    def refined(self) -> GraphPipeline:
        """The shortest simulated iteration beyond equation 1: of pipelines whose stages are somewhat slower too, for
        they may be shallower, and with micro-batches of other sizes in some stages."""
        near = [min((each, *self._near(each)), key=lambda other: other.iteration_s) for each in self.of_sizes]
        return fastest_mixed(near)

    def _near(self, best: GraphPipeline) -> Iterator[GraphPipeline]:
        """Pipelines whose stages take up to so much longer than the best one's, of each depth with fewer devices."""
        for share in _NEAR:
            for partitioner in self.partitioners:
                yield from partitioner.pipelines(best.stages[0].micro_batch, share * best.time_per_sample)


def search_graph(problem: PipelineProblem, micro_batches: Iterable[int] | None = None) -> GraphSearch | None:
    """GraphPipe's search; None where nothing fits.

    Stages that hold parts of several branches are in its space only as runs of the operators' order, as PipeDream has
    them: a chain is a graph too.

    Args:
        micro_batches: sizes to try; None for all.
    """
    decomposition, partitioners = graph_partitioners(problem)
    found = _pipelines(partitioners, problem.micro_batches() if micro_batches is None else list(micro_batches))
    if not found:
        return None
    return GraphSearch(
        decomposition=decomposition,
        least=min(found, key=lambda each: (each.time_per_sample, each.iteration_s)),
        fastest=min(found, key=lambda each: each.iteration_s),
        of_sizes=tuple(found),
        partitioners=tuple(partitioners),
    )


def fastest_mixed(pipelines: Sequence[GraphPipeline]) -> GraphPipeline:
    """The fastest of what the fastest few pipelines become with micro-batches of different sizes."""
    few = sorted(pipelines, key=lambda each: each.iteration_s)[:_MOST_MIXED]
    return min(map(with_stage_sizes, few), key=lambda each: each.iteration_s)


def _in_order(pipeline: GraphPipeline) -> GraphPipeline:
    """The same runs of the operators' order, one after another."""
    stages = sorted(pipeline.stages, key=lambda stage: stage.operators)
    choices = [StageChoice(stage.operators, stage.num_devices) for stage in stages]
    return make_chain(pipeline.problem, choices, stages[0].micro_batch)


def graph_partitioners(problem: PipelineProblem) -> tuple[Decomposition, list[Partitioner]]:
    """The series-parallel tree of a problem, and the searches on it and, where it has forks, on its order."""
    middle = problem.num_sizes // 2
    decomposition = decompose((problem.forward_s + problem.backward_s)[:, middle].tolist(), problem.edges)
    root = decomposition.root
    found = [Partitioner(problem, root)]
    if isinstance(root, Parallel) or (isinstance(root, Series) and not all(isinstance(p, int) for p in root.parts)):
        found.append(linear_partitioner(problem))
    return decomposition, found


def search_chain(problem: PipelineProblem, micro_batches: Iterable[int] | None = None) -> list[GraphPipeline]:
    """PipeDream's search: the best cut of the operators' order for each size of micro-batches."""
    sizes = problem.micro_batches() if micro_batches is None else list(micro_batches)
    return [_in_order(found) for found in _pipelines([linear_partitioner(problem)], sizes)]


def least_time(problem: PipelineProblem, partitioners: list[Partitioner]) -> GraphPipeline | None:
    """The pipeline with the least time per sample over all sizes of micro-batches; the largest come first, as they
    are mostly the fastest, and the others only have to show that they are not."""
    best: GraphPipeline | None = None
    for micro_batch in reversed(problem.micro_batches()):
        for partitioner in partitioners:
            found = partitioner.fastest(micro_batch, below_s=np.inf if best is None else best.time_per_sample)
            best = found or best
    return best


def linear_partitioner(problem: PipelineProblem) -> Partitioner:
    """On the operators in their order, one after another."""
    return Partitioner(problem, Series(tuple(range(problem.num_operators))))


def _pipelines(partitioners: list[Partitioner], micro_batches: list[int]) -> list[GraphPipeline]:
    """For each size the pipeline with the least time per sample of each partitioner, if it is less than the ones'
    before it."""
    found = []
    for micro_batch in micro_batches:
        best: GraphPipeline | None = None
        for partitioner in partitioners:
            other = partitioner.fastest(micro_batch, below_s=np.inf if best is None else best.time_per_sample)
            best = other or best
        if best is not None:
            found.append(best)
    return found
