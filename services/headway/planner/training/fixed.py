"""Prices a training plan of the user's: what it leaves open is chosen as well as it can be. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from headway.core.cost.checked import CheckedCosts
from headway.core.cost.costs import Costs
from headway.core.device_mesh import DeviceMesh, Submesh
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.plan.training import TrainingStage
from headway.core.training_cluster import NodeGroup, TrainingCluster
from headway.core.training_layout import LayoutStage, TrainingLayout
from headway.core.units import format_bytes
from headway.planner.inter.stage_dp import StageChoice, StageCut
from headway.planner.inter.stage_table import LayeredStep, Site, Variant, mesh_quantities
from headway.planner.intra.mesh_costs import MeshPricing
from headway.planner.intra.options import AxisRole, ShardingOptions
from headway.planner.intra.quantities import Floats, Prices, Quantity
from headway.planner.intra.strategies import splittable_loops
from headway.planner.training.alpa import Found, first_devices, memory_prices, mesh_pricing
from headway.planner.training.problem import TrainingProblem
from headway.planner.training.stages import StageLayout, StageMaker
from headway.planner.training.step import cut_layers, layered_step, training_graph


def lay_out(problem: TrainingProblem, costs: Sequence[Costs], layout: TrainingLayout) -> Found:
    """The plan as the user gave it, with its predictions.

    Raises:
        InvalidArgumentError: it does not cover the model or the cluster, or a split cannot be.
        FailedPreconditionError: a stage does not fit into memory; says how much is missing.
    """
    number = layout.num_micro_batches
    if problem.batch % number:
        raise InvalidArgumentError(
            f"A batch of {problem.batch} does not divide into {number} micro-batches.",
            hint="Correct the layout's micro_batches.",
            field="micro_batches",
        )
    checked = [CheckedCosts(each) for each in costs]
    training = training_graph(problem.graph, problem.batch // number, problem.precision)
    step = layered_step(training, cut_layers(training, problem.num_layers), problem.precision, ShardingOptions())
    runs = _runs(step, layout)
    _check_devices(problem.cluster, layout)
    pricing = mesh_pricing(problem.cluster, checked)
    return _Filling(problem, pricing, layout, step, memory_prices(step, number, checked)).found(runs)


@dataclass(slots=True)
class _Filling:
    problem: TrainingProblem
    pricing: Sequence[MeshPricing]
    layout: TrainingLayout
    step: LayeredStep
    prices: Prices
    known: dict[tuple[object, ...], Floats] = field(default_factory=dict)

    def found(self, runs: Sequence[tuple[int, int]]) -> Found:
        made: list[tuple[StageLayout, TrainingStage]] = []
        groups = [stage.group for stage in self.layout.stages]
        nodes = self.problem.cluster.groups
        sites = [Site(stage.group, _mesh(nodes[stage.group], stage).submesh) for stage in self.layout.stages]
        for number, first_device in enumerate(first_devices(nodes, sites)):
            in_flight = min(self.layout.num_micro_batches, len(runs) - number)
            next_group = (*groups, groups[number])[number + 1]
            stage = self._stage(
                self.layout.stages[number],
                runs[number],
                next_group=next_group,
                in_flight=in_flight,
                first_device=first_device,
            )
            made.append(stage)
        stages = [stage for _, stage in made]
        latencies = [stage.latency_s for stage in stages]
        sum_s, slowest_s = sum(latencies), max(latencies)
        cut = StageCut(
            stages=tuple(StageChoice(first=first, last=last, submesh=0, variant=0) for first, last in runs),
            sum_s=sum_s,
            slowest_s=slowest_s,
            pipeline_s=sum_s + (self.layout.num_micro_batches - 1) * slowest_s,
            once_s=max(stage.once_s for stage in stages),
            num_bounds=0,
        )
        return Found(
            step=self.step,
            prices=self.prices,
            num_micro_batches=self.layout.num_micro_batches,
            cut=cut,
            stages=tuple(stages),
            layouts=tuple(layout for layout, _ in made),
        )

    def _stage(
        self, stage: LayoutStage, run: tuple[int, int], *, next_group: int, in_flight: int, first_device: int
    ) -> tuple[StageLayout, TrainingStage]:
        """The fastest variant that fits."""
        options = _options(self.step, stage, run)
        step = layered_step(self.step.training, list(self.step.layers), self.step.precision, options)
        nodes = self.pricing[stage.group].nodes
        mesh = _mesh(nodes, stage)
        maker = StageMaker(step=step, pricing=self.pricing, prices=self.prices)
        least: TrainingStage | None = None
        for variant in self._variants(step, mesh, stage, run):
            layout = StageLayout(
                first=run[0],
                last=run[1],
                mesh=mesh,
                variant=variant,
                group=stage.group,
                next_group=next_group,
                first_device=first_device,
                in_flight=in_flight,
            )
            made = maker.stage(layout)
            if made.memory.total_bytes <= nodes.memory_bytes:
                return layout, made
            if least is None or made.memory.total_bytes < least.memory.total_bytes:
                least = made
        assert least is not None
        missing = least.memory.total_bytes - nodes.memory_bytes
        raise FailedPreconditionError(
            f"{stage.place} does not fit: each device lacks {missing} bytes ({format_bytes(missing)}).",
            hint="Give it more devices or fewer layers, more micro-batches, recompute: true, or a higher zero.",
            field="stages",
        )

    def _variants(
        self, step: LayeredStep, mesh: DeviceMesh, stage: LayoutStage, run: tuple[int, int]
    ) -> Iterator[Variant]:
        """The fastest first."""
        recomputes = (False, True) if stage.recomputes is None else (stage.recomputes,)
        key = stage.group, mesh, stage.axes, stage.zero_stages, stage.splits, recomputes
        if key not in self.known:
            [[self.known[key]]] = mesh_quantities(
                [step], [mesh], self.pricing[stage.group], prices=[self.prices], recomputes=recomputes
            )
        taken = self.known[key][:, run[0], run[1]]
        number = self.layout.num_micro_batches
        seconds = number * (taken[Quantity.FORWARD_S] + taken[Quantity.BACKWARD_S]) + taken[Quantity.ONCE_S]
        shape = mesh.shape[0], mesh.shape[1]
        for at in np.argsort(seconds, kind="stable"):
            again, price = divmod(int(at), self.prices.size)
            yield Variant(shape=shape, recomputes=recomputes[again], price=price)


def _mesh(nodes: NodeGroup, stage: LayoutStage) -> DeviceMesh:
    devices = stage.num_devices
    per_node = min(devices, nodes.devices_per_node)
    return DeviceMesh(Submesh(devices // per_node, per_node), stage.mesh)


def _check_devices(cluster: TrainingCluster, layout: TrainingLayout) -> None:
    for stage in layout.stages:
        if stage.group >= len(cluster.groups):
            raise InvalidArgumentError(
                f"{stage.place}.group: there is no group {stage.group}.",
                hint=f"The cluster has the groups 0 to {len(cluster.groups) - 1}: {cluster.label}.",
                field="group",
            )
        inner, per_node = stage.mesh[1], cluster.groups[stage.group].devices_per_node
        if stage.num_devices % min(stage.num_devices, per_node) or (inner % per_node and per_node % inner):
            raise InvalidArgumentError(
                f"{stage.place}.mesh: {stage.mesh[0]}x{stage.mesh[1]} does not lie on nodes of {per_node} devices.",
                hint="A stage has a part of one node, or whole nodes; its second axis divides a node or fills some.",
                field="mesh",
            )
    for number, nodes in enumerate(cluster.groups):
        total = sum(stage.num_devices for stage in layout.stages if stage.group == number)
        has = nodes.label if len(cluster.groups) > 1 else "the cluster"
        if total != nodes.num_devices and (total or len(cluster.groups) == 1):
            raise InvalidArgumentError(
                f"{layout.place}: the stages have {total} devices, and {has} {nodes.num_devices}.",
                hint="Give every device to a stage.",
                field="stages",
            )


def _runs(step: LayeredStep, layout: TrainingLayout) -> list[tuple[int, int]]:
    """The layers of each stage; InvalidArgumentError where they are not all layers, in order."""
    runs: list[tuple[int, int]] = []
    for stage in layout.stages:
        first, last = stage.layers if stage.layers is not None else _of_modules(step, stage)
        begins = runs[-1][1] + 1 if runs else 0
        if first != begins:
            raise InvalidArgumentError(
                f"{stage.place} begins with layer {first} instead of {begins}.",
                hint="Every layer is in one stage, in the model's order.",
                field="layers",
            )
        runs.append((first, last))
    if runs[-1][1] != len(step.layers) - 1:
        raise InvalidArgumentError(
            f"{layout.stages[-1].place} ends with layer {runs[-1][1]}; the model has the layers 0 to "
            f"{len(step.layers) - 1}.",
            hint="Let the last stage end with the last layer.",
            field="layers",
        )
    return runs


def _of_modules(step: LayeredStep, stage: LayoutStage) -> tuple[int, int]:
    assert stage.modules is not None
    operators = step.training.graph.operators
    found = []
    for path in stage.modules:
        within = [
            number
            for number, layer in enumerate(step.layers)
            if any(f"{operators[at].module}.".startswith(f"{path}.") for at in layer.forward)
        ]
        if not within:
            raise InvalidArgumentError(
                f"{stage.place}.modules: the model has no module '{path}'.",
                hint="`headway profile model MODEL --capture-only --operators` lists operators with their modules.",
                field="modules",
            )
        found.append(within)
    return found[0][0], found[1][-1]


def _options(step: LayeredStep, stage: LayoutStage, run: tuple[int, int]) -> ShardingOptions:
    return ShardingOptions(
        axis_roles=(AxisRole(stage.axes[0]), AxisRole(stage.axes[1])),
        zero_stages=stage.zero_stages,
        splits=dict(_splits(step, stage, run)),
    )


def _splits(step: LayeredStep, stage: LayoutStage, run: tuple[int, int]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """InvalidArgumentError where an operator is not in the stage, or has no such loop, or one that does not divide."""
    graph = step.training.graph
    positions = [at for layer in step.layers[run[0] : run[1] + 1] for at in (*layer.forward, *layer.backward)]
    operators = {graph.operators[at].name: graph.operators[at] for at in positions}
    for split in stage.splits:
        operator = operators.get(split.operator)
        if operator is None:
            raise InvalidArgumentError(f"{split.place}: the stage has no such operator.", field="splits")
        sizes = {dim.name: dim.size for dim in operator.space.dims} if operator.space else {}
        free = splittable_loops(operator)
        left = dict(sizes)
        for loop, size in zip(split.loops, stage.mesh, strict=True):
            if loop and (loop not in free or left[loop] % size):
                raise InvalidArgumentError(
                    f"{split.place}: '{loop}' cannot be split over {size} devices.",
                    hint=f"Its loops are {', '.join(f'{name} of {sizes[name]}' for name in free) or 'none'}.",
                    field="splits",
                )
            if loop:
                left[loop] //= size
        yield split.operator, split.loops
