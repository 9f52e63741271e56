"""How the state of a parameter is sharded beside how operators use it: the stages of ZeRO. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from headway.core.graph import TensorSpec
from headway.core.precision import Precision
from headway.core.sharding_spec import ShardingSpec
from headway.planner.intra.mesh_costs import MeshCosts
from headway.planner.intra.quantities import Floats, Quantity

NUM_ZERO_STAGES = 4

Bytes = float | Floats
Size = int | NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterState:
    """The bytes of a parameter on each device; on several meshes arrays over them."""

    weights_bytes: Bytes
    gradients_bytes: Bytes
    optimizer_bytes: Bytes

    @property
    def total_bytes(self) -> Bytes:
        return self.weights_bytes + self.gradients_bytes + self.optimizer_bytes


def parameter_state(
    parameter: TensorSpec,
    spec: ShardingSpec,
    zero_stage: int,
    mesh_shape: Sequence[Size],
    precision: Precision,
    *,
    is_trained: bool,
) -> ParameterState:
    """What each device keeps of a parameter: ZeRO shards it further along the axes that replicate it."""
    elements = parameter.num_elements / spec.num_shards(mesh_shape)
    copies = prod(mesh_shape[axis] for axis in _replicated_axes(spec, mesh_shape))
    part = elements / copies
    return ParameterState(
        weights_bytes=precision.weight_bytes * (part if zero_stage >= 3 else elements),
        gradients_bytes=is_trained * precision.gradient_bytes * (part if zero_stage >= 2 else elements),
        optimizer_bytes=is_trained * precision.optimizer_bytes * (part if zero_stage >= 1 else elements),
    )


def _replicated_axes(spec: ShardingSpec, mesh_shape: Sequence[Size]) -> list[int]:
    return [axis for axis, shard in enumerate(spec.axes) if shard is None and np.all(mesh_shape[axis] > 1)]


def parameter_options(
    parameter: TensorSpec,
    spec: ShardingSpec,
    *,
    gradient: ShardingSpec | None,
    partial_axes: Iterable[int],
    mesh: MeshCosts,
    precision: Precision,
) -> Floats:
    """The quantities of a parameter in each ZeRO stage: [stages, quantities, meshes].

    Along axes that replicate it, each device can keep a part of the optimizer's state (1), of the gradient (2), and of
    the parameter itself (3). An all-reduce of gradients is then a reduce-scatter, and an all-gather of parameters.

    Args:
        spec: as operators use it.
        gradient: as the backward pass gives it; None for one that is not trained.
        partial_axes: along which gradients are joined.
    """
    elements = parameter.num_elements / (spec.num_shards(mesh.sizes) * np.ones(mesh.num_meshes))
    replicated = _replicated_axes(spec, mesh.shape)
    copies = prod(mesh.sizes[axis] for axis in replicated)
    options = np.zeros((NUM_ZERO_STAGES, len(Quantity), mesh.num_meshes))
    for stage in range(NUM_ZERO_STAGES):
        state = parameter_state(parameter, spec, stage, mesh.sizes, precision, is_trained=gradient is not None)
        options[stage, Quantity.STATE_BYTES] = state.total_bytes
    if gradient is None:
        options[3, Quantity.FORWARD_S] = _along(replicated, "all_gather", elements * precision.weight_bytes, mesh)
        return options
    joined = [axis for axis in partial_axes if mesh.shape[axis] > 1]
    whole = parameter.num_elements * precision.gradient_bytes
    aligned_s = mesh.reshard_s(whole, gradient, spec)
    scatter_s = _along(joined, "reduce_scatter", elements * precision.gradient_bytes, mesh)
    gather_s = _along(replicated, "all_gather", elements * precision.weight_bytes, mesh)
    reduce_s = _along(joined, "all_reduce", elements * precision.gradient_bytes, mesh)
    adam_s = mesh.adam_s(elements), mesh.adam_s(elements / copies)
    options[:, Quantity.ONCE_S] = (
        aligned_s + reduce_s + adam_s[0],
        aligned_s + scatter_s + gather_s + adam_s[1],
        gather_s + adam_s[1],
        adam_s[1],
    )
    options[2, Quantity.BACKWARD_S] = aligned_s + scatter_s
    options[3, Quantity.FORWARD_S] = gather_s
    options[3, Quantity.BACKWARD_S] = gather_s + aligned_s + scatter_s
    return options


def _along(axes: Sequence[int], operation: str, num_bytes: Floats, mesh: MeshCosts) -> Floats:
    """[meshes]: seconds of a collective along several axes, one after the other, each with what the last one left.

    Args:
        num_bytes: of the tensor on each device where it is whole.
    """
    seconds = np.zeros(mesh.num_meshes)
    for axis in axes:
        size = mesh.sizes[axis]
        sent = num_bytes * (size - 1) / size
        seconds += mesh.collective_s(operation, 2 * sent if operation == "all_reduce" else sent, axis=axis)
        if operation != "all_reduce":
            num_bytes = num_bytes / size
    return seconds
