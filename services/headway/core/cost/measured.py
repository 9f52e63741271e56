"""Seconds of operators on hardware that was measured, by interpolation."""

from collections.abc import Mapping

from headway.core.catalogue.figure import Provenance
from headway.core.catalogue.roofline import OperatorTime
from headway.core.cost.sharded import WHOLE, Splits, shard_operator
from headway.core.cost.workload import Workload, workload_of
from headway.core.graph import Graph, Operator, OperatorKind, TensorRole, TensorSpec
from headway.core.hardware.profile import HardwareProfile

_ALIKE_ERROR = 0.5
"""Assumed of operators that are timed as something alike."""


class MeasuredCosts:
    """Costs of operators from the machine's measured profile; implements `headway.core.cost.costs.Costs`."""

    def __init__(self, profile: HardwareProfile) -> None:
        self._profile = profile

    @property
    def name(self) -> str:
        return self._profile.machine.hardware.name

    def times(self, graph: Graph) -> list[OperatorTime]:
        """FailedPreconditionError where the profile lacks what an operator does."""
        tensors, cold_share = graph.tensors_by_name(), self._cold_share(graph)
        return [self._time(op, workload_of(op, tensors), cold_share=cold_share) for op in graph.operators]

    def time(self, operator: Operator, tensors: Mapping[str, TensorSpec], splits: Splits = WHOLE) -> OperatorTime:
        """The time of one operator whose weights are in no cache, as in training.

        Raises FailedPreconditionError where the profile lacks what it does, InvalidArgumentError where a split cannot
        be.
        """
        operator, tensors = shard_operator(operator, tensors, splits)
        return self._time(operator, workload_of(operator, tensors), cold_share=1.0)

    def _time(self, operator: Operator, work: Workload, *, cold_share: float) -> OperatorTime:
        dtype = work.dtype if self._profile.has(work.family, work.dtype) else "float32"
        is_exact = work.is_exact and dtype == work.dtype
        lattice = self._profile.lattice(work.family, dtype)
        seconds = work.scale * lattice.at(work.extents)
        if work.family == "matmul" and dtype == "float32" and cold_share < 1:
            cached = self._profile.lattice("matmul_cached")
            if cached.has_room_for(work.extents[1:], start=1):
                seconds = cold_share * seconds + (1 - cold_share) * min(seconds, cached.at(work.extents))
        overhead_s = self._profile.lattice("dispatch").at((1,))
        seconds += overhead_s
        return OperatorTime(
            seconds=seconds,
            bound="launch" if seconds < 2 * overhead_s else "compute" if operator.flops else "memory",
            relative_error=lattice.relative_error if is_exact else _ALIKE_ERROR,
            provenance=Provenance.MEASURED if is_exact else Provenance.ESTIMATED,
        )

    def _cold_share(self, graph: Graph) -> float:
        """Returns the share of the weights that is no longer in the caches when an operator wants it.

        It follows timings of as many bytes that take turns: caches are shared with others, and keep less than their
        size says.
        """
        used = {name for op in graph.operators if op.kind is not OperatorKind.EMBEDDING for name in op.inputs}
        weights = sum(t.num_bytes for t in graph.tensors if t.role is TensorRole.PARAMETER and t.name in used)
        turns = self._profile.lattice("weights")
        (sizes,) = turns.axes
        cached_s, cold_s, own_s = (turns.at((size,)) for size in (sizes[0], sizes[-1], min(weights, sizes[-1])))
        return min(1.0, max(0.0, (own_s - cached_s) / (cold_s - cached_s))) if cold_s > cached_s else 1.0
