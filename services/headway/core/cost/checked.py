"""Costs of operators that are numbers: what has none is told where it is asked for."""

import math
from collections.abc import Mapping

from headway.core.catalogue.roofline import OperatorTime
from headway.core.cost.costs import Costs
from headway.core.cost.sharded import WHOLE, Splits
from headway.core.errors import InvalidArgumentError
from headway.core.graph import Graph, Operator, TensorSpec


class CheckedCosts:
    """Other costs, without those that would make nonsense of a search; implements `headway.core.cost.costs.Costs`."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs

    @property
    def name(self) -> str:
        return self._costs.name

    def times(self, graph: Graph) -> list[OperatorTime]:
        """InvalidArgumentError names an operator whose seconds are no number."""
        times = self._costs.times(graph)
        for operator, time in zip(graph.operators, times, strict=True):
            self._check(operator, time)
        return times

    def time(self, operator: Operator, tensors: Mapping[str, TensorSpec], splits: Splits = WHOLE) -> OperatorTime:
        """InvalidArgumentError where the operator's seconds are no number."""
        time = self._costs.time(operator, tensors, splits)
        self._check(operator, time)
        return time

    def _check(self, operator: Operator, time: OperatorTime) -> None:
        if not (math.isfinite(time.seconds) and time.seconds >= 0):
            raise InvalidArgumentError(
                f"{operator.name} ({operator.target}) takes {time.seconds} s on {self.name}, which is no duration.",
                hint="Measure it again, or correct the catalogue.",
                field="costs",
            )
