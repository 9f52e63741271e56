"""What is missing where no plan fits into the memory of the devices. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from headway.core.cost.costs import Costs
from headway.core.errors import FailedPreconditionError
from headway.core.training_cluster import TrainingCluster
from headway.core.units import format_bytes
from headway.planner.training.alpa import AlpaSearch, Found, StepTables
from headway.planner.training.problem import TrainingProblem

_UNBOUNDED = 1 << 62
_CLOSE = 1.01
_SIZES = 3  # smallest sizes of micro-batches that are tried
_MORE_NODES = (2, 4)
_MOST_HALVINGS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """Attributes:
    needed_bytes: the least that the fullest device of any plan needs; None where no plan is possible at all.
    num_nodes: the next number of nodes that is enough; None for none that was tried.
    batch: the largest that fits of a half, a quarter and so on; None for none that was tried.
    """

    problem: TrainingProblem
    needed_bytes: int | None
    num_nodes: int | None = None
    batch: int | None = None

    @property
    def shortfall_bytes(self) -> int:
        """On each device; 0 where no plan is possible whatever memory there is."""
        if self.needed_bytes is None:
            return 0
        return max(0, self.needed_bytes - self.problem.cluster.groups[0].memory_bytes)

    def sentence(self) -> str:
        if self.needed_bytes is None:
            return f"No pipeline of {self.problem.model} uses all devices of {self.problem.cluster.label}"
        return (
            f"{self.problem.model} does not fit on {self.problem.cluster.label}: the best plan for memory lacks "
            f"{self.shortfall_bytes} bytes ({format_bytes(self.shortfall_bytes)}) on its fullest device"
        )

    def error(self) -> FailedPreconditionError:
        return FailedPreconditionError(f"{self.sentence()}.", hint=f"{self._hint()}.", field="cluster")

    def _hint(self) -> str:
        nodes = self.problem.cluster.groups[0]
        fits = []
        if self.num_nodes is not None:
            fits.append(
                f"{self.num_nodes} nodes of {nodes.devices_per_node} {nodes.device} instead of {nodes.num_nodes}"
            )
        if self.batch is not None:
            fits.append(f"a batch of {self.batch} instead of {self.problem.batch}")
        if fits:
            return f"This fits: {', or '.join(fits)}"
        return f"Take devices with more memory: {_MORE_NODES[-1]} times as many are too few, and no smaller batch fits"


def misfit_of(problem: TrainingProblem, costs: Costs) -> Misfit:
    """What a problem lacks for which a search has found nothing."""
    needed = [needed_bytes(search, each) for search, each in _smallest(problem, costs)]
    known = [each for each in needed if each is not None]
    if not known:
        return Misfit(problem=problem, needed_bytes=None)
    return Misfit(
        problem=problem,
        needed_bytes=min(known),
        num_nodes=_enough_nodes(problem, costs),
        batch=_smaller_batch(problem, costs),
    )


def needed_bytes(search: AlpaSearch, tables: StepTables) -> int | None:
    """The least that the fullest device needs, within a hundredth; None where no pipeline is possible at all."""
    found = search.cut(tables, memory_bytes=_UNBOUNDED)
    if found is None:
        return None
    least, enough = 1.0, _fullest(found)
    while enough > least * _CLOSE:
        middle = int((least + enough) / 2)
        found = search.cut(tables, memory_bytes=middle)
        if found is None:
            least = middle
        else:
            enough = min(middle, _fullest(found))
    return enough


def _fullest(found: Found) -> int:
    return max(stage.memory.total_bytes for stage in found.stages)


def _smallest(problem: TrainingProblem, costs: Costs) -> Iterator[tuple[AlpaSearch, StepTables]]:
    """The tables for the smallest micro-batches: they need least."""
    search = AlpaSearch(problem, problem.cluster.groups[0], costs)
    for number in problem.numbers_of_micro_batches()[-_SIZES:]:
        yield search, search.tables(number)


def _enough_nodes(problem: TrainingProblem, costs: Costs) -> int | None:
    nodes = problem.cluster.groups[0]
    for factor in _MORE_NODES:
        more = replace(nodes, num_nodes=factor * nodes.num_nodes)
        larger = replace(problem, cluster=TrainingCluster(groups=(more,)))
        if any(search.cut(tables) is not None for search, tables in _smallest(larger, costs)):
            return more.num_nodes
    return None


def _smaller_batch(problem: TrainingProblem, costs: Costs) -> int | None:
    """The largest that fits of a half, a quarter and so on, in the wanted numbers of micro-batches."""
    known: dict[int, StepTables] = {}
    for halvings in range(1, _MOST_HALVINGS + 1):
        batch, rest = divmod(problem.batch, 1 << halvings)
        numbers = tuple(number for number in problem.micro_batches if batch and batch % number == 0)
        if rest or (problem.micro_batches and not numbers):
            return None
        smaller = replace(problem, batch=batch, micro_batches=numbers)
        search = AlpaSearch(smaller, smaller.cluster.groups[0], costs)
        for number in smaller.numbers_of_micro_batches()[-_SIZES:]:
            size = batch // number
            if size not in known:
                known[size] = search.tables(number)
            if search.cut(known[size], num_micro_batches=number) is not None:
                return batch
    return None
