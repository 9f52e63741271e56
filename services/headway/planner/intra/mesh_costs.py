"""What operators and the communication between them take on one device mesh. Pure."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from headway.core.cost.costs import Costs
from headway.core.graph import Operator, OperatorKind, TensorRole, TensorSpec
from headway.core.iteration import Access, Dim, IterationSpace, Reduction
from headway.core.sharding_spec import ShardingSpec
from headway.planner.intra.quantities import Floats
from headway.planner.intra.resharding import Collective, MeshLinks, reshard
from headway.planner.intra.strategies import PartialSum, Strategy

_MOMENTS = 2  # numbers of each row that normalisations sum
_ADAM_READ, _ADAM_WRITTEN = 4, 3  # numbers of float32 for each parameter


class MeshCosts:
    """Seconds on one device mesh, each found once.

    Attributes:
        shape: of the mesh.
    """

    def __init__(self, costs: Costs, links: MeshLinks, shape: Sequence[int]) -> None:
        self.shape = tuple(shape)
        self._costs = costs
        self._links = links
        self._computed: dict[tuple[object, ...], float] = {}
        self._resharded: dict[tuple[object, ...], Floats] = {}

    def compute_s(self, operator: Operator, tensors: Mapping[str, TensorSpec], loops: Sequence[str | None]) -> float:
        """Seconds of a device's part of an operator when each mesh axis splits a loop."""
        splits: dict[str, int] = {}
        for loop, size in zip(loops, self.shape, strict=True):
            if loop is not None:
                splits[loop] = splits.get(loop, 1) * size
        outputs = tuple((tensors[name].shape, tensors[name].dtype) for name in operator.outputs)
        shapes = tuple(tensors[name].shape for name in operator.inputs)
        causal = operator.attributes.get("is_causal")
        key = (operator.target, shapes, outputs, operator.bytes_read, causal, *sorted(splits.items()))
        if key not in self._computed:
            self._computed[key] = self._costs.time(operator, tensors, splits).seconds
        return self._computed[key]

    def collective_s(self, operation: str, num_bytes: float, *, axis: int) -> float:
        """Seconds of a collective along an axis in which `num_bytes` leave each device."""
        return self._links.seconds(operation, num_bytes, axis=axis) if num_bytes else 0.0

    def reshard_s(self, num_bytes: float, source: ShardingSpec, target: ShardingSpec) -> float:
        """Seconds of resharding a tensor of so many bytes in the whole."""
        if source == target:
            return 0.0
        steps = _steps(source, target, self.shape)
        return sum(self.collective_s(s.operation, s.sent_bytes * num_bytes, axis=s.axis) for s in steps)

    def reshardings_s(
        self, num_bytes: float, sources: Sequence[ShardingSpec], targets: Sequence[ShardingSpec]
    ) -> Floats:
        """[sources, targets]: seconds of resharding from each to each."""
        key = num_bytes, tuple(sources), tuple(targets)
        if key not in self._resharded:
            rows = [[self.reshard_s(num_bytes, source, target) for target in targets] for source in sources]
            self._resharded[key] = np.array(rows)
        return self._resharded[key]

    def deliver_s(
        self, num_bytes: float, source: ShardingSpec, partial_axes: Sequence[int], target: ShardingSpec
    ) -> float:
        """Seconds until partial results are joined and lie as `target` says.

        An axis that is to shard the joined tensor takes a reduce-scatter, which is half of an all-reduce.
        """
        seconds = 0.0
        axes = list(source.axes)
        local = num_bytes / source.num_shards(self.shape)
        for axis in partial_axes:
            size, wanted = self.shape[axis], target.axes[axis]
            sent = local * (size - 1) / size
            if wanted is not None and wanted not in axes:
                seconds += self.collective_s("reduce_scatter", sent, axis=axis)
                axes[axis] = wanted
                local /= size
            else:
                seconds += self.collective_s("all_reduce", 2 * sent, axis=axis)
        return seconds + self.reshard_s(num_bytes, ShardingSpec(tuple(axes)), target)

    def moments_s(self, operator: Operator, tensors: Mapping[str, TensorSpec], strategy: Strategy) -> float:
        """Seconds of the sums that a normalisation needs before it computes, where its rows are split."""
        assert operator.space is not None
        sizes = {dim.name: dim.size for dim in operator.space.dims}
        seconds = 0.0
        for axis, access, spec in _moments(operator.space, strategy):
            row = 1
            for loop in access.reduced:
                row *= sizes[loop]
            num_bytes = tensors[access.tensor].num_bytes / spec.num_shards(self.shape) * self.shape[axis] / row
            size = self.shape[axis]
            seconds += self.collective_s("all_reduce", 2 * _MOMENTS * num_bytes * (size - 1) / size, axis=axis)
        return seconds

    def adam_s(self, num_elements: float) -> float:
        """Seconds of Adam's update of so many numbers on each device."""
        elements = max(1, int(num_elements))
        key = ("adam", elements)
        if key not in self._computed:
            self._computed[key] = self._costs.time(*_adam(elements)).seconds
        return self._computed[key]


def is_moment(part: PartialSum) -> bool:
    """Whether what is joined are sums that an operator needs before it computes, not its results."""
    return part.how is Reduction.MOMENTS


def _moments(space: IterationSpace, strategy: Strategy) -> list[tuple[int, Access, ShardingSpec]]:
    """The first result that needs sums along each axis."""
    first: dict[int, tuple[int, Access, ShardingSpec]] = {}
    for part in strategy.partial:
        if is_moment(part):
            first.setdefault(part.axis, (part.axis, space.writes[part.output], strategy.writes[part.output]))
    return list(first.values())


@lru_cache(maxsize=1 << 17)
def _steps(source: ShardingSpec, target: ShardingSpec, shape: tuple[int, ...]) -> tuple[Collective, ...]:
    """The collectives that reshard a tensor of one byte."""
    return tuple(reshard(1.0, source, target, shape))


def _adam(num_elements: int) -> tuple[Operator, dict[str, TensorSpec]]:
    access = Access(tensor="parameter", dims=("d0",))
    operator = Operator(
        name="adam",
        kind=OperatorKind.ELEMENTWISE,
        target="aten._fused_adam_.default",
        inputs=("parameter",),
        outputs=("parameter",),
        bytes_read=4 * _ADAM_READ * num_elements,
        bytes_written=4 * _ADAM_WRITTEN * num_elements,
        space=IterationSpace(dims=(Dim("d0", num_elements),), reads=(access,), writes=(access,)),
    )
    tensor = TensorSpec(name="parameter", shape=(num_elements,), dtype="float32", role=TensorRole.PARAMETER)
    return operator, {"parameter": tensor}
