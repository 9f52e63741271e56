"""What operators and the communication between them take on device meshes. Pure.

Meshes on which a layer's operators can be split alike are priced together, with several sizes of micro-batches: every
figure is an array over pairs of a mesh and a size, which are called meshes too.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Protocol

import numpy as np

from headway.core.cost.costs import Costs
from headway.core.device_mesh import DeviceMesh, DeviceMeshLinks
from headway.core.graph import Operator, OperatorKind, TensorRole, TensorSpec
from headway.core.iteration import Access, Dim, IterationSpace, Reduction
from headway.core.sharding_spec import ShardingSpec
from headway.core.training_cluster import NodeGroup
from headway.planner.intra.quantities import Floats
from headway.planner.intra.resharding import reshard
from headway.planner.intra.strategies import PartialSum, Strategy

_MOMENTS = 2  # numbers of each row that normalisations sum
_EXCHANGE = "all_to_all"
_ADAM_READ, _ADAM_WRITTEN = 4, 3  # numbers of float32 for each parameter

Delivery = tuple[ShardingSpec, tuple[int, ...]]
"""How partial results lie, and along which mesh axes they have to be joined."""
Work = tuple[Operator, Mapping[str, TensorSpec]]
"""An operator for one size of micro-batches, with its tensors."""
_Way = tuple[Floats, Floats]  # latency, and seconds for each byte of the whole tensor


class AxisLinks(Protocol):
    """The links along the axes of a device mesh."""

    def latency_s(self, axis: int) -> float: ...

    def second_per_byte(self, operation: str, axis: int) -> float:
        """For each byte that leaves a device."""


class OperatorTimes:
    """Seconds of split operators, each found once. Equal operators are one."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._numbers: dict[object, int] = {}
        self._number_of: dict[int, tuple[Operator, int]] = {}  # by identity, which holds as long as they are kept
        self._seconds: dict[tuple[object, ...], float] = {}

    def number(self, operator: Operator, tensors: Mapping[str, TensorSpec]) -> int:
        """The same for operators that take the same time however they are split."""
        known = self._number_of.get(id(operator))
        if known is None:
            shapes = tuple(tensors[name].shape for name in operator.inputs)
            outputs = tuple((tensors[name].shape, tensors[name].dtype) for name in operator.outputs)
            causal = operator.attributes.get("is_causal")
            signature = operator.target, str(operator.space), shapes, outputs, operator.bytes_read, causal
            known = operator, self._numbers.setdefault(signature, len(self._numbers))
            self._number_of[id(operator)] = known
        return known[1]

    def seconds(self, operator: Operator, tensors: Mapping[str, TensorSpec], splits: dict[str, int]) -> float:
        key = self.number(operator, tensors), *sorted(splits.items())
        if key not in self._seconds:
            self._seconds[key] = self._costs.time(operator, tensors, splits).seconds
        return self._seconds[key]

    def adam_s(self, num_elements: int) -> float:
        """Seconds of Adam's update of so many numbers."""
        key = "adam", num_elements
        if key not in self._seconds:
            self._seconds[key] = self._costs.time(*_adam(num_elements)).seconds
        return self._seconds[key]


