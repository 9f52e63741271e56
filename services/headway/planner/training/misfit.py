"""What is missing where no plan fits into the memory of the devices. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from headway.core.cost.costs import Costs
from headway.core.errors import FailedPreconditionError
from headway.core.training_cluster import NodeGroup, TrainingCluster
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
    missing_bytes: the least that each device would need more for some plan to fit; None where no plan is possible at
        all.
    times_nodes: how many times as many nodes are enough; None for none that was tried.
    batch: the largest that fits of a half, a quarter and so on; None for none that was tried.
    """

    problem: TrainingProblem
    missing_bytes: int | None
    times_nodes: int | None = None
    batch: int | None = None

    def sentence(self) -> str:
        if self.missing_bytes is None:
            return f"No pipeline of {self.problem.model} uses all devices of {self.problem.cluster.label}"
        return (
            f"{self.problem.model} does not fit on {self.problem.cluster.label}: the best plan for memory lacks "
            f"{self.missing_bytes} bytes ({format_bytes(self.missing_bytes)}) on its fullest device"
        )

    def error(self) -> FailedPreconditionError:
        return FailedPreconditionError(f"{self.sentence()}.", hint=f"{self._hint()}.", field="cluster")

    def _hint(self) -> str:
        if self.missing_bytes is None:
            return "Each stage has a layer at least: take fewer devices, more layers, or a method that copies stages"
        fits = []
        if self.times_nodes is not None:
            more = [
                f"{self.times_nodes * nodes.num_nodes} nodes of {nodes.devices_per_node} {nodes.device} instead of "
                f"{nodes.num_nodes}"
                for nodes in self.problem.cluster.groups
            ]
            fits.append(" and ".join(more))
        if self.batch is not None:
            fits.append(f"a batch of {self.batch} instead of {self.problem.batch}")
        if fits:
            return f"This fits: {', or '.join(fits)}"
        return f"Take devices with more memory: {_MORE_NODES[-1]} times as many are too few, and no smaller batch fits"


def misfit_of(problem: TrainingProblem, costs: Sequence[Costs]) -> Misfit:
    """What a problem lacks for which a search has found nothing."""
    missing = least_missing_bytes(problem, costs)
    if missing is None:
        return Misfit(problem=problem, missing_bytes=None)
    return Misfit(
        problem=problem,
        missing_bytes=missing,
        times_nodes=_enough_nodes(problem, costs),
        batch=_smaller_batch(problem, costs),
    )


def least_missing_bytes(problem: TrainingProblem, costs: Sequence[Costs]) -> int | None:
    """The least that each device would need more for a chain of stages to fit; None where none is possible at all."""
    missing = (missing_bytes(search, each, problem.cluster) for search, each in _smallest(problem, costs))
    return min((each for each in missing if each is not None), default=None)


def missing_bytes(search: AlpaSearch, tables: StepTables, cluster: TrainingCluster) -> int | None:
    """The least that each device would need more, within a hundredth of what it needs then; None where no pipeline is
    possible at all."""
    found = search.cut(tables, cluster=_with_more(cluster, _UNBOUNDED))
    if found is None:
        return None
    has = max(nodes.memory_bytes for nodes in cluster.groups)
    least, enough = -min(nodes.memory_bytes for nodes in cluster.groups), _beyond(found, cluster)
    while has + enough > (has + least) * _CLOSE + 1:
        middle = (least + enough) // 2
        found = search.cut(tables, cluster=_with_more(cluster, middle))
        if found is None:
            least = middle
        else:
            enough = min(middle, _beyond(found, cluster))
    return max(0, enough)


def _with_more(cluster: TrainingCluster, num_bytes: int) -> TrainingCluster:
    def more(nodes: NodeGroup) -> NodeGroup:
        return replace(nodes, memory_bytes=nodes.memory_bytes + num_bytes)

    return TrainingCluster(groups=tuple(map(more, cluster.groups)))


def _beyond(found: Found, cluster: TrainingCluster) -> int:
    """What a plan needs more than there is, on the device that lacks most."""
    return max(stage.memory.total_bytes - cluster.groups[stage.group].memory_bytes for stage in found.stages)


def _smallest(problem: TrainingProblem, costs: Sequence[Costs]) -> Iterator[tuple[AlpaSearch, StepTables]]:
    """The tables for the smallest micro-batches: they need least."""
    search = AlpaSearch(problem, costs)
    for number in problem.numbers_of_micro_batches()[-_SIZES:]:
        yield search, search.tables(number)


def _enough_nodes(problem: TrainingProblem, costs: Sequence[Costs]) -> int | None:
    for factor in _MORE_NODES:
        more = tuple(replace(nodes, num_nodes=factor * nodes.num_nodes) for nodes in problem.cluster.groups)
        larger = replace(problem, cluster=TrainingCluster(groups=more))
        if any(search.cut(tables) is not None for search, tables in _smallest(larger, costs)):
            return factor
    return None


def _smaller_batch(problem: TrainingProblem, costs: Sequence[Costs]) -> int | None:
    """The largest that fits of a half, a quarter and so on, in the wanted numbers of micro-batches."""
    known: dict[int, StepTables] = {}
    for halvings in range(1, _MOST_HALVINGS + 1):
        batch, rest = divmod(problem.batch, 1 << halvings)
        numbers = tuple(number for number in problem.micro_batches if batch and batch % number == 0)
        if rest or (problem.micro_batches and not numbers):
            return None
        smaller = replace(problem, batch=batch, micro_batches=numbers)
        search = AlpaSearch(smaller, costs)
        for number in smaller.numbers_of_micro_batches()[-_SIZES:]:
            size = batch // number
            if size not in known:
                known[size] = search.tables(number)
            if search.cut(known[size], num_micro_batches=number) is not None:
                return batch
    return None
