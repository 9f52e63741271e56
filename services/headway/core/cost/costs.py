"""Seconds of all operators of a graph on some hardware."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from headway.core.catalogue.figure import Provenance
from headway.core.catalogue.roofline import OperatorTime
from headway.core.cost.sharded import WHOLE, Splits
from headway.core.graph import Graph, Operator, TensorSpec

_LEAST_FIRST = (Provenance.ESTIMATED, Provenance.IMPORTED, Provenance.MEASURED)


class Costs(Protocol):
    """The costs of operators on some hardware."""

    @property
    def name(self) -> str:
        """The hardware's name."""

    def times(self, graph: Graph) -> list[OperatorTime]:
        """Returns the times of all operators of a graph, in order."""

    def time(self, operator: Operator, tensors: Mapping[str, TensorSpec], splits: Splits = WHOLE) -> OperatorTime:
        """Returns the time of one operator on each of the devices that it is split over.

        Args:
            tensors: that it reads and writes, by name, as a whole.
            splits: parts that its loops are split into.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphTime:
    """One pass over a graph, operator after operator.

    Attributes:
        hardware: its name.
        relative_error: of the operators, weighted by their seconds, as if all erred to the same side.
        provenance: of the operators, the least certain that makes up a tenth of the seconds or more.
        operators: in the graph's order.
    """

    hardware: str
    seconds: float
    relative_error: float
    provenance: Provenance
    operators: tuple[OperatorTime, ...]


def graph_time(graph: Graph, costs: Costs) -> GraphTime:
    """Raises what `costs` raises."""
    times = tuple(costs.times(graph))
    seconds = sum(time.seconds for time in times)
    shares = {
        provenance: sum(time.seconds for time in times if time.provenance is provenance) for provenance in _LEAST_FIRST
    }
    return GraphTime(
        hardware=costs.name,
        seconds=seconds,
        relative_error=sum(time.seconds * time.relative_error for time in times) / seconds if seconds else 0.0,
        provenance=next((p for p in _LEAST_FIRST if shares[p] >= 0.1 * seconds and shares[p]), Provenance.ESTIMATED),
        operators=times,
    )
