"""The best graph of stages for one number of micro-batches: stages of whole layers, each sharded, and recomputing or
not, as Alpa's passes find best. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headway.core.dataflow import Dataflow
from headway.core.device_mesh import DeviceMesh
from headway.core.plan.training import TrainingStage, pipeline_s, stage_successors
from headway.core.training_cluster import NodeGroup
from headway.planner.graphpipe.chains import ChainBuilder
from headway.planner.graphpipe.kernel import Floats, Ints
from headway.planner.graphpipe.layer_levels import LayerLevels
from headway.planner.graphpipe.pipeline import StageChoice, depths, stage_graph
from headway.planner.graphpipe.problem import Flow, PipelineProblem
from headway.planner.graphpipe.series_parallel import Decomposition, Series, decompose
from headway.planner.graphpipe.tables import Tables
from headway.planner.graphpipe.traceback import Traceback
from headway.planner.inter.stage_table import LayeredStep, Site, StageTable, make_stage_table
from headway.planner.intra.quantities import Prices
from headway.planner.training.alpa import StepTables, first_devices
from headway.planner.training.stages import StageLayout

_BOUNDS = 24  # on the slowest stage, for each number of micro-batches


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundGraph:
    """A graph of stages for one number of micro-batches.

    Attributes:
        num_micro_batches: of the largest ones, where stages have sizes of their own.
        layouts: of its stages.
        simulated_s: until the last pass has ended, where stages have micro-batches of their own sizes; else None.
        decomposition: of the layers, with what was ordered to make them series-parallel.
    """

    step: LayeredStep
    prices: Prices
    num_micro_batches: int
    stages: tuple[TrainingStage, ...]
    layouts: tuple[StageLayout, ...]
    decomposition: Decomposition
    simulated_s: float | None = None

    @property
    def depth(self) -> int:
        """Stages on the longest way of a micro-batch."""
        return max(depths(stage_successors(self.stages)))

    @property
    def iteration_s(self) -> float:
        """By equation 3.2 over the longest way, or simulated, with what happens once an iteration."""
        passes_s = pipeline_s(self.stages, self.num_micro_batches) if self.simulated_s is None else self.simulated_s
        return passes_s + max(stage.once_s for stage in self.stages)


def cut_graph(nodes: NodeGroup, tables: StepTables, *, num_micro_batches: int | None = None) -> FoundGraph | None:
    """The best graph of stages by these tables; None where none fits, or the layers are a chain.

    Args:
        num_micro_batches: another number than that of the tables.
    """
    if not tables.quantities:
        return None
    return GraphCut(nodes, tables, num_micro_batches or tables.num_micro_batches).best()


class GraphCut:
    """The graph of stages for one number of micro-batches.

    Attributes:
        tables: what runs of layers take.
    """

    def __init__(self, nodes: NodeGroup, tables: StepTables, num_micro_batches: int) -> None:
        self._nodes, self.tables, self._num_micro_batches = nodes, tables, num_micro_batches
        self._table = make_stage_table(
            tables.step,
            [nodes],
            tables.quantities,
            num_prices=tables.prices.size,
            num_micro_batches=num_micro_batches,
            workspace_bytes=tables.workspace_bytes,
        )
        self._latency_s = self._table.costs.latency_s
        self._max_level: Ints = self._table.costs.max_successors + 1
        self._powers = _powers(self._table)
        work = _layer_problem(self._latency_s, layer_flows(tables.step), nodes)
        self._edges = work.edges
        self._decomposition = decompose(work.forward_s[:, 0].tolist(), work.edges)
        self._builder = ChainBuilder(work)
        self._builder.root(self._decomposition.root)

    def best(self) -> FoundGraph | None:
        """Tries bounds on the slowest stage, from the least that is possible up, as long as it can get better.

        None too where the layers are a chain: their best cut is Alpa's.
        """
        root = self._decomposition.root
        if isinstance(root, int) or (isinstance(root, Series) and all(isinstance(part, int) for part in root.parts)):
            return None
        best: FoundGraph | None = None
        for bound_s in self._bounds():
            if best is not None and bound_s * self._num_micro_batches >= best.iteration_s:
                break
            for choices in self._pipelines(bound_s):
                found = self._found(choices)
                if found is not None and (best is None or found.iteration_s < best.iteration_s):
                    best = found
        return best

    def _bounds(self) -> Iterator[float]:
        """The least bound, found by bisection, then rising ones."""
        values = np.unique(self._latency_s[np.isfinite(self._latency_s) & (self._max_level > 0)])
        low, high = 0, len(values)
        while low < high:
            middle = (low + high) // 2
            if next(self._pipelines(float(values[middle])), None) is None:
                low = middle + 1
            else:
                high = middle
        if low < len(values):
            yield from np.geomspace(values[low], max(values[low], 4 * values[low]), _BOUNDS).tolist()

    def _pipelines(self, bound_s: float) -> Iterator[list[StageChoice]]:
        """Stages under a bound, for each depth at which fewer devices are enough."""
        levels = LayerLevels(
            latency_s=self._by_power(self._latency_s, np.inf),
            max_level=self._by_power(self._max_level, 0).astype(np.int32),
            bound_s=bound_s,
            last=self._builder.last,
            top=min(self._nodes.num_devices, len(self.tables.step.layers)),
        )
        tables = Tables(self._builder.order, levels)
        needed = tables.fill().whole[1, 0]
        least = self._nodes.num_devices + 1
        for begin, devices in enumerate(needed.tolist()):
            if devices < least:
                least = devices
                yield Traceback(tables, self._builder.branches).stages(self._decomposition.root, begin)

    def _by_power(self, values: Floats | Ints, missing: float) -> Floats:
        """[..., powers, variants] out of [..., submeshes, variants]."""
        shape = (*values.shape[:2], max(self._powers) + 1, values.shape[3])
        found = np.full(shape, missing, np.float64)
        for submesh, power in enumerate(self._powers):
            if power >= 0:
                found[:, :, power] = values[:, :, submesh]
        return found

    def _found(self, choices: Sequence[StageChoice]) -> FoundGraph | None:
        order, successors = stage_graph(self._edges, [choice.operators for choice in choices])
        first_device = first_devices([self._nodes], [self._site(choices[number]) for number in order])
        layouts, stages = [], []
        for number, place, depth, later in zip(order, first_device, depths(successors), successors, strict=True):
            made = self._stage(choices[number], place, depth=depth)
            if made is None:
                return None
            layouts.append(made[0])
            stages.append(replace(made[1], successors=later))
        return FoundGraph(
            step=self.tables.step,
            prices=self.tables.prices,
            num_micro_batches=self._num_micro_batches,
            stages=tuple(stages),
            layouts=tuple(layouts),
            decomposition=self._decomposition,
        )

    def _stage(self, choice: StageChoice, first_device: int, *, depth: int) -> tuple[StageLayout, TrainingStage] | None:
        """The fastest variant that really fits with so many stages on the way."""
        in_flight = min(self._num_micro_batches, depth)
        return next(self.fitting(choice, first_device, in_flight=in_flight), None)

    def fitting(
        self, choice: StageChoice, first_device: int, *, in_flight: int
    ) -> Iterator[tuple[StageLayout, TrainingStage]]:
        """The variants of a stage that really fit with so many micro-batches in flight, the fastest first."""
        first, last = min(choice.operators), max(choice.operators)
        submesh = self._number(choice)
        latencies = self._latency_s[first, last, submesh]
        for number in np.argsort(latencies, kind="stable").tolist():
            if not np.isfinite(latencies[number]):
                return
            if self._max_level[first, last, submesh, number] < in_flight:
                continue
            variant = self._table.variants[submesh][number]
            layout = StageLayout(
                first=first,
                last=last,
                mesh=DeviceMesh(self._site(choice).submesh, variant.shape),
                variant=variant,
                first_device=first_device,
                in_flight=in_flight,
            )
            stage = self.tables.maker.stage(layout)
            if stage.memory.total_bytes <= self._nodes.memory_bytes:
                yield layout, stage

    def _number(self, choice: StageChoice) -> int:
        """Of its submesh, in the table."""
        return self._powers.index(choice.num_devices.bit_length() - 1)

    def _site(self, choice: StageChoice) -> Site:
        return self._table.sites[self._number(choice)]


def layer_flows(step: LayeredStep) -> tuple[Flow, ...]:
    """What layers make and others read, of a micro-batch."""
    graph = step.training.graph
    flow = Dataflow(graph)
    layer_of = {at: number for number, layer in enumerate(step.layers) for at in layer.forward}
    found = []
    for name, at in flow.producer.items():
        if at not in layer_of:
            continue
        readers = {layer_of[reader] for reader in flow.consumers.get(name, ()) if reader in layer_of} - {layer_of[at]}
        if readers:
            num_bytes = float(step.training.tensors[name].num_bytes)
            found.append(Flow(producer=layer_of[at], consumers=tuple(sorted(readers)), bytes_per_sample=num_bytes))
    return tuple(found)


def _powers(table: StageTable) -> list[int]:
    """Of each submesh the power of two that its devices are, -1 for other numbers."""
    sizes = [site.submesh.num_devices for site in table.sites]
    return [size.bit_length() - 1 if size & (size - 1) == 0 else -1 for size in sizes]


def _layer_problem(latency_s: Floats, flows: tuple[Flow, ...], nodes: NodeGroup) -> PipelineProblem:
    """Layers as operators: what they take by themselves tells which of them are alike."""
    num_layers = len(latency_s)
    alone = np.array([latency_s[at, at].min() for at in range(num_layers)])
    nothing = np.zeros(num_layers)
    return PipelineProblem(
        forward_s=np.where(np.isfinite(alone), alone, 0.0)[:, None],
        backward_s=np.zeros((num_layers, 1)),
        state_bytes=nothing,
        saved_bytes=nothing,
        gradient_bytes=nothing,
        flows=flows,
        batch=1,
        num_devices=nodes.num_devices,
        memory_bytes=float(nodes.memory_bytes),
        handover_bytes_per_s=nodes.network.bytes_per_s,
        sync_bytes_per_s=nodes.network.bytes_per_s,
    )
