"""The best pipeline of any method by given tables: for what another cluster or batch would change. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from headway.core.cost.costs import Costs
from headway.core.token_slices import TokenSlices
from headway.core.training_cluster import TrainingCluster
from headway.planner.training.alpa import AlpaSearch, Found, StepTables
from headway.planner.training.graph_cut import FoundGraph, cut_graph
from headway.planner.training.graph_search import Pipeline
from headway.planner.training.problem import TrainingProblem
from headway.planner.training.slice_search import FoundSlices, cut_slices


@dataclass(kw_only=True)
class BestCut:
    """Cuts the layers that a pipeline has been found for, as a chain and as that pipeline is.

    Attributes:
        problem: of a graph with its number of layers.
    """

    problem: TrainingProblem
    costs: Sequence[Costs]
    found: Pipeline
    alpa: AlpaSearch = field(init=False)

    def __post_init__(self) -> None:
        if isinstance(self.found, FoundGraph):
            self.problem = replace(self.problem, num_layers=len(self.found.step.layers))
        self.alpa = AlpaSearch(self.problem, self.costs)

    def on(self, cluster: TrainingCluster) -> "BestCut":
        """The same on another cluster."""
        return BestCut(problem=replace(self.problem, cluster=cluster), costs=self.costs, found=self.found)

    def tables(self, number: int) -> StepTables:
        """As `AlpaSearch.tables`."""
        return self.alpa.tables(number)

    def cut(
        self, tables: StepTables, *, cluster: TrainingCluster | None = None, num_micro_batches: int | None = None
    ) -> Pipeline | None:
        """The fastest pipeline; None where none fits.

        Args:
            cluster: the problem's with other memory; None for as it is.
            num_micro_batches: another number than that of the tables.
        """
        chain = self.alpa.cut(tables, cluster=cluster, num_micro_batches=num_micro_batches)
        found = [chain, self._other(tables, cluster, num_micro_batches)]
        return min((each for each in found if each is not None), key=lambda each: each.iteration_s, default=None)

    def _other(
        self, tables: StepTables, cluster: TrainingCluster | None, num_micro_batches: int | None
    ) -> FoundGraph | FoundSlices | None:
        if isinstance(self.found, Found):
            return None
        number = num_micro_batches or tables.num_micro_batches
        if isinstance(self.found, FoundGraph):
            return cut_graph((cluster or self.problem.cluster).groups[0], tables, num_micro_batches=number)
        slices = TokenSlices(self.problem.graph)
        return cut_slices(slices, self.alpa, tables, cluster=cluster, num_micro_batches=number)
