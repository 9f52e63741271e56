"""Table III and figures 13 to 15: the paper's models on its placements, with times from the cost model."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise, product

from benchmarks.planner.foretold import captured
from benchmarks.tessel.row import Row, certified, timed
from headway.core.catalogue import built_in_catalogue
from headway.core.cost.catalogued import CatalogueCosts
from headway.core.cost.checked import CheckedCosts
from headway.core.cost.costs import Costs
from headway.core.device_mesh import DeviceMesh, Submesh, logical_shapes
from headway.core.errors import HeadwayError
from headway.core.graph import Graph
from headway.core.plan.training import TrainingStage
from headway.core.precision import Precision
from headway.core.schedule import Dependency, Task, TaskKind, TaskPlacement
from headway.core.training_cluster import NodeGroup, TrainingCluster
from headway.planner.inter.layers import make_layers
from headway.planner.inter.stage_table import Variant
from headway.planner.intra.mesh_costs import MeshPricing
from headway.planner.intra.options import ShardingOptions
from headway.planner.schedule.kernels import Limits
from headway.planner.schedule.planned import schedule_plan
from headway.planner.training.alpa import memory_prices
from headway.planner.training.plan import make_training_plan
from headway.planner.training.problem import TrainingProblem
from headway.planner.training.stages import StageLayout, StageMaker
from headway.planner.training.step import layered_step, training_graph

_DEVICE, _LINK, _NETWORK = "A100-80", "NVLink 3", "InfiniBand EDR"
_MEMORY_BYTES = 79 * 2**30
"""The paper's V100-32 hold none of table III with the float32 masters and moments that plans count, 16 bytes a
parameter: 11B on 4 GPUs takes 42 GB of each."""
_PER_NODE = 8
_BATCH = 128
_COUNTS = (32, 64)
"""Numbers of micro-batches that are tried."""
_COLUMNS = 4
"""Devices of the pipeline, each a part of the GPUs."""
_IN_FLIGHT = 6
_WITHIN = 0.02
_REPEATED = re.compile(r"^(.*?\.)?\d+(?=\.|$)")
_GPUS = (4, 8, 16, 32)
_SIZES = {"gpt": ("11b", "24b", "47b", "77b"), "mt5": ("1.8b", "9.5b", "43b", "88b")}
_PAPER = {"gpt": "4.8x over 1F1B, 1.4x over 1F1B+", "mt5": "5.5x and 1.4x"}


def zoo_rows(only: str = "") -> Iterator[Row]:
    """Figure 15, then table III and figures 13 and 14, the smaller models first.

    Args:
        only: one of the models, such as 'gpt-11b' or 'flava'; all of them where it is empty.
    """
    if only in ("", "flava"):
        yield from _inferred()
    for num_devices, *sizes in zip(_GPUS, *_SIZES.values(), strict=True):
        for family, size in zip(_SIZES, sizes, strict=True):
            if only in ("", f"{family}-{size}"):
                yield from _trained(f"zoo:tessel-{family}-{size}", family, num_devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Layers that run together.

    Attributes:
        first, last: layers, both included.
        column: the device of the pipeline; None for all of them.
        needs: parts that it waits for.
    """

    first: int
    last: int
    column: int | None
    needs: tuple[int, ...] = ()

    @property
    def columns(self) -> tuple[int, ...]:
        return tuple(range(_COLUMNS)) if self.column is None else (self.column,)


