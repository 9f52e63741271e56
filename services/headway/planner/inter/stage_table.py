"""What every run of layers takes on every submesh, as the stage cut needs it (dissertation section 3.5.2). Pure."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from headway.core.cost.costs import Costs
from headway.core.device_mesh import DeviceMesh, DeviceMeshLinks, Submesh, handover_s
from headway.core.precision import Precision
from headway.core.training_cluster import NodeGroup
from headway.planner.inter.ranges import range_quantities
from headway.planner.inter.stage_dp import StageCosts
from headway.planner.intra.layer import Layer
from headway.planner.intra.layer_problem import LayerProblem
from headway.planner.intra.layer_table import LayerTable, make_table
from headway.planner.intra.mesh_costs import MeshCosts
from headway.planner.intra.placing import TrainingGraph, place_layer
from headway.planner.intra.quantities import Floats, Prices, Quantity

_MOST_SUCCESSORS = np.iinfo(np.int32).max // 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayeredStep:
    """A training step of one micro-batch, cut into layers.

    Attributes:
        kinds: of each layer the first one that is equal to it.
        precision: of its parameters.
    """

    training: TrainingGraph
    layers: Sequence[Layer]
    keys: Sequence[Hashable]
    precision: Precision

    @property
    def kinds(self) -> list[int]:
        first: dict[Hashable, int] = {}
        return [first.setdefault(key, i) for i, key in enumerate(self.keys)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A way to run a stage on a submesh.

    Attributes:
        shape: of the mesh.
        price: index of the price of memory.
    """

    shape: tuple[int, int]
    recomputes: bool
    price: int


def layer_problems(step: LayeredStep, nodes: NodeGroup, mesh: DeviceMesh, costs: Costs) -> dict[int, LayerProblem]:
    """The sharding problems of all kinds of layers on one mesh."""
    priced = MeshCosts(costs, DeviceMeshLinks(nodes, mesh), mesh.shape)
    return {kind: place_layer(step.training, step.layers[kind], priced, step.precision) for kind in set(step.kinds)}


def layer_tables(
    step: LayeredStep, problems: dict[int, LayerProblem], prices: Prices, *, recomputes: bool
) -> list[LayerTable]:
    """The tables of all layers, in order; equal layers have the same one."""
    tables = {kind: make_table(problem, prices, recomputes=recomputes) for kind, problem in problems.items()}
    return [tables[kind] for kind in step.kinds]


def mesh_quantities(
    step: LayeredStep,
    nodes: NodeGroup,
    mesh: DeviceMesh,
    costs: Costs,
    *,
    prices: Prices,
    recomputes: Sequence[bool],
) -> Floats:
    """The quantities of all runs of layers on one mesh: [quantities, layers, layers, recomputes x prices]."""
    problems = layer_problems(step, nodes, mesh, costs)
    found = [range_quantities(layer_tables(step, problems, prices, recomputes=again)) for again in recomputes]
    return np.concatenate(found, axis=3)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageTable:
    """Attributes:
    costs: for the stage cut.
    variants: of each submesh.
    """

    submeshes: Sequence[Submesh]
    variants: Sequence[Sequence[Variant]]
    costs: StageCosts


def make_stage_table(
    step: LayeredStep,
    nodes: NodeGroup,
    quantities: dict[DeviceMesh, Floats],
    *,
    num_prices: int,
    recomputes: Sequence[bool],
    reserved_bytes: Floats,
) -> StageTable:
    """Puts together what was found for each mesh.

    Args:
        quantities: of each mesh, as `mesh_quantities` returns them.
        reserved_bytes: [layers]; of each device beside what a stage holds: the workspace of its layers.
    """
    submeshes = sorted({mesh.submesh for mesh in quantities})
    variants: list[list[Variant]] = []
    per_submesh: list[Floats] = []
    for submesh in submeshes:
        meshes = [mesh for mesh in quantities if mesh.submesh == submesh]
        variants.append(
            [
                Variant(shape=(mesh.shape[0], mesh.shape[1]), recomputes=again, price=price)
                for mesh in meshes
                for again in recomputes
                for price in range(num_prices)
            ]
        )
        per_submesh.append(np.concatenate([quantities[mesh] for mesh in meshes], axis=3))
    most = max(each.shape[3] for each in per_submesh)
    num_layers = len(step.layers)
    joint = np.full((len(Quantity), num_layers, num_layers, len(submeshes), most), np.inf)
    for i, each in enumerate(per_submesh):
        joint[:, :, :, i, : each.shape[3]] = each
    for i, submesh in enumerate(submeshes):
        sent = [
            handover_s(nodes, submesh, sum(step.training.tensors[name].num_bytes for name in layer.leaving))
            for layer in step.layers
        ]
        joint[Quantity.FORWARD_S, :, :, i] += np.array(sent)[None, :, None]
        joint[Quantity.BACKWARD_S, :, :, i] += np.array(sent)[None, :, None]
    return StageTable(
        submeshes=submeshes,
        variants=variants,
        costs=StageCosts(
            latency_s=joint[Quantity.FORWARD_S] + joint[Quantity.BACKWARD_S],
            max_successors=_successors(joint, nodes.memory_bytes - reserved_bytes),
            num_devices=np.array([submesh.num_devices for submesh in submeshes], np.int32),
            once_s=joint[Quantity.ONCE_S],
        ),
    )


def _successors(joint: Floats, room_bytes: Floats) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
    """How many stages may follow each run: micro-batches in flight are one more (equation 3.5).

    Args:
        room_bytes: [layers]; the smallest of a run's layers counts.
    """
    num_layers = len(room_bytes)
    room = np.full((num_layers, num_layers), -np.inf)
    for first in range(num_layers):
        room[first, first:] = np.minimum.accumulate(room_bytes[first:])
    with np.errstate(invalid="ignore", divide="ignore"):
        left = room[:, :, None, None] - joint[Quantity.STATE_BYTES]
        in_flight = np.floor(left / joint[Quantity.ACTIVATION_BYTES])
    in_flight = np.where(np.isfinite(joint[Quantity.STATE_BYTES]) & (left >= 0), in_flight, 0)
    in_flight = np.nan_to_num(in_flight, nan=_MOST_SUCCESSORS, posinf=_MOST_SUCCESSORS)
    return (np.clip(in_flight, 0, _MOST_SUCCESSORS) - 1).astype(np.int32)
