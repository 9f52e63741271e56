"""Alpa's search: shardings inside stages and the cut into stages together, for every number of micro-batches
(dissertation chapter 3). Pure."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from headway.core.cost.checked import CheckedCosts
from headway.core.cost.costs import Costs, graph_time
from headway.core.dataflow import Dataflow
from headway.core.device_mesh import DeviceMesh, logical_shapes, submeshes
from headway.core.plan.training import TrainingStage
from headway.core.training_cluster import NodeGroup, TrainingCluster
from headway.planner.inter.equal_layers import cut_equally
from headway.planner.inter.stage_dp import StageCosts, StageCut, cut_stages
from headway.planner.inter.stage_table import (
    LayeredStep,
    Site,
    SiteMesh,
    StageTable,
    make_stage_table,
    mesh_quantities,
)
from headway.planner.intra.layer import Layer
from headway.planner.intra.mesh_costs import MeshPricing
from headway.planner.intra.quantities import Floats, Prices, Quantity
from headway.planner.training.candidates import Ahead, CandidateExecutor, Candidates, Tried, timed
from headway.planner.training.micro_batches import search_micro_batches, upcoming
from headway.planner.training.problem import TrainingProblem
from headway.planner.training.space import SearchSpace
from headway.planner.training.stages import StageLayout, StageMaker
from headway.planner.training.step import cut_layers, layered_step, training_graph
from headway.planner.training.workspace import workspace_bytes

# Prices of memory: shares of what would make all states of the model cost as much as computing a micro-batch.
_SHARES = (0.0, 0.001, 0.03, 0.3, 3.0)
_IN_FLIGHT = (1.0, 8.0)
# Between two prices all states of a model change at once; these sharded, whatever memory costs, are often what fits.
_LEAST_ZERO_STAGES = (2, 3)
_MOST_TRIES = 4

Report = Callable[["Found"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A pipeline for one number of micro-batches.

    Attributes:
        layouts: of its stages.
    """

    step: LayeredStep
    prices: Prices
    num_micro_batches: int
    cut: StageCut
    stages: tuple[TrainingStage, ...]
    layouts: tuple[StageLayout, ...]

    @property
    def iteration_s(self) -> float:
        """By equation 3.2, with what happens once an iteration."""
        latencies = [stage.latency_s for stage in self.stages]
        once_s = max(stage.once_s for stage in self.stages)
        return sum(latencies) + (self.num_micro_batches - 1) * max(latencies) + once_s


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepTables:
    """What runs of layers take for one size of micro-batches, whatever memory devices have.

    Attributes:
        quantities: of each mesh, as `mesh_quantities` returns them.
        workspace_bytes: [layers]; by the site and whether stages recompute.
    """

    maker: StageMaker
    num_micro_batches: int
    quantities: Mapping[SiteMesh, Floats]
    workspace_bytes: Mapping[tuple[Site, bool], Floats]

    @property
    def step(self) -> LayeredStep:
        return self.maker.step

    @property
    def prices(self) -> Prices:
        return self.maker.prices