class Pricing:
    """What the parts of a model take on some GPUs, with micro-batches of one size."""

    def __init__(self, graph: Graph, num_devices: int, micro_batch: int, *, is_training: bool = True) -> None:
        self.nodes = node_group(num_devices)
        self.is_training = is_training
        training = training_graph(graph, micro_batch, Precision.BFLOAT16)
        self._elements = {name: tensor.num_elements for name, tensor in training.tensors.items()}
        self.names = unit_names([op.module for op in graph.operators if not op.is_backward])
        layers = make_layers(training, num_layers=len(self.names))
        step = layered_step(training, layers, Precision.BFLOAT16, ShardingOptions())
        self.prices = memory_prices(step, _BATCH // micro_batch or 1, [costs()])
        self._count = _BATCH // micro_batch or 1
        self._maker = StageMaker(step=step, pricing=[MeshPricing(self.nodes, costs())], prices=self.prices)

    def variants(self, part: Part) -> list[TrainingStage]:
        """The ways to split a part over its GPUs, the fastest first, without those that also hold more."""
        size = self.nodes.num_devices if part.column is None else self.nodes.num_devices // _COLUMNS
        per_node = min(size, self.nodes.devices_per_node)
        submesh = Submesh(size // per_node, per_node)
        made = [
            self._maker.stage(
                StageLayout(
                    first=part.first,
                    last=part.last,
                    mesh=DeviceMesh(submesh, shape),
                    variant=Variant(shape=shape, recomputes=again, price=price),
                    first_device=0,
                    in_flight=1,
                )
            )
            for shape in logical_shapes(submesh)
            for again in ((False, True) if self.is_training else (False,))
            for price in range(self.prices.size)
        ]
        kept: list[TrainingStage] = []
        for stage in sorted(made, key=lambda each: (self.seconds(each), self.held_bytes(each))):
            if not kept or self.held_bytes(stage) < self.held_bytes(kept[-1]):
                kept.append(stage)
        return kept

    def seconds(self, stage: TrainingStage) -> float:
        """Of one micro-batch, with its share of what happens once."""
        if not self.is_training:
            return stage.forward_s
        return stage.forward_s + stage.backward_s + stage.once_s / self._count

    def held_bytes(self, stage: TrainingStage) -> int:
        """On each of its GPUs beside the workspace, with what micro-batches in flight keep."""
        if not self.is_training:
            return stage.memory.weights_bytes
        kept = min(self._count, _IN_FLIGHT) * stage.memory.activations_bytes
        return self.static_bytes(stage) + kept

    def twice_bytes(self, stages: Sequence[TrainingStage]) -> int:
        """What stages on the same GPUs hold of the same parameters beyond once: an embedding that is the output matrix
        too."""
        twice, seen = 0.0, set[str]()
        for stage in stages:
            sizes = {each.parameter: self._elements[each.parameter] for each in stage.parameters}
            share = sum(size for name, size in sizes.items() if name in seen) / max(1, sum(sizes.values()))
            twice += share * self.static_bytes(stage)
            seen |= sizes.keys()
        return int(twice)

    def static_bytes(self, stage: TrainingStage) -> int:
        memory = stage.memory
        if not self.is_training:
            return memory.weights_bytes
        return memory.weights_bytes + memory.gradients_bytes + memory.optimizer_bytes


def node_group(num_devices: int) -> NodeGroup:
    """The paper's cluster, or a part of it."""
    catalogue, per_node = built_in_catalogue(), min(_PER_NODE, num_devices)
    return NodeGroup(
        device=_DEVICE,
        num_nodes=num_devices // per_node,
        devices_per_node=per_node,
        memory_bytes=_MEMORY_BYTES,
        link=catalogue.links[_LINK].fabric,
        network=catalogue.links[_NETWORK].fabric,
    )


def costs() -> Costs:
    return CheckedCosts(CatalogueCosts(built_in_catalogue().devices[_DEVICE]))


def unit_names(modules: Sequence[str]) -> list[str]:
    """Runs of operators of one repeated module, and '' for what lies between."""
    found = [match.group() if (match := _REPEATED.match(each)) else "" for each in modules]
    return [name for name, _ in groupby(found)]


def parts_of(names: Sequence[str], family: str) -> list[Part]:
    """The placements of figure 8: what is no layer on all devices, layers on one each. Flava's branches have half of
    the devices each, with what lies before them, and the cross encoder all."""
    runs = [(name.rpartition(".")[0], list(units)) for name, units in groupby(range(len(names)), lambda i: names[i])]
    sections: list[tuple[str, list[int]]] = []
    for name, units in runs:
        if sections and sections[-1][0] == name:
            sections[-1][1].extend(units)
        else:
            sections.append((name, units))
    if family == "flava":
        return _branches(sections)
    repeated = sum(1 for name, _ in sections if name)
    found: list[Part] = []
    columns = iter(range(_COLUMNS))
    for name, units in sections:
        share = _COLUMNS // repeated if name else 1
        bounds = [len(units) * i // share for i in range(share + 1)]
        for low, high in pairwise(bounds):
            needs = (len(found) - 1,) if found else ()
            column = next(columns) if name else None
            found.append(Part(first=units[low], last=units[high - 1], column=column, needs=needs))
    return found


def _branches(sections: list[tuple[str, list[int]]]) -> list[Part]:
    ends = [units[-1] for name, units in sections if name]
    text, vision = ends[0], ends[1]
    first = [units for name, units in sections if name]
    middle = first[0][len(first[0]) // 2], first[1][len(first[1]) // 2]
    return [
        Part(first=0, last=middle[0] - 1, column=0),
        Part(first=middle[0], last=text, column=1, needs=(0,)),
        Part(first=text + 1, last=middle[1] - 1, column=2),
        Part(first=middle[1], last=vision, column=3, needs=(2,)),
        Part(first=vision + 1, last=sections[-1][1][-1], column=None, needs=(1, 3)),
    ]


def choose(pricing: Pricing, parts: Sequence[Part]) -> list[TrainingStage] | None:
    """The ways to split that give the shortest period and fit together; None where none do."""
    variants = [pricing.variants(part) for part in parts]
    shared = [number for number, part in enumerate(parts) if part.column is None]
    best, least_s = None, float("inf")
    for combination in product(*(variants[number] for number in shared)):
        chosen = dict(zip(shared, combination, strict=True))
        for column in range(_COLUMNS):
            own = [number for number, part in enumerate(parts) if part.column == column]
            for number in own:
                fitting = (each for each in variants[number] if _fits(pricing, [*combination, each]))
                if (stage := next(fitting, None)) is not None:
                    chosen[number] = stage
        if len(chosen) < len(parts):
            continue
        loads = [
            sum(pricing.seconds(chosen[number]) for number, part in enumerate(parts) if column in part.columns)
            for column in range(_COLUMNS)
        ]
        if max(loads) < least_s:
            best, least_s = [chosen[number] for number in range(len(parts))], max(loads)
    return best


def _fits(pricing: Pricing, stages: Sequence[TrainingStage]) -> bool:
    workspace = max(stage.memory.workspace_bytes for stage in stages) if pricing.is_training else 0
    return sum(map(pricing.held_bytes, stages)) - pricing.twice_bytes(stages) + workspace <= pricing.nodes.memory_bytes


def placed(pricing: Pricing, parts: Sequence[Part], stages: Sequence[TrainingStage], *, name: str) -> TaskPlacement:
    """The parts as tasks, in seconds and bytes."""
    forwards = [
        Task(name=f"F{i}", devices=part.columns, time=stage.forward_s, memory=_kept(pricing, stage))
        for i, (part, stage) in enumerate(zip(parts, stages, strict=True))
    ]
    lags = [stage.handover_s / 2 for stage in stages]
    needs = [Dependency(before=j, after=i, lag=lags[j]) for i, part in enumerate(parts) for j in part.needs]
    capacities = []
    for column in range(_COLUMNS):
        own = [stage for part, stage in zip(parts, stages, strict=True) if column in part.columns]
        workspace = max(stage.memory.workspace_bytes for stage in own) if pricing.is_training else 0
        static_bytes = sum(map(pricing.static_bytes, own)) - pricing.twice_bytes(own)
        capacities.append(float(pricing.nodes.memory_bytes - static_bytes - workspace))
    if not pricing.is_training:
        return TaskPlacement(name=name, num_devices=_COLUMNS, tasks=tuple(forwards), dependencies=tuple(needs))
    count = len(parts)
    backwards = [
        Task(
            name=f"B{i}",
            devices=parts[i].columns,
            time=stages[i].backward_s,
            memory=-_kept(pricing, stages[i]),
            kind=TaskKind.BACKWARD,
        )
        for i in reversed(range(count))
    ]
    needs += [
        Dependency(before=2 * count - 1 - i, after=2 * count - 1 - j, lag=lags[j])
        for i, part in enumerate(parts)
        for j in part.needs
    ]
    needs.append(Dependency(before=count - 1, after=count))
    return TaskPlacement(
        name=name,
        num_devices=_COLUMNS,
        tasks=(*forwards, *backwards),
        dependencies=tuple(needs),
        memory=tuple(capacities),
    )


def _kept(pricing: Pricing, stage: TrainingStage) -> float:
    return float(stage.memory.activations_bytes) if pricing.is_training else 0.0


def _trained(model: str, family: str, num_devices: int) -> Iterator[Row]:
    """The fastest number of micro-batches of each schedule."""
    graph, name = captured(model, None), model.removeprefix("zoo:tessel-")
    found: dict[str, float] = {}
    for count in _COUNTS:
        pricing = Pricing(graph, num_devices, _BATCH // count)
        parts = parts_of(pricing.names, family)
        stages = choose(pricing, parts)
        if stages is None:
            continue
        placement = placed(pricing, parts, stages, name=name)
        made, cpu_s = timed(partial(certified, placement, count))
        assert made.repetend is not None
        gap = made.repetend.period / placement.lower_bound - 1
        proven = " (proven)" if made.repetend.is_optimal else ""
        yield Row(
            part="table III",
            case=f"{name}, {num_devices} GPUs, {count} micro-batches",
            found=f"period {made.repetend.period:.4g} s, {gap:.2%} above the bound{proven}, "
            f"N_R {made.repetend.num_micro_batches}",
            target=f"within {_WITHIN:.0%}, or a proof",
            cpu_s=cpu_s,
            is_met=gap <= _WITHIN or made.repetend.is_optimal,
        )
        once_s = sum(max(each.once_s for each in stages if each.mesh == mesh) for mesh in {s.mesh for s in stages})
        found["Tessel"] = min(found.get("Tessel", float("inf")), made.schedule.makespan + once_s)
        try:
            plus = certified(placement, count, Limits(), method="1f1b+")
            found["1F1B+"] = min(found.get("1F1B+", float("inf")), plus.schedule.makespan + once_s)
        except HeadwayError:
            pass
    found |= _chain(model, graph, num_devices)
    if "Tessel" in found:
        others = {each: seconds / found["Tessel"] for each, seconds in found.items() if each != "Tessel"}
        flops = graph.flops / graph.batch * _BATCH
        told = ", ".join(f"{ratio:.2f}x over {each}" for each, ratio in others.items())
        yield Row(
            part="figure 13" if family == "gpt" else "figure 14",
            case=f"{name}, {num_devices} GPUs",
            found=f"{found['Tessel']:.4g} s an iteration, {flops / found['Tessel'] / 1e15:.3g} PFLOPS; {told}",
            target=f"the paper up to {_PAPER[family]}",
            is_met=None,
        )


def _chain(model: str, graph: Graph, num_devices: int) -> dict[str, float]:
    """1F1B of the best chain of stages that fits, each on its own devices."""
    problem = TrainingProblem(
        model=model,
        graph=graph,
        cluster=TrainingCluster(groups=(node_group(num_devices),)),
        batch=_BATCH,
        precision=Precision.BFLOAT16,
        micro_batches=_COUNTS,
    )
    try:
        plan = make_training_plan(
            problem,
            [costs()],
            method="alpa",
            nonce="",
            report=lambda _: None,
            should_stop=lambda: False,
            to_document=lambda _: {},
        )
    except HeadwayError:
        return {}
    made = schedule_plan(plan, "1f1b", limits=Limits()).schedule
    assert made is not None
    return {f"1F1B ({len(plan.stages)} stages)": made.iteration_s}


def _inferred() -> Iterator[Row]:
    """Flava on 4 GPUs: branches side by side, one after the other, and everything on all GPUs."""
    graph, count = captured("zoo:tessel-flava", None), 8
    for micro_batch in (1, 2, 4, 8, 16, 32):
        pricing = Pricing(graph, _COLUMNS, micro_batch, is_training=False)
        branches = parts_of(pricing.names, "flava")
        last = branches[-1].last
        quarters = [(last + 1) * i // _COLUMNS for i in range(_COLUMNS + 1)]
        chain = [
            Part(first=low, last=high - 1, column=i, needs=(i - 1,) if i else ())
            for i, (low, high) in enumerate(pairwise(quarters))
        ]
        whole = [Part(first=0, last=last, column=None)]
        told, latencies = [], {}
        for name, parts in (("Tessel", branches), ("1F1B", chain), ("tensor parallel", whole)):
            stages = choose(pricing, parts)
            if stages is None:
                told.append(f"{name} does not fit")
                continue
            placement = placed(pricing, parts, stages, name=name)
            one, many = (certified(placement, each).schedule.makespan for each in (1, count))
            latencies[name] = one
            told.append(f"{name} {1e3 * one:.0f} ms, {count * micro_batch / many:.1f}/s")
        yield Row(
            part="figure 15",
            case=f"Flava, micro-batches of {micro_batch}, {count} of them",
            found="; ".join(told),
            target="latency below 1F1B's",
            is_met=latencies["Tessel"] <= latencies["1F1B"] if {"Tessel", "1F1B"} <= latencies.keys() else None,
        )
