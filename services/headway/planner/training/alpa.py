"""Alpa's search: shardings inside stages and the cut into stages together, for every number of micro-batches
(dissertation chapter 3). Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headway.core.cost.costs import Costs, graph_time
from headway.core.dataflow import Dataflow
from headway.core.device_mesh import DeviceMesh, Submesh, logical_shapes, submeshes
from headway.core.training_cluster import NodeGroup
from headway.core.training_plan import TrainingStage
from headway.planner.inter.stage_dp import StageCut, cut_stages
from headway.planner.inter.stage_table import LayeredStep, StageTable, make_stage_table, mesh_quantities
from headway.planner.intra.layer import Layer
from headway.planner.intra.quantities import Floats, Prices
from headway.planner.training.problem import TrainingProblem
from headway.planner.training.space import SearchSpace
from headway.planner.training.stages import StageLayout, make_stage
from headway.planner.training.step import cut_layers, layered_step, training_graph
from headway.planner.training.workspace import workspace_bytes

# Prices of memory: shares of what would make all states of the model cost as much as computing a micro-batch.
_SHARES = (0.0, 0.001, 0.03, 0.3, 3.0)
_IN_FLIGHT = (1.0, 8.0)
_WORSE = 2  # numbers of micro-batches in a row that are no better, after which no more are tried
_MOST_TRIES = 4

MeshQuantities = Callable[[LayeredStep, Sequence[DeviceMesh], Prices], Sequence[Floats]]
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


class AlpaSearch:
    """The search for one problem on alike nodes."""

    def __init__(self, problem: TrainingProblem, nodes: NodeGroup, costs: Costs) -> None:
        self._problem = problem
        self._nodes = nodes
        self._costs = costs
        self._layers: list[Layer] | None = None
        self.shortfall_bytes: int | None = None

    def run(self, *, report: Report, should_stop: Callable[[], bool]) -> Found | None:
        """Tries numbers of micro-batches, from the middle up and down as long as it gets better.

        Returns:
            The pipeline with the shortest iteration; None where none fits.
        """
        numbers = self._problem.numbers_of_micro_batches()
        start = min(range(len(numbers)), key=lambda i: abs(numbers[i] - 4 * self._nodes.num_nodes))
        best: Found | None = None
        for way in (range(start, len(numbers)), range(start - 1, -1, -1)):
            worse = 0
            for i in way:
                if should_stop() or worse >= _WORSE:
                    break
                found = self.with_micro_batches(numbers[i])
                if found is not None and (best is None or found.iteration_s < best.iteration_s):
                    best, worse = found, 0
                    report(found)
                elif best is not None:
                    worse += 1
        return best

    def with_micro_batches(self, number: int) -> Found | None:
        """The best pipeline for so many micro-batches; None where none fits."""
        problem = self._problem
        training = training_graph(problem.graph, problem.batch // number, problem.precision)
        if self._layers is None:
            self._layers = cut_layers(training, problem.num_layers)
        step = layered_step(training, self._layers, problem.precision)
        prices = self._prices(step, number)
        meshes = list(allowed_meshes(self._nodes, problem.space))
        found = mesh_quantities(
            step, self._nodes, meshes, self._costs, prices=prices, recomputes=problem.space.recomputes
        )
        quantities = dict(zip(meshes, found, strict=True))
        workspace = self._workspace(step, meshes)
        for _ in range(_MOST_TRIES):
            table = make_stage_table(
                step,
                self._nodes,
                quantities,
                num_prices=prices.size,
                num_micro_batches=number,
                workspace_bytes=workspace,
            )
            cut = cut_stages(
                table.costs,
                num_devices=self._nodes.num_devices,
                num_micro_batches=number,
                max_stages=problem.space.num_stages,
            )
            if cut is None:
                return None
            found = self._found(step, prices, number, cut, table)
            if all(stage.memory.total_bytes <= self._nodes.memory_bytes for stage in found.stages):
                return found
            workspace = _corrected(workspace, found, table)
        return None

    def _prices(self, step: LayeredStep, number: int) -> Prices:
        """Multipliers for the memory of devices, from none to so high that memory is all that counts."""
        graph, precision = step.training.graph, step.precision
        state = precision.weight_bytes + precision.gradient_bytes + precision.optimizer_bytes
        scale = graph_time(graph, self._costs).seconds / max(1, graph.parameters * state)
        pairs = [(share, held) for share in _SHARES for held in (_IN_FLIGHT if share else (1.0,))]
        return Prices.of(
            num_micro_batches=number,
            second_per_byte=np.array([share * scale for share, _ in pairs]),
            in_flight=np.array([held for _, held in pairs]),
        )

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

    def _found(self, step: LayeredStep, prices: Prices, number: int, cut: StageCut, table: StageTable) -> Found:
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
                in_flight=min(number, len(cut.stages) - i),
            )
            stages.append(make_stage(step, self._nodes, layout, self._costs, prices))
            device += mesh.num_devices
        return Found(step=step, prices=prices, num_micro_batches=number, cut=cut, stages=tuple(stages))


def allowed_meshes(nodes: NodeGroup, space: SearchSpace) -> Iterator[DeviceMesh]:
    """The meshes that stages may have."""
    for submesh in submeshes(nodes):
        if space.allows(submesh, nodes):
            for shape in logical_shapes(submesh):
                if not space.mesh_shapes or shape in space.mesh_shapes:
                    yield DeviceMesh(submesh, shape)


def _corrected(
    workspace: Mapping[tuple[Submesh, bool], Floats], found: Found, table: StageTable
) -> dict[tuple[Submesh, bool], Floats]:
    """The workspace that layers really need with the shardings that were chosen for them."""
    corrected = {key: layers.copy() for key, layers in workspace.items()}
    for choice, stage in zip(found.cut.stages, found.stages, strict=True):
        layers = corrected[table.submeshes[choice.submesh], stage.recomputes][choice.first : choice.last + 1]
        np.maximum(layers, stage.memory.workspace_bytes, out=layers)
    return corrected