class MeshCosts:
    """Seconds on several meshes, each found once.

    Attributes:
        shape: of the first mesh; what divides by it or not does so on all of them.
        sizes: of each axis, [meshes].
        shapes: of all meshes.
        num_meshes: that are priced together.
        size_of: of each mesh which of several sizes of micro-batches it is priced for.
    """

    def __init__(
        self,
        times: OperatorTimes,
        links: Sequence[AxisLinks],
        shapes: Sequence[Sequence[int]],
        size_of: Sequence[int],
    ) -> None:
        axes = range(len(shapes[0]))
        self.shape = tuple(shapes[0])
        self.num_meshes = len(shapes)
        self.sizes: list[Floats] = [np.array([shape[axis] for shape in shapes], np.float64) for axis in axes]
        self.shapes = [tuple(shape) for shape in shapes]
        self.size_of = np.array(size_of, np.intp)
        self._times = times
        self._latency_s = [np.array([each.latency_s(axis) for each in links]) for axis in axes]
        self._second_per_byte = {
            operation: [np.array([each.second_per_byte(operation, axis) for each in links]) for axis in axes]
            for operation in ("all_gather", "all_to_all", "all_reduce", "reduce_scatter")
        }
        self._computed: dict[tuple[tuple[int, ...], tuple[str | None, ...]], Floats] = {}
        self._ways: dict[tuple[object, ...], _Way] = {}
        self._tables: dict[tuple[object, ...], _Way] = {}
        self._moved: dict[tuple[str, bytes, int], Floats] = {}

    def compute_s(self, works: Sequence[Work], loops: Sequence[str | None]) -> Floats:
        """[meshes]: seconds of a device's part of an operator when each mesh axis splits a loop.

        Args:
            works: the operator for each size of micro-batches.
        """
        key = tuple([self._times.number(*work) for work in works]), tuple(loops)
        if key not in self._computed:
            of_meshes = [works[size] for size in self.size_of]
            self._computed[key] = np.array(
                [
                    self._times.seconds(operator, tensors, _splits(loops, shape))
                    for (operator, tensors), shape in zip(of_meshes, self.shapes, strict=True)
                ]
            )
        return self._computed[key]

    def collective_s(self, operation: str, num_bytes: Floats | float, *, axis: int) -> Floats:
        """[meshes]: seconds of a collective along an axis in which `num_bytes` leave each device."""
        if isinstance(num_bytes, float | int) and not num_bytes:
            return np.zeros(self.num_meshes)
        return np.asarray(self._latency_s[axis] + num_bytes * self._second_per_byte[operation][axis])

    def moved_s(self, operation: str, num_bytes: Floats, *, axis: int) -> Floats:
        """[meshes]: seconds of a collective along an axis for a tensor of so many bytes that nothing else shards."""
        key = operation, num_bytes.tobytes(), axis
        if key not in self._moved:
            size = self.sizes[axis]
            share = (size - 1) / size
            if operation == _EXCHANGE:
                share = share / size
            self._moved[key] = self.collective_s(operation, num_bytes * share, axis=axis)
        return self._moved[key]

    def reshard_s(self, num_bytes: float, source: ShardingSpec, target: ShardingSpec) -> Floats:
        """[meshes]: seconds of resharding a tensor of so many bytes in the whole."""
        latency_s, second_per_byte = self._way(source, target)
        return latency_s + num_bytes * second_per_byte if num_bytes else np.zeros(self.num_meshes)

    def reshardings_s(
        self, num_bytes: Floats, sources: Sequence[ShardingSpec], targets: Sequence[ShardingSpec]
    ) -> Floats:
        """[sources, targets, meshes]: seconds of resharding from each to each."""
        key = "reshard", tuple(sources), tuple(targets)
        if key not in self._tables:
            self._tables[key] = _stacked([[self._way(source, target) for target in targets] for source in sources])
        return self._of_bytes(self._tables[key], num_bytes)

    def deliveries_s(self, num_bytes: Floats, targets: Sequence[ShardingSpec], given: Sequence[Delivery]) -> Floats:
        """[targets, given, meshes]: seconds until partial results are joined and lie as each target says."""
        key = "deliver", tuple(targets), tuple(given)
        if key not in self._tables:
            self._tables[key] = _stacked([[self._delivery(lies, target) for lies in given] for target in targets])
        return self._of_bytes(self._tables[key], num_bytes)

    def deliver_s(self, num_bytes: Floats, given: Delivery, target: ShardingSpec) -> Floats:
        """[meshes]: the same of one."""
        return self._of_bytes(self._delivery(given, target), num_bytes)

    def moments_s(self, works: Sequence[Work], strategy: Strategy) -> Floats:
        """[meshes]: seconds of the sums that a normalisation needs before it computes, where its rows are split."""
        space = works[0][0].space
        assert space is not None
        seconds = np.zeros(self.num_meshes)
        for axis, access, spec in _moments(space, strategy):
            whole = np.array([tensors[access.tensor].num_bytes for _, tensors in works], np.float64)[self.size_of]
            row = np.array([_row(operator, access) for operator, _ in works], np.float64)[self.size_of]
            size = self.sizes[axis]
            num_bytes = whole / spec.num_shards(self.sizes) * size / row
            seconds += self.collective_s("all_reduce", 2 * _MOMENTS * num_bytes * (size - 1) / size, axis=axis)
        return seconds

    def adam_s(self, num_elements: Floats) -> Floats:
        """[meshes]: seconds of Adam's update of so many numbers on each device."""
        whole = np.broadcast_to(num_elements, self.num_meshes)
        return np.array([self._times.adam_s(max(1, int(elements))) for elements in whole])

    def _of_bytes(self, way: _Way, num_bytes: Floats) -> Floats:
        latency_s, second_per_byte = way
        return latency_s + num_bytes * second_per_byte if num_bytes.any() else np.zeros_like(latency_s)

    def _way(self, source: ShardingSpec, target: ShardingSpec) -> _Way:
        key = source, target
        if key not in self._ways:
            latency_s, second_per_byte = np.zeros(self.num_meshes), np.zeros(self.num_meshes)
            for step in reshard(np.ones(self.num_meshes), source, target, self.sizes) if source != target else ():
                latency_s += self._latency_s[step.axis]
                second_per_byte += step.sent_bytes * self._second_per_byte[step.operation][step.axis]
            self._ways[key] = latency_s, second_per_byte
        return self._ways[key]

    def _delivery(self, given: Delivery, target: ShardingSpec) -> _Way:
        """An axis that is to shard the joined tensor takes a reduce-scatter, which is half of an all-reduce."""
        key = given, target
        if key in self._ways:
            return self._ways[key]
        source, partial_axes = given
        axes = list(source.axes)
        latency_s, second_per_byte = np.zeros(self.num_meshes), np.zeros(self.num_meshes)
        local = np.ones(self.num_meshes) / source.num_shards(self.sizes)
        for axis in partial_axes:
            size, wanted = self.sizes[axis], target.axes[axis]
            sent = local * (size - 1) / size
            latency_s += self._latency_s[axis]
            if wanted is not None and wanted not in axes:
                second_per_byte += sent * self._second_per_byte["reduce_scatter"][axis]
                axes[axis] = wanted
                local = local / size
            else:
                second_per_byte += 2 * sent * self._second_per_byte["all_reduce"][axis]
        after = self._way(ShardingSpec(tuple(axes)), target)
        self._ways[key] = latency_s + after[0], second_per_byte + after[1]
        return self._ways[key]


