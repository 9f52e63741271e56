"""How the state of a parameter is sharded beside how operators use it: the stages of ZeRO. Pure."""

from collections.abc import Iterable, Sequence

import numpy as np

from headway.core.graph import TensorSpec
from headway.core.precision import Precision
from headway.core.sharding_spec import ShardingSpec
from headway.planner.intra.mesh_costs import MeshCosts
from headway.planner.intra.quantities import Floats, Quantity

NUM_ZERO_STAGES = 4


def parameter_options(
    parameter: TensorSpec,
    spec: ShardingSpec,
    *,
    gradient: ShardingSpec | None,
    partial_axes: Iterable[int],
    mesh: MeshCosts,
    precision: Precision,
) -> Floats:
    """The quantities of a parameter in each ZeRO stage: [stages, quantities].

    Along axes that replicate it, each device can keep a part of the optimizer's state (1), of the gradient (2), and of
    the parameter itself (3). An all-reduce of gradients is then a reduce-scatter, and an all-gather of parameters.

    Args:
        spec: as operators use it.
        gradient: as the backward pass gives it; None for one that is not trained.
        partial_axes: along which gradients are joined.
    """
    elements = parameter.num_elements / spec.num_shards(mesh.shape)
    replicated = [axis for axis, shard in enumerate(spec.axes) if shard is None and mesh.shape[axis] > 1]
    copies = int(np.prod([mesh.shape[axis] for axis in replicated], initial=1))
    options = np.zeros((NUM_ZERO_STAGES, len(Quantity)))
    kept = np.array([1.0, 1.0, 1.0, 1 / copies]) * elements * precision.weight_bytes
    if gradient is None:
        options[:, Quantity.STATE_BYTES] = elements * precision.weight_bytes
        return options
    kept += np.array([1.0, 1.0, 1 / copies, 1 / copies]) * elements * precision.gradient_bytes
    kept += np.array([1.0, 1 / copies, 1 / copies, 1 / copies]) * elements * precision.optimizer_bytes
    options[:, Quantity.STATE_BYTES] = kept
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


def _along(axes: Sequence[int], operation: str, num_bytes: float, mesh: MeshCosts) -> float:
    """Seconds of a collective along several axes, one after the other, each with what the last one left.

    Args:
        num_bytes: of the tensor on each device where it is whole.
    """
    seconds = 0.0
    for axis in axes:
        size = mesh.shape[axis]
        sent = num_bytes * (size - 1) / size
        seconds += mesh.collective_s(operation, 2 * sent if operation == "all_reduce" else sent, axis=axis)
        if operation != "all_reduce":
            num_bytes /= size
    return seconds
