"""Estimates a captured model as pipelines of several shapes on a device of the catalogue: the parallel configurations
that placement chooses from (dissertation section 4.4.1). Pure."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from headway.core.catalogue import Catalogue, Provenance
from headway.core.cost.catalogued import CatalogueCosts
from headway.core.errors import InvalidArgumentError
from headway.core.graph import Graph, TensorRole
from headway.core.links import Links, UsualLinks
from headway.core.precision import Precision, cast_graph
from headway.core.stage_profile import StageBatch, StageProfile, stage_profile_id
from headway.planner.inter.operator_cost import OperatorCost, computable, operator_costs
from headway.planner.inter.stage_slicing import StageSlicer, StageSlices

T = TypeVar("T")

_SOURCE = "estimated by operators from the catalogue's figures of {device}; stages by dynamic programming"


def estimate_stage_profiles(
    graph: Graph,
    *,
    model: str,
    device: str,
    catalogue: Catalogue,
    max_devices: int,
    created_at_s: float,
    dtype: str | None = None,
    links: Links | None = None,
) -> list[StageProfile]:
    """Estimates profiles of all shapes whose number of stages, and of devices in each, are powers of two.

    Args:
        graph: of a forward pass; its batch is that of the profiles.
        max_devices: devices of the largest shape.
        dtype: that float32 numbers are served in; None for float32.
        links: between the devices; None for the catalogue's.

    Raises:
        NotFoundError: the catalogue has no such device.
        InvalidArgumentError: the graph is empty or of training; there is no such dtype, or the device has no rate for
            it.
    """
    if graph.is_training or not graph.operators:
        raise InvalidArgumentError(
            f"'{model}' is no forward pass with operators.", hint="Capture it without --train.", field="graph"
        )
    known = catalogue.device(device)
    graph = computable(cast_graph(graph, _precision(dtype)), known)
    links = links or UsualLinks(fabric=catalogue.links[known.link].fabric)
    live_bytes = _live_bytes(graph)
    handover_s = [links.seconds("send", num_bytes, num_ranks=2) for num_bytes in live_bytes[1:]]
    profiles = []
    for op in _powers_of_two(max_devices):
        costs = operator_costs(graph, CatalogueCosts(known), links, op=op)
        most = min(max_devices // op, len(costs))
        slicer = StageSlicer([cost.seconds for cost in costs], max_stages=most, handover_s=handover_s)
        for pp in _powers_of_two(most):
            slices = slicer.slices(pp)
            profiles.append(
                StageProfile(
                    profile_id=stage_profile_id(model, device, pp=pp, op=op),
                    model=model,
                    hardware=device,
                    pp=pp,
                    op=op,
                    weight_bytes=tuple(_weight_bytes(part) for part in _parts(costs, slices)),
                    batches=(
                        StageBatch(
                            batch_size=1,
                            stage_latency_s=slices.stage_latency_s,
                            activation_bytes=tuple(int(max(part)) for part in _parts(live_bytes[1:].tolist(), slices)),
                            handover_bytes=tuple(int(part[-1]) for part in _parts(live_bytes[1:].tolist(), slices))[
                                :-1
                            ],
                        ),
                    ),
                    layers_per_stage=slices.layers_per_stage,
                    source=_SOURCE.format(device=device) + _measured_part(links, op=op),
                    provenance=Provenance.ESTIMATED,
                    relative_error=sum(cost.error_s for cost in costs) / sum(cost.seconds for cost in costs),
                    created_at_s=created_at_s,
                )
            )
    return profiles


def _measured_part(links: Links, *, op: int) -> str:
    """Says in a profile's source which exchanges were measured."""
    figures = [links.figure("send", num_ranks=2)]
    if op > 1:
        figures.insert(0, links.figure("all_reduce", num_ranks=op))
    return "".join(
        f"; {figure.operation} of {figure.num_ranks} {figure.provenance}, hardware profile {figure.profile_id}"
        for figure in figures
        if figure.profile_id
    )


def _precision(dtype: str | None) -> Precision:
    try:
        return Precision(dtype or Precision.FLOAT32)
    except ValueError:
        raise InvalidArgumentError(
            f"Numbers are not served in {dtype}.", hint=f"Give one of {', '.join(Precision)}.", field="dtype"
        ) from None


def _powers_of_two(most: int) -> Iterator[int]:
    size = 1
    while size <= most:
        yield size
        size *= 2


def _parts(items: Sequence[T], slices: StageSlices) -> Iterator[Sequence[T]]:
    start = 0
    for size in slices.layers_per_stage:
        yield items[start : start + size]
        start += size


def _weight_bytes(stage: Sequence[OperatorCost]) -> int:
    """Bytes of a stage's parameters; one that several operators read is held once."""
    held: dict[str, int] = {}
    for cost in stage:
        held |= cost.weight_bytes
    return sum(held.values())


def _live_bytes(graph: Graph) -> NDArray[np.float64]:
    """Bytes of activations that are held after each operator, beginning before the first: what a stage that ends there
    hands over."""
    made = {name: number for number, each in enumerate(graph.operators) for name in each.outputs}
    last_read = {name: number for number, each in enumerate(graph.operators) for name in each.inputs}
    changes = np.zeros(len(graph.operators) + 2)
    for tensor in graph.tensors:
        if tensor.role is TensorRole.ACTIVATION and tensor.name in made and tensor.name in last_read:
            changes[made[tensor.name] + 1] += tensor.num_bytes
            changes[last_read[tensor.name] + 1] -= tensor.num_bytes
    return np.cumsum(changes)[:-1]
