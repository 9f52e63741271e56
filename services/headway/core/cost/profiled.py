"""Seconds of a model's operators from what each of them was measured to take."""

from collections.abc import Mapping

from headway.core.catalogue.figure import Provenance
from headway.core.catalogue.roofline import OperatorTime
from headway.core.cost.costs import Costs
from headway.core.cost.sharded import WHOLE, Splits
from headway.core.graph import Graph, Operator, TensorSpec
from headway.core.operator_seconds import UPDATE_TARGET, OperatorSeconds


class ProfiledCosts:
    """Costs of operators that were profiled; implements `headway.core.cost.costs.Costs`. With more examples than were
    profiled, or split, an operator takes longer or shorter as it does by the figures of its device.

    Args:
        base: the costs by which work of other sizes is compared.
        graph: of the profiled step, in the precision in which it was profiled.
    """

    def __init__(self, base: Costs, graph: Graph, measured: OperatorSeconds) -> None:
        self._base, self._measured = base, measured
        figures = {
            operator.name: time.seconds for operator, time in zip(graph.operators, base.times(graph), strict=True)
        }
        known = measured.seconds.keys() & figures.keys()
        self._ratios = {name: measured.seconds[name] / figures[name] for name in known if figures[name]}
        whole = sum(figures[name] for name in known)
        self._usual = sum(measured.seconds[name] for name in known) / whole if whole else 1.0

    @property
    def name(self) -> str:
        return self._measured.hardware

    def times(self, graph: Graph) -> list[OperatorTime]:
        """Raises what the base raises."""
        tensors = graph.tensors_by_name()
        return [self.time(operator, tensors) for operator in graph.operators]

    def time(self, operator: Operator, tensors: Mapping[str, TensorSpec], splits: Splits = WHOLE) -> OperatorTime:
        """What was not measured is as much slower or faster than the base says as all that was. Raises what the base
        raises."""
        time = self._base.time(operator, tensors, splits)
        ratio = self._ratios.get(operator.name)
        seconds = time.seconds * (self._usual if ratio is None else ratio)
        if operator.target == UPDATE_TARGET and self._measured.update_s:
            seconds, ratio = self._measured.update_s * tensors[operator.outputs[0]].num_elements, 1.0
        return OperatorTime(
            seconds=seconds,
            bound=time.bound,
            relative_error=time.relative_error if ratio is None else self._measured.relative_error,
            provenance=time.provenance if ratio is None else Provenance.MEASURED,
        )
