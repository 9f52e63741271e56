"""Estimates the time of each operator of a captured model when a stage's devices share its products. Pure.

Weights are split as Megatron does: a product of whole activations splits its columns, and what it makes is split; a
product of split activations splits its rows, and what it makes is summed over the devices. What lies between works on
its part; all else every device does whole. A sharding solver would do no worse; it plugs in at `operator_costs`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from headway.core.catalogue import Device, OperatorWork, operator_time
from headway.core.graph import Graph, Operator, OperatorKind, TensorRole, TensorSpec, dtype_bytes
from headway.core.links import Links

_WEIGHTED = (OperatorKind.MATMUL, OperatorKind.BATCHED_MATMUL, OperatorKind.CONVOLUTION, OperatorKind.EMBEDDING)
_FALLBACK_DTYPE = "float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCost:
    """The cost of one operator on each of a stage's devices.

    Attributes:
        seconds: with what is exchanged between them.
        error_s: how far that may be off.
        weight_bytes: by the names of the parameters that it reads.
    """

    seconds: float
    error_s: float
    weight_bytes: dict[str, int]


def operator_costs(graph: Graph, device: Device, links: Links, *, op: int) -> list[OperatorCost]:
    """Returns the costs of a forward pass on `op` devices, in the graph's order. InvalidArgumentError where the device
    has no rate.

    Args:
        links: between the devices of a stage.
    """
    tensors = graph.tensors_by_name()
    split: set[str] = set()
    costs = []
    for operator in graph.operators:
        weights = _weights(operator, tensors)
        is_split = op > 1 and any(name in split for name in operator.inputs)
        is_shared = op > 1 and (bool(weights) or is_split)
        has_sum = is_shared and bool(weights) and (is_split or operator.kind is OperatorKind.EMBEDDING)
        if is_shared and not has_sum:
            split.update(operator.outputs)
        time = operator_time(_work(operator, tensors, device, num_parts=op if is_shared else 1), device)
        exchange_s = 0.0
        if has_sum:
            num_bytes = sum(tensors[name].num_bytes for name in operator.outputs if name in tensors)
            exchange_s = links.seconds("all_reduce", 2 * (op - 1) / op * num_bytes, num_ranks=op)
        costs.append(
            OperatorCost(
                seconds=time.seconds + exchange_s,
                error_s=time.seconds * time.relative_error + exchange_s / 2,
                weight_bytes=_parameter_bytes(operator, tensors, weights, op),
            )
        )
    return costs


def _weights(operator: Operator, tensors: dict[str, TensorSpec]) -> list[str]:
    """Parameters that a product may split: those of two dims at least."""
    if operator.kind not in _WEIGHTED:
        return []
    return [
        name
        for name in operator.inputs
        if name in tensors and tensors[name].role is TensorRole.PARAMETER and len(tensors[name].shape) > 1
    ]


def _parameter_bytes(
    operator: Operator, tensors: dict[str, TensorSpec], weights: Sequence[str], op: int
) -> dict[str, int]:
    held = (TensorRole.PARAMETER, TensorRole.BUFFER)
    return {
        name: -(-tensors[name].num_bytes // (op if name in weights else 1))
        for name in operator.inputs
        if name in tensors and tensors[name].role in held
    }


def _work(operator: Operator, tensors: dict[str, TensorSpec], device: Device, *, num_parts: int) -> OperatorWork:
    extents = _extents(operator) if operator.flops else ()
    dtype = _dtype(operator, tensors, device)
    return OperatorWork(
        flops=operator.flops / num_parts,
        bytes_moved=(operator.bytes_read + operator.bytes_written) / num_parts,
        dtype=dtype,
        extents=extents,
    )


def _extents(operator: Operator) -> tuple[int, ...]:
    """Sizes of the loops by the operands that they run along; those that run along all are a batch."""
    if operator.space is None:
        return ()
    accesses = [*operator.space.reads[:2], *operator.space.writes[:1]]
    along = [access.loops for access in accesses]
    extents: dict[tuple[bool, ...], list[int]] = {}
    for dim in operator.space.dims:
        pattern = tuple(dim.name in loops for loops in along)
        if any(pattern) and not all(pattern):
            extents.setdefault(pattern, []).append(dim.size)
    return tuple(prod(sizes) for sizes in extents.values())


def _dtype(operator: Operator, tensors: dict[str, TensorSpec], device: Device) -> str:
    """Returns the dtype of the products. For a device that lacks it, another one of as many bytes stands in."""
    dtypes = [tensors[name].dtype for name in operator.inputs if name in tensors and "float" in tensors[name].dtype]
    dtype = dtypes[0] if dtypes else _FALLBACK_DTYPE
    if dtype in device.peak:
        return dtype
    alike = [known for known in device.peak if dtype_bytes(known) == dtype_bytes(dtype)]
    return alike[0] if alike else dtype
