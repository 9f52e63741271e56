"""Seconds of operators on hardware of the catalogue, by its roofline."""

from collections.abc import Callable, Mapping

from headway.core.catalogue.catalogue import Catalogue, is_named
from headway.core.catalogue.device import Device
from headway.core.catalogue.roofline import OperatorTime, OperatorWork, operator_time
from headway.core.cost.sharded import WHOLE, Splits, shard_operator
from headway.core.cost.workload import workload_of
from headway.core.errors import NotFoundError
from headway.core.graph import Graph, Operator, TensorSpec


class CatalogueCosts:
    """Costs of operators from the catalogue's figures; implements `headway.core.cost.costs.Costs`.

    Args:
        num_threads: the compute threads, for a device whose figures are per thread.
    """

    def __init__(self, device: Device, *, num_threads: int = 1) -> None:
        self._device = device
        self._num_threads = num_threads

    @property
    def name(self) -> str:
        return self._device.name

    def times(self, graph: Graph) -> list[OperatorTime]:
        """InvalidArgumentError where the device has no rate for a dtype of the graph."""
        tensors = graph.tensors_by_name()
        return [self.time(operator, tensors) for operator in graph.operators]

    def time(self, operator: Operator, tensors: Mapping[str, TensorSpec], splits: Splits = WHOLE) -> OperatorTime:
        """InvalidArgumentError where the device has no rate for the dtype, or a split cannot be."""
        operator, tensors = shard_operator(operator, tensors, splits)
        dtype = tensors[operator.outputs[0]].dtype if operator.outputs else "float32"
        work = OperatorWork(
            flops=operator.flops,
            bytes_moved=operator.bytes_read + operator.bytes_written,
            dtype=dtype,
            extents=_extents(operator, tensors),
        )
        return operator_time(work, self._device, num_threads=self._num_threads)


def find_device(catalogue: Catalogue, name: str) -> Device:
    """Finds a device by its name in the catalogue, or by the longest of the known names that `name` contains:
    'h100-sxm' is an H100.

    Raises NotFoundError where there is none.
    """
    wanted = name.casefold()
    for known, device in catalogue.devices.items():
        if known.casefold() == wanted:
            return device
    parts = [
        (len(part), device)
        for device in catalogue.devices.values()
        for part in (*device.names, device.name)
        if part and is_named(part.casefold(), wanted)
    ]
    if not parts:
        raise NotFoundError(
            f"The catalogue has no hardware '{name}'.",
            hint=f"It has {', '.join(catalogue.devices)}; 'here' is what `headway profile hardware` found.",
            field="hardware",
        )
    return max(parts, key=lambda part: part[0])[1]


def _extents(operator: Operator, tensors: Mapping[str, TensorSpec]) -> tuple[int, ...]:
    """Rows, columns and the reduced dim of a product; of attention those of its scores."""
    if not operator.flops or operator.space is None:
        return ()
    work = workload_of(operator, tensors)
    sizes = tuple(max(1, round(size)) for size in work.extents)
    pick = _EXTENTS.get(work.family)
    return () if pick is None else pick(*sizes)


_EXTENTS: dict[str, Callable[..., tuple[int, ...]]] = {
    "matmul": lambda m, n, k: (m, n, k),
    "batched_matmul": lambda _, m, n, k: (m, n, k),
    "convolution": lambda taps, pixels, inputs, outputs: (pixels, outputs, inputs * taps),
    "grouped_convolution": lambda pixels, _, group: (pixels, group, 9 * group),
    "attention": lambda _, queries, keys, dim: (queries, keys, dim),
    "causal_attention": lambda _, queries, dim: (queries, queries, dim),
}
