"""How the state of a parameter is sharded beside how operators use it: the stages of ZeRO. Pure."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Generic, TypeVar

import numpy as np

from headway.core.graph import TensorSpec
from headway.core.precision import Precision
from headway.core.sharding_spec import ShardingSpec
from headway.planner.intra.mesh_costs import MeshCosts
from headway.planner.intra.quantities import Floats, Quantity

NUM_ZERO_STAGES = 4

Bytes = TypeVar("Bytes", float, Floats)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterState(Generic[Bytes]):
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
    mesh_shape: Sequence[int],
    precision: Precision,
    *,
    is_trained: bool,
) -> ParameterState[float]:
    """What each device keeps of a parameter: ZeRO shards it further along the axes that replicate it."""
    elements = parameter.num_elements / spec.num_shards(mesh_shape)
    part = elements / prod(mesh_shape[axis] for axis in _replicated_axes(spec, mesh_shape))
    return _state(elements, part, zero_stage, precision, is_trained=is_trained)


def _state(
    elements: Bytes, part: Bytes, zero_stage: int, precision: Precision, *, is_trained: bool
) -> ParameterState[Bytes]:
    """Args:
    elements: of the parameter on each device, as operators use it.
    part: of these what ZeRO leaves on each.
    """
    return ParameterState(
        weights_bytes=precision.weight_bytes * (part if zero_stage >= 3 else elements),
        gradients_bytes=is_trained * precision.gradient_bytes * (part if zero_stage >= 2 else elements),
        optimizer_bytes=is_trained * precision.optimizer_bytes * (part if zero_stage >= 1 else elements),
    )


def _replicated_axes(spec: ShardingSpec, mesh_shape: Sequence[int]) -> list[int]:
    return [axis for axis, shard in enumerate(spec.axes) if shard is None and mesh_shape[axis] > 1]


def parameter_options(
    parameter: TensorSpec,
    spec: ShardingSpec,
    *,
    gradient: ShardingSpec | None,
    partial_axes: Iterable[int],
    mesh: MeshCosts,
    precision: Precision,
    zero_stages: Collection[int],
) -> Floats:
    """The quantities of a parameter in each ZeRO stage: [stages, quantities, meshes].

    Along axes that replicate it, each device can keep a part of the optimizer's state (1), of the gradient (2), and of
    the parameter itself (3). An all-reduce of gradients is then a reduce-scatter, and an all-gather of parameters.

    Args:
        spec: as operators use it.
        gradient: as the backward pass gives it; None for one that is not trained.
        partial_axes: along which gradients are joined.
        zero_stages: that are allowed; all others take for ever.
    """
    elements = parameter.num_elements / (spec.num_shards(mesh.sizes) * np.ones(mesh.num_meshes))
    replicated = _replicated_axes(spec, mesh.shape)
    copies = prod(mesh.sizes[axis] for axis in replicated)
    options = np.zeros((NUM_ZERO_STAGES, len(Quantity), mesh.num_meshes))
    for stage in range(NUM_ZERO_STAGES):
        state = _state(elements, elements / copies, stage, precision, is_trained=gradient is not None)
        options[stage, Quantity.STATE_BYTES] = state.total_bytes
    forbidden = [stage for stage in range(NUM_ZERO_STAGES) if stage not in zero_stages]
    if gradient is None:
        options[forbidden, Quantity.ONCE_S] = np.inf
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
    options[forbidden, Quantity.ONCE_S] = np.inf
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
