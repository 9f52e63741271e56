"""GraphPipe's search for a training plan: stages of whole layers that form a graph, each sharded, and recomputing or
not, as Alpa's passes find best. Pure."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from headway.core.cost.costs import Costs
from headway.core.dataflow import Dataflow
from headway.core.device_mesh import DeviceMesh
from headway.core.errors import FailedPreconditionError
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
from headway.planner.training.alpa import AlpaSearch, Found, StepTables, first_devices
from headway.planner.training.branches import branch_layers
from headway.planner.training.candidates import Ahead, CandidateExecutor, Candidates, Tried, timed
from headway.planner.training.micro_batches import search_micro_batches
from headway.planner.training.problem import TrainingProblem
from headway.planner.training.slice_search import FoundSlices, SliceSearch
from headway.planner.training.stages import StageLayout

_BOUNDS = 24  # on the slowest stage, for each number of micro-batches


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundGraph:
    """A graph of stages for one number of micro-batches.

    Attributes:
        layouts: of its stages.
        decomposition: of the layers, with what was ordered to make them series-parallel.
    """

    step: LayeredStep
    prices: Prices
    num_micro_batches: int
    stages: tuple[TrainingStage, ...]
    layouts: tuple[StageLayout, ...]
    decomposition: Decomposition

    @property
    def depth(self) -> int:
        """Stages on the longest way of a micro-batch."""
        return max(depths(stage_successors(self.stages)))

    @property
    def iteration_s(self) -> float:
        """By equation 3.2 over the longest way, with what happens once an iteration."""
        return pipeline_s(self.stages, self.num_micro_batches) + max(stage.once_s for stage in self.stages)


Pipeline = Found | FoundGraph | FoundSlices
_Both = tuple[Found | None, FoundGraph | None]


@dataclass
class GraphSearch:
    """The search for one problem. A chain is a graph too: where no graph is faster, it is Alpa's. On several groups of
    nodes there are chains only.

    Attributes:
        costs: of each group of nodes.
        slices: searches chains of whole micro-batches, and of slices of them; None where that makes no sense.
        why_no_slices: in a sentence; empty where nobody asked for them.
        chain, graph: the best that were found of each.
        elsewhere_cpu_s: processor time of candidates that other processes tried.
    """

    problem: TrainingProblem
    costs: Sequence[Costs]
    slices: SliceSearch | None = None
    why_no_slices: str = ""
    chain: Found | None = None
    graph: FoundGraph | None = None
    elsewhere_cpu_s: float = 0.0

    @classmethod
    def with_slices(cls, problem: TrainingProblem, costs: Sequence[Costs]) -> "GraphSearch":
        """The search that looks at slices of tokens too, of a causal language model."""
        try:
            return cls(problem, costs, slices=SliceSearch(problem, costs))
        except FailedPreconditionError as error:
            return cls(problem, costs, why_no_slices=error.message)

    def run(
        self,
        *,
        report: Callable[[Pipeline], None],
        should_stop: Callable[[], bool],
        executor: CandidateExecutor | None = None,
    ) -> Pipeline | None:
        """Searches the best chain, then, of a model with branches, the best graph, by layers that keep branches apart.

        Args:
            executor: tries several numbers of micro-batches at once; None to try one after the other.

        Returns:
            The pipeline with the shortest iteration; None where none fits.
        """
        sliced: FoundSlices | None = None
        if self.slices is None:
            search = AlpaSearch(self.problem, self.costs)
            self.chain = search.run(report=report, should_stop=should_stop, executor=executor)
            self.elsewhere_cpu_s = search.elsewhere_cpu_s
        else:
            self.slices.run(report=report, should_stop=should_stop, executor=executor)
            self.chain, sliced = self.slices.chain, self.slices.sliced
            self.elsewhere_cpu_s = self.slices.elsewhere_cpu_s
        layers = branch_layers(self.problem.graph)
        if layers is not None and len(self.problem.cluster.groups) == 1 and not should_stop():
            self._search_graphs(layers, report=report, should_stop=should_stop, executor=executor)
        found = [each for each in (self.chain, self.graph, sliced) if each is not None]
        return min(found, key=lambda each: each.iteration_s, default=None)

    def _search_graphs(
        self,
        layers: int,
        *,
        report: Callable[[Pipeline], None],
        should_stop: Callable[[], bool],
        executor: CandidateExecutor | None,
    ) -> None:
        shared = Candidates(
            problem=replace(self.problem, num_layers=self.problem.num_layers or layers), costs=self.costs
        )
        numbers = shared.problem.numbers_of_micro_batches()
        ask: Callable[[int], _Both | None] = _Tries(shared)
        if executor is not None:
            ask = ahead = Ahead(
                task=_candidate, shared=shared, numbers=numbers, executor=executor, should_stop=should_stop
            )

        def cut(number: int) -> FoundGraph | None:
            chain, graph = ask(number) or (None, None)
            if _is_faster(chain, self.chain):
                self.chain = chain
            return graph

        def tell(found: FoundGraph) -> None:
            if _is_faster(found, self.chain):
                report(found)

        self.graph = search_micro_batches(
            numbers, cut, num_devices=self.problem.cluster.num_devices, report=tell, should_stop=should_stop
        )
        self.elsewhere_cpu_s += 0.0 if executor is None else ahead.cpu_s


class _Tries:
    """Finds the best chain and the best graph of stages for one number of micro-batches."""

    def __init__(self, shared: Candidates) -> None:
        self._nodes = shared.problem.cluster.groups[0]
        self._alpa = AlpaSearch(shared.problem, shared.costs)

    def __call__(self, number: int) -> _Both:
        tables = self._alpa.tables(number)
        return self._alpa.cut(tables), cut_graph(self._nodes, tables)


def _candidate(shared: Candidates, number: int) -> Tried[_Both]:
    """The same in a process of its own."""
    return timed(partial(_Tries(shared), number))


def cut_graph(nodes: NodeGroup, tables: StepTables, *, num_micro_batches: int | None = None) -> FoundGraph | None:
    """The best graph of stages by these tables; None where none fits, or the layers are a chain.

    Args:
        num_micro_batches: another number than that of the tables.
    """
    if not tables.quantities:
        return None
    return _GraphCut(nodes, tables, num_micro_batches or tables.num_micro_batches).best()


def _is_faster(found: Found | FoundGraph | None, known: Found | FoundGraph | None) -> bool:
    return found is not None and (known is None or found.iteration_s < known.iteration_s)


class _GraphCut:
    """The graph of stages for one number of micro-batches."""

    def __init__(self, nodes: NodeGroup, tables: StepTables, num_micro_batches: int) -> None:
        self._nodes, self._tables, self._num_micro_batches = nodes, tables, num_micro_batches
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
            top=min(self._nodes.num_devices, len(self._tables.step.layers)),
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
            step=self._tables.step,
            prices=self._tables.prices,
            num_micro_batches=self._num_micro_batches,
            stages=tuple(stages),
            layouts=tuple(layouts),
            decomposition=self._decomposition,
        )

    def _stage(self, choice: StageChoice, first_device: int, *, depth: int) -> tuple[StageLayout, TrainingStage] | None:
        """The fastest variant that really fits with so many stages on the way."""
        first, last = min(choice.operators), max(choice.operators)
        submesh = self._number(choice)
        latencies = self._latency_s[first, last, submesh]
        in_flight = min(self._num_micro_batches, depth)
        for number in np.argsort(latencies, kind="stable").tolist():
            if not np.isfinite(latencies[number]):
                return None
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
            stage = self._tables.maker.stage(layout)
            if stage.memory.total_bytes <= self._nodes.memory_bytes:
                return layout, stage
        return None

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