class AlpaSearch:
    """The search for one problem.

    Args:
        costs: of each group of nodes.
    """

    def __init__(self, problem: TrainingProblem, costs: Sequence[Costs]) -> None:
        self._problem = problem
        self._cluster = problem.cluster
        self._given = costs
        self._costs = [CheckedCosts(each) for each in costs]
        self._pricing = mesh_pricing(problem.cluster, self._costs)
        self._layers: list[Layer] | None = None
        self._ahead: dict[int, StepTables] = {}
        self._made: set[int] = set()
        self._elsewhere: Ahead[Found | None] | None = None

    def run(
        self, *, report: Report, should_stop: Callable[[], bool], executor: CandidateExecutor | None = None
    ) -> Found | None:
        """The pipeline with the shortest iteration over numbers of micro-batches; None where none fits.

        Args:
            executor: tries several numbers at once; None to try one after the other.
        """
        numbers = self._problem.numbers_of_micro_batches()
        cut: Callable[[int], Found | None] = self.with_micro_batches
        if executor is not None:
            shared = Candidates(problem=self._problem, costs=self._given)
            cut = self._elsewhere = Ahead(
                task=_candidate, shared=shared, numbers=numbers, executor=executor, should_stop=should_stop
            )
        return search_micro_batches(
            numbers, cut, num_devices=self._cluster.num_devices, report=report, should_stop=should_stop
        )

    @property
    def cluster(self) -> TrainingCluster:
        """That is searched for."""
        return self._cluster

    def numbers_of_micro_batches(self) -> list[int]:
        """Those that may be tried, ascending."""
        return self._problem.numbers_of_micro_batches()

    @property
    def elsewhere_cpu_s(self) -> float:
        """Processor time of candidates that other processes tried."""
        return 0.0 if self._elsewhere is None else self._elsewhere.cpu_s

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
        found: list[dict[SiteMesh, Floats]] = [{} for _ in steps]
        for group, pricing in enumerate(self._pricing):
            meshes = list(allowed_meshes(pricing.nodes, problem.space, num_devices=self._cluster.num_devices))
            taken = mesh_quantities(steps, meshes, pricing, prices=prices, recomputes=problem.space.recomputes)
            for own, of_size in zip(found, taken, strict=True):
                own |= {SiteMesh(group, mesh): each for mesh, each in zip(meshes, of_size, strict=True)}
        return [
            StepTables(
                maker=StageMaker(step=step, pricing=self._pricing, prices=own),
                num_micro_batches=number,
                quantities=quantities,
                workspace_bytes=self._workspace(step, quantities),
            )
            for step, own, number, quantities in zip(steps, prices, numbers, found, strict=True)
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
        cluster: TrainingCluster | None = None,
        num_micro_batches: int | None = None,
        num_slices: int = 1,
    ) -> Found | None:
        """The best pipeline by these tables; None where none fits.

        Args:
            space: a part of the problem's, as far as it is about meshes, stages and recomputing; None for all of it.
            cluster: the problem's with other memory; None for as it is.
            num_micro_batches: another one than that of the tables.
            num_slices: equal ones that each micro-batch passes through the pipeline in, as if they took a part of its
                time each.
        """
        groups = (cluster or self._cluster).groups
        number = num_micro_batches or tables.num_micro_batches
        part = space or self._problem.space
        if not tables.quantities:
            return None
        workspace = tables.workspace_bytes
        for _ in range(_MOST_TRIES):
            table = make_stage_table(
                tables.step,
                groups,
                tables.quantities,
                num_prices=tables.prices.size,
                num_micro_batches=number,
                workspace_bytes=workspace,
            )
            table = replace(table, costs=_sliced(table.costs, num_slices))
            cut = _cut(table, part, groups, num_micro_batches=number * num_slices)
            if cut is None:
                return None
            found = _found(tables.maker, number, cut, table, num_slices=num_slices)
            if all(stage.memory.total_bytes <= groups[stage.group].memory_bytes for stage in found.stages):
                return found
            workspace = _corrected(tables, workspace, found)
        return None

    def _workspace(self, step: LayeredStep, meshes: Collection[SiteMesh]) -> dict[tuple[Site, bool], Floats]:
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
            for site in {mesh.site for mesh in meshes}:
                found[site, again] = whole / site.submesh.num_devices
        return found


def _candidate(shared: Candidates, number: int) -> Tried[Found | None]:
    """The best pipeline for one number of micro-batches, in a process of its own."""
    search = AlpaSearch(shared.problem, shared.costs)
    return timed(lambda: search.cut(search.tables(number)))


def mesh_pricing(cluster: TrainingCluster, costs: Sequence[Costs]) -> list[MeshPricing]:
    """The prices of meshes in each group."""
    return [MeshPricing(nodes, each) for nodes, each in zip(cluster.groups, costs, strict=True)]


def memory_prices(step: LayeredStep, number: int, costs: Sequence[Costs]) -> Prices:
    """Multipliers for the memory of devices, from none to so high that memory is all that counts."""
    graph, precision = step.training.graph, step.precision
    state = precision.weight_bytes + precision.gradient_bytes + precision.optimizer_bytes
    seconds = fmean(graph_time(graph, each).seconds for each in costs)
    scale = seconds / max(1, graph.parameters * state)
    pairs = [(share, held) for share in _SHARES for held in (_IN_FLIGHT if share else (1.0,))]
    pairs += [(0.0, 1.0)] * len(_LEAST_ZERO_STAGES)
    return Prices.of(
        num_micro_batches=number,
        second_per_byte=np.array([share * scale for share, _ in pairs]),
        in_flight=np.array([held for _, held in pairs]),
        least_zero_stages=[*[0] * (len(pairs) - len(_LEAST_ZERO_STAGES)), *_LEAST_ZERO_STAGES],
    )


