"""What every run of layers takes on every submesh, as the stage cut needs it (dissertation section 3.5.2). Pure."""

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headway.core.device_mesh import DeviceMesh, Submesh, crossing_s, handover_s, join_s
from headway.core.precision import Precision
from headway.core.training_cluster import NodeGroup
from headway.planner.inter.ranges import range_quantities
from headway.planner.inter.stage_dp import StageCosts
from headway.planner.intra.alike import alike_meshes
from headway.planner.intra.layer import Layer
from headway.planner.intra.layer_problem import LayerProblem
from headway.planner.intra.layer_table import LayerTable, make_table
from headway.planner.intra.mesh_costs import MeshPricing
from headway.planner.intra.options import ShardingOptions
from headway.planner.intra.placing import place_layer
from headway.planner.intra.quantities import Floats, Prices, Quantity
from headway.planner.intra.training_graph import TrainingGraph

_Kind = tuple[int, frozenset[str]]  # of layers, with the parameters whose state an earlier layer has
_MOST_SUCCESSORS = np.iinfo(np.int32).max // 2


@dataclass(frozen=True, kw_only=True, eq=False)
class LayeredStep:
    """A training step of one micro-batch, cut into layers.

    Attributes:
        kinds: of each layer the first one that is equal to it.
        precision: of its parameters.
        options: of the shardings of its operators.
    """

    training: TrainingGraph
    layers: Sequence[Layer]
    keys: Sequence[Hashable]
    precision: Precision
    options: ShardingOptions = field(default_factory=ShardingOptions)

    @cached_property
    def kinds(self) -> list[int]:
        first: dict[Hashable, int] = {}
        return [first.setdefault(key, i) for i, key in enumerate(self.keys)]

    def sent_bytes(self, first: int, last: int) -> int:
        """What the layers `first` to `last` make of a micro-batch and later ones read. It goes straight to them: what
        only passes by is none of it."""
        passing = set(self.layers[first].entering)
        return sum(self.training.tensors[name].num_bytes for name in self.layers[last].leaving if name not in passing)

    @cached_property
    def shared(self) -> dict[str, list[int]]:
        """The layers that read each trained parameter that several read, such as an embedding that is the head too."""
        readers: dict[str, list[int]] = {}
        operators, trained = self.training.graph.operators, set(self.training.graph.trained)
        for number, layer in enumerate(self.layers):
            for name in dict.fromkeys(name for at in layer.forward for name in operators[at].inputs):
                if name in trained:
                    readers.setdefault(name, []).append(number)
        return {name: layers for name, layers in readers.items() if len(layers) > 1}

    def kinds_of(self, first: int, last: int) -> list[tuple[int, frozenset[str]]]:
        """Of each layer of a run its kind, and the parameters whose state an earlier one has."""
        return [(self.kinds[number], self.borrowed(first, number)) for number in range(first, last + 1)]

    def borrowed(self, first: int, layer: int) -> frozenset[str]:
        """The parameters of a layer whose state, in a run that begins with `first`, an earlier layer has."""
        return frozenset(
            name
            for name, readers in self.shared.items()
            if layer in readers and any(first <= reader < layer for reader in readers)
        )

    def joined_bytes(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Of each parameter that a run shares with other layers the bytes of its gradient, and how many stages can
        hold it at most."""
        for name, readers in self.shared.items():
            inside = sum(first <= reader <= last for reader in readers)
            if 0 < inside < len(readers):
                elements = self.training.tensors[name].num_elements
                yield elements * self.precision.gradient_bytes, len(readers) - inside + 1


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


@dataclass(frozen=True, slots=True, order=True)
class Site:
    """Where a stage can be: a submesh of one of the cluster's groups, by its index."""

    group: int
    submesh: Submesh


@dataclass(frozen=True, slots=True)
class SiteMesh:
    """A device mesh in a group."""

    group: int
    mesh: DeviceMesh

    @property
    def site(self) -> Site:
        return Site(self.group, self.mesh.submesh)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedLayer:
    """The sharding problem of a kind of layers for one size of micro-batches on one mesh, by their indices.

    Attributes:
        problem: its strategies and specs are those for the first size of micro-batches that is split alike.
    """

    kind: int
    size: int
    mesh: int
    problem: LayerProblem
    borrowed: frozenset[str] = frozenset()


def layer_problems(
    steps: Sequence[LayeredStep],
    meshes: Sequence[DeviceMesh],
    pricing: MeshPricing,
    *,
    kinds: Collection[tuple[int, frozenset[str]]],
) -> Iterator[PlacedLayer]:
    """The sharding problems of kinds of layers on several meshes.

    Args:
        steps: one training step, with the same layers, for several sizes of micro-batches.
        kinds: with the parameters whose state an earlier layer has.
    """
    shapes = [mesh.shape for mesh in meshes]
    first = steps[0]
    for kind, borrowed in sorted(kinds, key=lambda each: (each[0], sorted(each[1]))):
        for alike in alike_meshes([step.training for step in steps], first.layers[kind], shapes, first.options):
            sizes = list(dict.fromkeys(size for size, _ in alike))
            priced = pricing.of([meshes[at] for _, at in alike], [sizes.index(size) for size, _ in alike])
            trainings = [steps[size].training for size in sizes]
            problems = place_layer(
                trainings, first.layers[kind], priced, first.precision, first.options, borrowed=borrowed
            )
            for (size, at), problem in zip(alike, problems, strict=True):
                yield PlacedLayer(kind=kind, size=size, mesh=at, problem=problem, borrowed=borrowed)


def mesh_quantities(
    steps: Sequence[LayeredStep],
    meshes: Sequence[DeviceMesh],
    pricing: MeshPricing,
    *,
    prices: Sequence[Prices],
    recomputes: Sequence[bool],
) -> list[list[Floats]]:
    """The quantities of all runs of layers for each size of micro-batches on each mesh: [quantities, layers, layers,
    recomputes x prices].

    Args:
        steps: one training step, with the same layers, for several sizes of micro-batches.
        prices: of memory, for each size.
    """
    ends: dict[tuple[int, int, _Kind, bool], LayerTable] = {}
    kinds = [_kinds(step) for step in steps]
    for placed in layer_problems(steps, meshes, pricing, kinds={kind for each in kinds for kind in each.values()}):
        for again in recomputes:
            table = make_table(placed.problem, prices[placed.size], recomputes=again)
            key = placed.size, placed.mesh, (placed.kind, placed.borrowed), again
            ends[key] = replace(table, options=(), zero_stages={})

    def quantities(size: int, at: int, *, recomputes: bool) -> Floats:
        tables = {pair: ends[size, at, kind, recomputes] for pair, kind in kinds[size].items()}
        own = [tables[layer, layer] for layer in range(len(steps[size].layers))]
        return range_quantities(own, {pair: table for pair, table in tables.items() if pair[0] < pair[1]})

    return [
        [
            np.concatenate([quantities(size, at, recomputes=again) for again in recomputes], axis=3)
            for at in range(len(meshes))
        ]
        for size in range(len(steps))
    ]


def _kinds(step: LayeredStep) -> dict[tuple[int, int], _Kind]:
    """The kind of each layer, and in runs that begin with another one where an earlier layer has parameters of it."""
    kinds, nothing = step.kinds, frozenset[str]()
    found: dict[tuple[int, int], _Kind] = {(at, at): (kind, nothing) for at, kind in enumerate(kinds)}
    for layer, kind in enumerate(kinds):
        for first in range(layer):
            borrowed = step.borrowed(first, layer)
            if borrowed:
                found[first, layer] = kind, borrowed
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageTable:
    """Attributes:
    sites: of which each has its place in the costs.
    costs: for the stage cut.
    variants: of each site.
    """

    sites: Sequence[Site]
    variants: Sequence[Sequence[Variant]]
    costs: StageCosts


def make_stage_table(
    step: LayeredStep,
    groups: Sequence[NodeGroup],
    quantities: Mapping[SiteMesh, Floats],
    *,
    num_prices: int,
    num_micro_batches: int,
    workspace_bytes: Mapping[tuple[Site, bool], Floats],
) -> StageTable:
    """Puts together what was found for each mesh.

    Args:
        quantities: of each mesh, as `mesh_quantities` returns them.
        workspace_bytes: [layers]; of each layer, by the site and whether stages recompute.
    """
    sites = sorted({mesh.site for mesh in quantities})
    recomputes = list(dict.fromkeys(again for _, again in workspace_bytes))
    sent_bytes = {
        (first, last): step.sent_bytes(first, last) for last in range(len(step.layers)) for first in range(last + 1)
    }
    variants: list[list[Variant]] = []
    parts: list[Floats] = []
    for site in sites:
        meshes = [mesh for mesh in quantities if mesh.site == site]
        variants.append(
            [
                Variant(shape=(each.mesh.shape[0], each.mesh.shape[1]), recomputes=again, price=price)
                for each in meshes
                for again in recomputes
                for price in range(num_prices)
            ]
        )
        part = np.concatenate([quantities[mesh] for mesh in meshes], axis=3)
        _add_handover(part, sent_bytes, groups[site.group], site.submesh)
        _add_joining(part, step, groups[site.group], site.submesh)
        reserved = np.stack([_most_of_runs(workspace_bytes[site, again]) for again in recomputes], axis=-1)
        part[Quantity.STATE_BYTES] += np.tile(np.repeat(reserved, num_prices, axis=2), (1, 1, len(meshes)))
        parts.append(part)
    most = max(part.shape[3] for part in parts)
    num_layers = len(step.layers)
    joint = np.full((len(Quantity), num_layers, num_layers, len(sites), most), np.inf)
    for i, part in enumerate(parts):
        joint[:, :, :, i, : part.shape[3]] = part
    memory_bytes = np.array([groups[site.group].memory_bytes for site in sites], np.float64)
    return StageTable(
        sites=sites,
        variants=variants,
        costs=StageCosts(
            latency_s=joint[Quantity.FORWARD_S] + joint[Quantity.BACKWARD_S],
            max_successors=_successors(joint, memory_bytes[:, None], num_micro_batches),
            num_devices=np.array([site.submesh.num_devices for site in sites], np.int32),
            once_s=joint[Quantity.ONCE_S],
            groups=np.array([site.group for site in sites], np.int32),
            crossing_s=_crossings_s(step, groups, sites),
        ),
    )


def left_bytes(step: LayeredStep, last: int) -> int:
    """What goes on to later stages where one ends with a layer."""
    return sum(step.training.tensors[name].num_bytes for name in step.layers[last].leaving)


def _crossings_s(step: LayeredStep, groups: Sequence[NodeGroup], sites: Sequence[Site]) -> Floats:
    """[layers, groups, sites]: what sending to another group takes longer than to the own one, there and back."""
    found = np.zeros((len(step.layers), len(groups), len(sites)))
    for at, site in enumerate(sites):
        nodes = groups[site.group]
        for number, other in enumerate(groups):
            if number != site.group:
                for last in range(len(step.layers)):
                    num_bytes = left_bytes(step, last)
                    inside_s = handover_s(nodes, site.submesh, num_bytes)
                    found[last, number, at] = 2 * (crossing_s(nodes, other, site.submesh, num_bytes) - inside_s)
    return found


def _add_handover(
    quantities: Floats, sent_bytes: Mapping[tuple[int, int], int], nodes: NodeGroup, submesh: Submesh
) -> None:
    """Adds sending what a run makes for later layers, and getting its gradients back."""
    for (first, last), num_bytes in sent_bytes.items():
        quantities[[Quantity.FORWARD_S, Quantity.BACKWARD_S], first, last] += handover_s(nodes, submesh, num_bytes)


def _add_joining(quantities: Floats, step: LayeredStep, nodes: NodeGroup, submesh: Submesh) -> None:
    """Adds joining the gradients of parameters that other stages hold too."""
    if not step.shared:
        return
    for first in range(len(step.layers)):
        for last in range(first, len(step.layers)):
            quantities[Quantity.ONCE_S, first, last] += joined_s(step, nodes, submesh, first, last)


def joined_s(step: LayeredStep, nodes: NodeGroup, submesh: Submesh, first: int, last: int) -> float:
    """Seconds once an iteration in which a stage of some layers joins gradients with others that share parameters."""
    return sum(
        join_s(nodes, submesh, num_bytes, num_stages=num_stages)
        for num_bytes, num_stages in step.joined_bytes(first, last)
    )


def _most_of_runs(per_layer: Floats) -> Floats:
    """[layers, layers]: the most that any layer of each run has."""
    num_layers = len(per_layer)
    most = np.zeros((num_layers, num_layers))
    for first in range(num_layers):
        most[first, first:] = np.maximum.accumulate(per_layer[first:])
    return most


def _successors(joint: Floats, memory_bytes: Floats, num_micro_batches: int) -> NDArray[np.int32]:
    """How many stages may follow each run: micro-batches in flight are one more (equation 3.5).

    Args:
        memory_bytes: [sites, 1]; of a device.
    """
    states, activations = joint[Quantity.STATE_BYTES], joint[Quantity.ACTIVATION_BYTES]
    left = memory_bytes - states
    is_held = (activations > 0) & np.isfinite(activations)
    in_flight = np.floor(np.divide(left, activations, out=np.full_like(left, np.inf), where=is_held))
    in_flight[~np.isfinite(states) | (left < 0)] = 0
    in_flight[in_flight >= num_micro_batches] = _MOST_SUCCESSORS
    return np.asarray(np.minimum(in_flight, _MOST_SUCCESSORS) - 1, dtype=np.int32)