class MeshPricing:
    """Prices of meshes of one kind of nodes: what is found for some layers and micro-batches holds for all others."""

    def __init__(self, nodes: NodeGroup, costs: Costs) -> None:
        self.nodes = nodes
        self._times = OperatorTimes(costs)
        self._known: dict[tuple[tuple[DeviceMesh, ...], tuple[int, ...]], MeshCosts] = {}

    def of(self, meshes: Sequence[DeviceMesh], size_of: Sequence[int]) -> MeshCosts:
        """The costs of meshes that are priced together.

        Args:
            size_of: see `MeshCosts`.
        """
        key = tuple(meshes), tuple(size_of)
        if key not in self._known:
            links = [DeviceMeshLinks(self.nodes, mesh) for mesh in meshes]
            self._known[key] = MeshCosts(self._times, links, [mesh.shape for mesh in meshes], size_of)
        return self._known[key]


def is_moment(part: PartialSum) -> bool:
    """Whether what is joined are sums that an operator needs before it computes, not its results."""
    return part.how is Reduction.MOMENTS


def _splits(loops: Sequence[str | None], shape: Sequence[int]) -> dict[str, int]:
    splits: dict[str, int] = {}
    for loop, size in zip(loops, shape, strict=True):
        if loop is not None:
            splits[loop] = splits.get(loop, 1) * size
    return splits


def _stacked(ways: Sequence[Sequence[_Way]]) -> _Way:
    return tuple(np.array([[way[part] for way in row] for row in ways]) for part in range(2))  # type: ignore[return-value]


def _row(operator: Operator, access: Access) -> int:
    """Elements that are summed to one."""
    assert operator.space is not None
    return prod(dim.size for dim in operator.space.dims if dim.name in access.reduced)


def _moments(space: IterationSpace, strategy: Strategy) -> list[tuple[int, Access, ShardingSpec]]:
    """The first result that needs sums along each axis."""
    first: dict[int, tuple[int, Access, ShardingSpec]] = {}
    for part in strategy.partial:
        if is_moment(part):
            first.setdefault(part.axis, (part.axis, space.writes[part.output], strategy.writes[part.output]))
    return list(first.values())


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
