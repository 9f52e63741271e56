"""GraphPipe's search for a training plan: the best graph of stages over all numbers of micro-batches, and with sizes of
their own for its stages. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from headway.core.cost.costs import Costs
from headway.core.errors import FailedPreconditionError
from headway.planner.training.alpa import AlpaSearch, Found
from headway.planner.training.branches import branch_layers
from headway.planner.training.candidates import Ahead, CandidateExecutor, Candidates, Tried, timed
from headway.planner.training.graph_cut import FoundGraph, cut_graph
from headway.planner.training.micro_batches import search_micro_batches
from headway.planner.training.own_sizes import with_own_sizes
from headway.planner.training.problem import TrainingProblem
from headway.planner.training.slice_search import FoundSlices, SliceSearch

Pipeline = Found | FoundGraph | FoundSlices
_Both = tuple[Found | None, FoundGraph | None]


@dataclass
class GraphSearch:
    """The search for one problem. A chain is a graph too: where no graph is faster, it is Alpa's. On several groups of
    nodes there are chains only.

    Attributes:
        costs: of each group of nodes.
        slices: searches chains of whole micro-batches, and of slices of them; None where that makes no sense.
        why_no_slices: in a sentence; empty where nobody asked for them.
        chain, graph: the best that were found of each.
        alike: the best graph whose stages all have micro-batches of one size.
        elsewhere_cpu_s: processor time of candidates that other processes tried.
    """

    problem: TrainingProblem
    costs: Sequence[Costs]
    slices: SliceSearch | None = None
    why_no_slices: str = ""
    chain: Found | None = None
    graph: FoundGraph | None = None
    alike: FoundGraph | None = None
    elsewhere_cpu_s: float = 0.0

    @classmethod
    def with_slices(cls, problem: TrainingProblem, costs: Sequence[Costs]) -> "GraphSearch":
        """The search that looks at slices of tokens too, of a causal language model."""
        try:
            return cls(problem, costs, slices=SliceSearch(problem, costs))
        except FailedPreconditionError as error:
            return cls(problem, costs, why_no_slices=error.message)

    def run(
        self,
        *,
        report: Callable[[Pipeline], None],
        should_stop: Callable[[], bool],
        executor: CandidateExecutor | None = None,
    ) -> Pipeline | None:
        """Searches the best chain, then, of a model with branches, the best graph, by layers that keep branches apart.

        Args:
            executor: tries several numbers of micro-batches at once; None to try one after the other.

        Returns:
            The pipeline with the shortest iteration; None where none fits.
        """
        sliced: FoundSlices | None = None
        if self.slices is None:
            search = AlpaSearch(self.problem, self.costs)
            self.chain = search.run(report=report, should_stop=should_stop, executor=executor)
            self.elsewhere_cpu_s = search.elsewhere_cpu_s
        else:
            self.slices.run(report=report, should_stop=should_stop, executor=executor)
            self.chain, sliced = self.slices.chain, self.slices.sliced
            self.elsewhere_cpu_s = self.slices.elsewhere_cpu_s
        layers = branch_layers(self.problem.graph)
        if layers is not None and len(self.problem.cluster.groups) == 1 and not should_stop():
            self._search_graphs(layers, report=report, should_stop=should_stop, executor=executor)
        found = [each for each in (self.chain, self.graph, sliced) if each is not None]
        return min(found, key=lambda each: each.iteration_s, default=None)

    def _search_graphs(
        self,
        layers: int,
        *,
        report: Callable[[Pipeline], None],
        should_stop: Callable[[], bool],
        executor: CandidateExecutor | None,
    ) -> None:
        shared = Candidates(
            problem=replace(self.problem, num_layers=self.problem.num_layers or layers), costs=self.costs
        )
        numbers = shared.problem.numbers_of_micro_batches()
        ask: Callable[[int], _Both | None] = _Tries(shared)
        if executor is not None:
            ask = ahead = Ahead(
                task=_candidate, shared=shared, numbers=numbers, executor=executor, should_stop=should_stop
            )

        def cut(number: int) -> FoundGraph | None:
            chain, graph = ask(number) or (None, None)
            if _is_faster(chain, self.chain):
                self.chain = chain
            return graph

        def tell(found: FoundGraph) -> None:
            if _is_faster(found, self.chain):
                report(found)

        self.graph = self.alike = search_micro_batches(
            numbers, cut, num_devices=self.problem.cluster.num_devices, report=tell, should_stop=should_stop
        )
        self.elsewhere_cpu_s += 0.0 if executor is None else ahead.cpu_s
        if self.alike is not None and not should_stop():
            search = AlpaSearch(shared.problem, self.costs)
            self.graph = with_own_sizes(self.alike, search, should_stop=should_stop)
            tell(self.graph)


class _Tries:
    """Finds the best chain and the best graph of stages for one number of micro-batches."""

    def __init__(self, shared: Candidates) -> None:
        self._nodes = shared.problem.cluster.groups[0]
        self._alpa = AlpaSearch(shared.problem, shared.costs)

    def __call__(self, number: int) -> _Both:
        tables = self._alpa.tables(number)
        return self._alpa.cut(tables), cut_graph(self._nodes, tables)


def _candidate(shared: Candidates, number: int) -> Tried[_Both]:
    """The same in a process of its own."""
    return timed(partial(_Tries(shared), number))


def _is_faster(found: Found | FoundGraph | None, known: Found | FoundGraph | None) -> bool:
    return found is not None and (known is None or found.iteration_s < known.iteration_s)