def allowed_meshes(nodes: NodeGroup, space: SearchSpace, *, num_devices: int) -> Iterator[DeviceMesh]:
    """The meshes that stages may have on some nodes of a cluster with so many devices."""
    for submesh in submeshes(nodes):
        if space.allows(submesh, num_devices):
            for shape in logical_shapes(submesh):
                if space.allows_shape(shape):
                    yield DeviceMesh(submesh, shape)


def _cut(
    table: StageTable, space: SearchSpace, groups: Sequence[NodeGroup], *, num_micro_batches: int
) -> StageCut | None:
    cut = cut_equally if space.equal_layers else cut_stages
    parts = [replace(space, mesh_shapes=(shape,)) for shape in _shapes(table)] if space.equal_meshes else [space]
    num_devices = [nodes.num_devices for nodes in groups]
    found = [
        cut(
            only(table, part, sum(num_devices)),
            num_devices=num_devices,
            num_micro_batches=num_micro_batches,
            min_stages=space.num_stages or 1,
            max_stages=space.num_stages,
        )
        for part in parts
    ]
    return min((each for each in found if each is not None), key=lambda each: each.iteration_s, default=None)


def _shapes(table: StageTable) -> list[tuple[int, int]]:
    return list(dict.fromkeys(variant.shape for variants in table.variants for variant in variants))


def only(table: StageTable, space: SearchSpace, num_devices: int) -> StageCosts:
    """The costs of a table, where only what a space allows is possible."""
    is_allowed = np.zeros(table.costs.latency_s.shape[2:], bool)
    for i, (site, variants) in enumerate(zip(table.sites, table.variants, strict=True)):
        is_allowed[i, : len(variants)] = [
            space.allows(site.submesh, num_devices)
            and space.allows_shape(each.shape)
            and each.recomputes in space.recomputes
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
    sites = [table.sites[choice.submesh] for choice in cut.stages]
    groups = [site.group for site in sites]
    first_device = first_devices([maker.pricing[group].nodes for group in range(len(maker.pricing))], sites)
    layouts = []
    for i, (choice, site, device) in enumerate(zip(cut.stages, sites, first_device, strict=True)):
        variant = table.variants[choice.submesh][choice.variant]
        layout = StageLayout(
            first=choice.first,
            last=choice.last,
            mesh=DeviceMesh(site.submesh, variant.shape),
            group=site.group,
            next_group=(*groups, site.group)[i + 1],
            variant=variant,
            first_device=device,
            in_flight=min(number, -(-(len(cut.stages) - 1 - i) // num_slices) + 1),
        )
        layouts.append(layout)
    return Found(
        step=maker.step,
        prices=maker.prices,
        num_micro_batches=number,
        cut=cut,
        stages=tuple(map(maker.stage, layouts)),
        layouts=tuple(layouts),
    )


def first_devices(groups: Sequence[NodeGroup], sites: Sequence[Site]) -> list[int]:
    """The first device of each stage, in the cluster's numbering: the largest first, so that each fills parts of nodes
    or whole ones (dissertation section 3.5.2)."""
    sizes = [nodes.num_devices for nodes in groups]
    free = [sum(sizes[:group]) for group in range(len(sizes))]
    first = [0] * len(sites)
    for number in sorted(range(len(sites)), key=lambda number: -sites[number].submesh.num_devices):
        site = sites[number]
        first[number] = free[site.group]
        free[site.group] += site.submesh.num_devices
    return first


def _corrected(
    tables: StepTables, workspace: Mapping[tuple[Site, bool], Floats], found: Found
) -> dict[tuple[Site, bool], Floats]:
    """The workspace that layers really need with the shardings that were chosen for them, and with what they keep
    beyond what tables say: those count what is sent on where it is made, and devices hold it where it is read again."""
    corrected = {key: layers.copy() for key, layers in workspace.items()}
    for choice, stage in zip(found.cut.stages, found.stages, strict=True):
        mesh = SiteMesh(stage.group, stage.mesh)
        quantities = tables.quantities[mesh][Quantity.ACTIVATION_BYTES, choice.first, choice.last]
        kept = float(quantities[choice.variant % len(quantities)])  # the variants of a site are those of its meshes
        beyond = max(0.0, stage.memory.activations_bytes - stage.in_flight * kept)
        layers = corrected[mesh.site, stage.recomputes][choice.first : choice.last + 1]
        np.maximum(layers, stage.memory.workspace_bytes + beyond, out=layers)
    return corrected
