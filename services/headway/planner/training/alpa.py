"""Alpa's search: shardings inside stages and the cut into stages together, for every number of micro-batches
(dissertation chapter 3). Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headway.core.cost.checked import CheckedCosts
from headway.core.cost.costs import Costs, graph_time
from headway.core.dataflow import Dataflow
from headway.core.device_mesh import DeviceMesh, Submesh, logical_shapes, submeshes
from headway.core.plan.training import TrainingStage
from headway.core.training_cluster import NodeGroup
from headway.planner.inter.equal_layers import cut_equally
from headway.planner.inter.stage_dp import StageCosts, StageCut, cut_stages
from headway.planner.inter.stage_table import LayeredStep, StageTable, Variant, make_stage_table, mesh_quantities
from headway.planner.intra.layer import Layer
from headway.planner.intra.mesh_costs import MeshPricing
from headway.planner.intra.quantities import Floats, Prices, Quantity
from headway.planner.training.micro_batches import search_micro_batches, upcoming
from headway.planner.training.problem import TrainingProblem
from headway.planner.training.space import SearchSpace
from headway.planner.training.stages import StageLayout, StageMaker
from headway.planner.training.step import cut_layers, layered_step, training_graph
from headway.planner.training.workspace import workspace_bytes

# Prices of memory: shares of what would make all states of the model cost as much as computing a micro-batch.
_SHARES = (0.0, 0.001, 0.03, 0.3, 3.0)
_IN_FLIGHT = (1.0, 8.0)
_MOST_TRIES = 4

Report = Callable[["Found"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A pipeline for one number of micro-batches."""

    step: LayeredStep
    prices: Prices
    num_micro_batches: int
    cut: StageCut
    stages: tuple[TrainingStage, ...]

    @property
    def iteration_s(self) -> float:
        """By equation 3.2, with what happens once an iteration."""
        latencies = [stage.latency_s for stage in self.stages]
        once_s = max(stage.once_s for stage in self.stages)
        return sum(latencies) + (self.num_micro_batches - 1) * max(latencies) + once_s

    @property
    def layouts(self) -> tuple[StageLayout, ...]:
        """Of which the stages were made."""
        return tuple(
            StageLayout(
                first=choice.first,
                last=choice.last,
                mesh=stage.mesh,
                variant=Variant(
                    shape=(stage.mesh.shape[0], stage.mesh.shape[1]),
                    recomputes=stage.recomputes,
                    price=choice.variant % self.prices.size,
                ),
                first_device=stage.first_device,
                in_flight=stage.in_flight,
            )
            for choice, stage in zip(self.cut.stages, self.stages, strict=True)
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepTables:
    """What runs of layers take for one size of micro-batches, whatever memory devices have.

    Attributes:
        quantities: of each mesh, as `mesh_quantities` returns them.
        workspace_bytes: [layers]; by the submesh and whether stages recompute.
    """

    maker: StageMaker
    num_micro_batches: int
    quantities: Mapping[DeviceMesh, Floats]
    workspace_bytes: Mapping[tuple[Submesh, bool], Floats]

    @property
    def step(self) -> LayeredStep:
        return self.maker.step

    @property
    def prices(self) -> Prices:
        return self.maker.prices


class AlpaSearch:
    """The search for one problem on alike nodes."""

    def __init__(self, problem: TrainingProblem, nodes: NodeGroup, costs: Costs) -> None:
        self._problem = problem
        self._nodes = nodes
        self._costs = CheckedCosts(costs)
        self._pricing = MeshPricing(nodes, self._costs)
        self._layers: list[Layer] | None = None
        self._ahead: dict[int, StepTables] = {}
        self._made: set[int] = set()

    def run(self, *, report: Report, should_stop: Callable[[], bool]) -> Found | None:
        """The pipeline with the shortest iteration over numbers of micro-batches; None where none fits."""
        return search_micro_batches(
            self._problem.numbers_of_micro_batches(),
            self.with_micro_batches,
            num_devices=self._nodes.num_devices,
            report=report,
            should_stop=should_stop,
        )

    def with_micro_batches(self, number: int) -> Found | None:
        """The best pipeline for so many micro-batches; None where none fits."""
        return self.cut(self.next_tables(number))

    def next_tables(self, number: int) -> StepTables:
        """As `tables`. Those of the numbers that are next in a search are made with its own."""
        if number not in self._ahead:
            numbers = upcoming(self._problem.numbers_of_micro_batches(), number, known=self._made)
            self._ahead = {tables.num_micro_batches: tables for tables in self._tables(numbers)}
            self._made |= self._ahead.keys()
        return self._ahead.pop(number)

    def tables(self, number: int) -> StepTables:
        """What runs of layers take when an iteration has so many micro-batches."""
        [tables] = self._tables([number])
        return tables

    def _tables(self, numbers: Sequence[int]) -> list[StepTables]:
        """The tables for several numbers of micro-batches, with layers placed once for all of them."""
        problem = self._problem
        steps = [self._step(number) for number in numbers]
        prices = [memory_prices(step, number, self._costs) for step, number in zip(steps, numbers, strict=True)]
        meshes = list(allowed_meshes(self._nodes, problem.space))
        quantities = mesh_quantities(steps, meshes, self._pricing, prices=prices, recomputes=problem.space.recomputes)
        return [
            StepTables(
                maker=StageMaker(step=step, pricing=self._pricing, prices=own),
                num_micro_batches=number,
                quantities=dict(zip(meshes, taken, strict=True)),
                workspace_bytes=self._workspace(step, meshes),
            )
            for step, own, number, taken in zip(steps, prices, numbers, quantities, strict=True)
        ]

    def _step(self, number: int) -> LayeredStep:
        """The step of one of so many micro-batches."""
        problem = self._problem
        training = training_graph(problem.graph, problem.batch // number, problem.precision)
        if self._layers is None:
            equal = problem.space.equal_operators
            self._layers = cut_layers(training, problem.num_layers, equal_operators=equal)
        return layered_step(training, self._layers, problem.precision, problem.space.shardings)

    def cut(
        self,
        tables: StepTables,
        *,
        space: SearchSpace | None = None,
        memory_bytes: int | None = None,
        num_micro_batches: int | None = None,
        num_slices: int = 1,
    ) -> Found | None:
        """The best pipeline by these tables; None where none fits.

        Args:
            space: a part of the problem's, as far as it is about meshes, stages and recomputing; None for all of it.
            memory_bytes, num_micro_batches: other ones than those of the nodes and the tables.
            num_slices: equal ones that each micro-batch passes through the pipeline in, as if they took a part of its
                time each.
        """
        nodes = self._nodes if memory_bytes is None else replace(self._nodes, memory_bytes=memory_bytes)
        number = num_micro_batches or tables.num_micro_batches
        part = space or self._problem.space
        if not tables.quantities:
            return None
        workspace = tables.workspace_bytes
        for _ in range(_MOST_TRIES):
            table = make_stage_table(
                tables.step,
                nodes,
                tables.quantities,
                num_prices=tables.prices.size,
                num_micro_batches=number,
                workspace_bytes=workspace,
            )
            table = replace(table, costs=_sliced(table.costs, num_slices))
            cut = _cut(table, part, nodes, num_micro_batches=number * num_slices)
            if cut is None:
                return None
            found = _found(tables.maker, number, cut, table, num_slices=num_slices)
            if all(stage.memory.total_bytes <= nodes.memory_bytes for stage in found.stages):
                return found
            workspace = _corrected(tables, workspace, found)
        return None

    def _workspace(self, step: LayeredStep, meshes: Sequence[DeviceMesh]) -> dict[tuple[Submesh, bool], Floats]:
        """What layers need beside parameters and activations, as if all of it were sharded over all devices: what is
        not is found when shardings are chosen."""
        flow, tensors = Dataflow(step.training.graph), step.training.tensors
        found = {}
        for again in self._problem.space.recomputes:
            by_kind = {
                kind: workspace_bytes(
                    step.training, step.layers[kind], flow, lambda name: tensors[name].num_bytes, recomputes=again
                )
                for kind in set(step.kinds)
            }
            whole = np.array([by_kind[kind] for kind in step.kinds])
            for submesh in {mesh.submesh for mesh in meshes}:
                found[submesh, again] = whole / submesh.num_devices
        return found


def memory_prices(step: LayeredStep, number: int, costs: Costs) -> Prices:
    """Multipliers for the memory of devices, from none to so high that memory is all that counts."""
    graph, precision = step.training.graph, step.precision
    state = precision.weight_bytes + precision.gradient_bytes + precision.optimizer_bytes
    scale = graph_time(graph, costs).seconds / max(1, graph.parameters * state)
    pairs = [(share, held) for share in _SHARES for held in (_IN_FLIGHT if share else (1.0,))]
    return Prices.of(
        num_micro_batches=number,
        second_per_byte=np.array([share * scale for share, _ in pairs]),
        in_flight=np.array([held for _, held in pairs]),
    )


def allowed_meshes(nodes: NodeGroup, space: SearchSpace) -> Iterator[DeviceMesh]:
    """The meshes that stages may have."""
    for submesh in submeshes(nodes):
        if space.allows(submesh, nodes):
            for shape in logical_shapes(submesh):
                if space.allows_shape(shape):
                    yield DeviceMesh(submesh, shape)


def _cut(table: StageTable, space: SearchSpace, nodes: NodeGroup, *, num_micro_batches: int) -> StageCut | None:
    cut = cut_equally if space.equal_layers else cut_stages
    parts = [replace(space, mesh_shapes=(shape,)) for shape in _shapes(table)] if space.equal_meshes else [space]
    found = [
        cut(
            only(table, part, nodes),
            num_devices=nodes.num_devices,
            num_micro_batches=num_micro_batches,
            min_stages=space.num_stages or 1,
            max_stages=space.num_stages,
        )
        for part in parts
    ]
    return min((each for each in found if each is not None), key=lambda each: each.iteration_s, default=None)


def _shapes(table: StageTable) -> list[tuple[int, int]]:
    return list(dict.fromkeys(variant.shape for variants in table.variants for variant in variants))


def only(table: StageTable, space: SearchSpace, nodes: NodeGroup) -> StageCosts:
    """The costs of a table, where only what a space allows is possible."""
    is_allowed = np.zeros(table.costs.latency_s.shape[2:], bool)
    for i, (submesh, variants) in enumerate(zip(table.submeshes, table.variants, strict=True)):
        is_allowed[i, : len(variants)] = [
            space.allows(submesh, nodes) and space.allows_shape(each.shape) and each.recomputes in space.recomputes
            for each in variants
        ]
    return replace(table.costs, latency_s=np.where(is_allowed, table.costs.latency_s, np.inf))


def _sliced(costs: StageCosts, num_slices: int) -> StageCosts:
    """The costs of a slice of a micro-batch: so many more of them are in flight."""
    if num_slices == 1:
        return costs
    most = np.iinfo(np.int32).max // num_slices
    successors = np.where(
        costs.max_successors > 0, np.minimum(costs.max_successors, most) * num_slices, costs.max_successors
    )
    return replace(costs, latency_s=costs.latency_s / num_slices, max_successors=successors.astype(np.int32))


def _found(maker: StageMaker, number: int, cut: StageCut, table: StageTable, *, num_slices: int) -> Found:
    stages = []
    device = 0
    for i, choice in enumerate(cut.stages):
        variant = table.variants[choice.submesh][choice.variant]
        mesh = DeviceMesh(table.submeshes[choice.submesh], variant.shape)
        layout = StageLayout(
            first=choice.first,
            last=choice.last,
            mesh=mesh,
            variant=variant,
            first_device=device,
            in_flight=min(number, -(-(len(cut.stages) - 1 - i) // num_slices) + 1),
        )
        stages.append(maker.stage(layout))
        device += mesh.num_devices
    return Found(step=maker.step, prices=maker.prices, num_micro_batches=number, cut=cut, stages=tuple(stages))


def _corrected(
    tables: StepTables, workspace: Mapping[tuple[Submesh, bool], Floats], found: Found
) -> dict[tuple[Submesh, bool], Floats]:
    """The workspace that layers really need with the shardings that were chosen for them, and with what they keep
    beyond what tables say: those count what is sent on where it is made, and devices hold it where it is read again."""
    corrected = {key: layers.copy() for key, layers in workspace.items()}
    for choice, stage in zip(found.cut.stages, found.stages, strict=True):
        quantities = tables.quantities[stage.mesh][Quantity.ACTIVATION_BYTES, choice.first, choice.last]
        kept = float(quantities[_column(tables, stage, choice.variant)])
        beyond = max(0.0, stage.memory.activations_bytes - stage.in_flight * kept)
        layers = corrected[stage.mesh.submesh, stage.recomputes][choice.first : choice.last + 1]
        np.maximum(layers, stage.memory.workspace_bytes + beyond, out=layers)
    return corrected


def _column(tables: StepTables, stage: TrainingStage, variant: int) -> int:
    """Where a variant of a submesh is in the quantities of its mesh."""
    return variant % int(tables.quantities[stage.mesh].shape[3])
