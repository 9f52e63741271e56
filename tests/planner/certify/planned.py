"""Training plans that are made without a search, for graphs that are captured or written by hand."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from headway.core.cluster import Fabric
from headway.core.device_mesh import DeviceMesh, Submesh
from headway.core.gradients import contributions
from headway.core.graph import Graph, TensorRole
from headway.core.iteration import IterationSpace
from headway.core.plan.training import (
    DeviceMemory,
    OperatorSharding,
    ParameterSharding,
    TensorSharding,
    TrainingPlan,
    TrainingStage,
)
from headway.core.sharding_spec import Shard, ShardingSpec
from headway.core.training_cluster import NodeGroup, TrainingCluster
from headway.planner.certify.training.memory import recount
from headway.planner.certify.training.step import PlannedStep
from headway.planner.intra.strategies import Strategy, strategies
from headway.profiler.capture.graph import build_graph
from headway.profiler.capture.trace import trace
from headway.profiler.zoo.network import make_network
from headway.profiler.zoo.registry import find

NOTHING = DeviceMemory(weights_bytes=0, gradients_bytes=0, optimizer_bytes=0, activations_bytes=0, workspace_bytes=0)


def cluster_of(num_nodes: int = 2, devices_per_node: int = 4, *, memory_bytes: int = 16 * 2**30) -> TrainingCluster:
    group = NodeGroup(
        device="V100-16",
        num_nodes=num_nodes,
        devices_per_node=devices_per_node,
        memory_bytes=memory_bytes,
        link=Fabric(latency_s=1e-5, bytes_per_s=130e9),
        network=Fabric(latency_s=3e-5, bytes_per_s=3e9),
    )
    return TrainingCluster(groups=(group,))


@cache
def captured(name: str, batch: int = 8) -> Graph:
    model = find(name)
    traced = trace(make_network(model), model.example_inputs(batch=batch), train=True, report=lambda _: None)
    return build_graph(traced, name=name, is_training=True, batch=batch)


def plan_of(
    graph: Graph,
    cluster: TrainingCluster,
    *,
    meshes: Sequence[DeviceMesh],
    num_micro_batches: int = 4,
    precision: str = "float32",
    zero_stage: int = 0,
    layers: int = 0,
) -> TrainingPlan:
    """Cuts the forward operators into equal stages, and splits each operator so that what it reads lies as it was made
    as far as possible.

    Args:
        layers: so many in each stage are recomputed; 0 recomputes none.
    """
    homes, lies, stages = _homes(graph, len(meshes)), dict[str, ShardingSpec](), []
    chosen = {number: _shard(graph, homes, number, mesh, lies) for number, mesh in enumerate(meshes)}
    for number, mesh in enumerate(meshes):
        first_device = sum(before.num_devices for before in meshes[:number])
        stage = _stage(graph, homes, number, mesh, chosen[number])
        num_forward = sum(not op.is_backward and homes[op.name] == number for op in graph.operators)
        stages.append(
            replace(
                stage,
                first_device=first_device,
                parameters=tuple(replace(each, zero_stage=zero_stage) for each in stage.parameters),
                in_flight=min(len(meshes) - number, num_micro_batches),
                recomputes=layers > 0,
                layers=_equal(num_forward, layers) if layers else (),
                handover_s=0.0 if number == len(meshes) - 1 else 0.001,
            )
        )
    latencies = [stage.latency_s for stage in stages]
    plan = TrainingPlan(
        plan_id="training-1",
        created_at_s=1.0,
        model=graph.name,
        graph_hash="captured",
        cluster=cluster,
        batch=graph.batch * num_micro_batches,
        num_micro_batches=num_micro_batches,
        precision=precision,
        method="by hand",
        flops=graph.flops * num_micro_batches,
        stages=tuple(stages),
        iteration_s=sum(latencies) + (num_micro_batches - 1) * max(latencies) + max(stage.once_s for stage in stages),
    )
    return counted(plan, graph)


def counted(plan: TrainingPlan, graph: Graph) -> TrainingPlan:
    """The plan with the memory that the certifier counts; a test of its own says what that should be."""
    step = PlannedStep(plan, graph)
    stages = (replace(stage, memory=recount(step, number)) for number, stage in enumerate(plan.stages))
    return replace(plan, stages=tuple(stages))


def mesh_of(num_nodes: int, devices_per_node: int, *shape: int) -> DeviceMesh:
    return DeviceMesh(Submesh(num_nodes, devices_per_node), shape)


def _equal(total: int, parts: int) -> tuple[int, ...]:
    return tuple(total * (i + 1) // parts - total * i // parts for i in range(parts))


def _homes(graph: Graph, num_stages: int) -> dict[str, int]:
    forward = [operator.name for operator in graph.operators if not operator.is_backward]
    sizes = _equal(len(forward), num_stages)
    homes = dict(zip(forward, (i for i, size in enumerate(sizes) for _ in range(size)), strict=True))
    makers = {name: operator for operator in graph.operators for name in operator.outputs}
    for operator in graph.operators:
        if operator.is_backward:
            read = [makers[name] for name in operator.inputs if name in makers]
            backward = [homes[maker.name] for maker in read if maker.is_backward]
            before = min(backward) if backward else max((homes[maker.name] for maker in read), default=num_stages - 1)
            homes[operator.name] = homes.get(operator.forward, before)
    return homes


def _shard(
    graph: Graph, homes: dict[str, int], number: int, mesh: DeviceMesh, lies: dict[str, ShardingSpec]
) -> dict[str, Strategy]:
    """A strategy for each operator of a stage; `lies` says how tensors lie that were made before."""
    tensors, chosen = graph.tensors_by_name(), dict[str, Strategy]()
    for tensor in graph.tensors:
        if tensor.role is TensorRole.INPUT:
            lies[tensor.name] = _batch_first(tensor.shape, mesh)
    for operator in graph.operators:
        if homes[operator.name] != number:
            continue
        space = operator.space or IterationSpace(dims=(), reads=(), writes=())
        known = [lies.get(access.tensor) for access in space.reads]
        options = strategies(operator, tensors, mesh.shape)
        most = max((_num_alike(each, known), each.num_parts(mesh.shape)) for each in options)
        best = next(each for each in options if (_num_alike(each, known), each.num_parts(mesh.shape)) == most)
        chosen[operator.name] = best
        lies.update({access.tensor: spec for access, spec in zip(space.writes, best.writes, strict=True)})
    return chosen


def _num_alike(strategy: Strategy, lies: Sequence[ShardingSpec | None]) -> int:
    """Mesh axes of operands along which they are read as they lie."""
    pairs = [(mine.axes, other.axes) for mine, other in zip(strategy.reads, lies, strict=True) if other is not None]
    return sum(a == b for mine, other in pairs for a, b in zip(mine, other, strict=True))


def _batch_first(shape: Sequence[int], mesh: DeviceMesh) -> ShardingSpec:
    """The batch along the first axis, where that divides it."""
    spec = ShardingSpec((Shard(0), *(None for _ in mesh.shape[1:])))
    return spec if spec.fits(shape, mesh.shape) else ShardingSpec.replicated(len(mesh.shape))


def _stage(
    graph: Graph, homes: dict[str, int], number: int, mesh: DeviceMesh, chosen: dict[str, Strategy]
) -> TrainingStage:
    replicated = ShardingSpec.replicated(len(mesh.shape))
    tensors = graph.tensors_by_name()
    home_of = {name: homes[operator.name] for operator in graph.operators for name in operator.outputs}
    joined = contributions(graph)  # once an iteration
    shardings, parameters, received = [], dict[str, ShardingSpec](), dict[str, ShardingSpec]()
    for operator in graph.operators:
        if homes[operator.name] != number:
            continue
        strategy = chosen[operator.name]
        space = operator.space
        read = {a.tensor: spec for a, spec in zip(space.reads if space else (), strategy.reads, strict=True)}
        shardings.append(OperatorSharding(operator=operator.name, splits=tuple(loop or "" for loop in strategy.loops)))
        for name in operator.inputs:
            if tensors[name].role is TensorRole.PARAMETER:
                parameters.setdefault(name, read.get(name, replicated))
            elif home_of.get(name, number) != number and name not in joined:
                received.setdefault(name, read.get(name, replicated))
    return TrainingStage(
        operators=tuple(operator.name for operator in graph.operators if homes[operator.name] == number),
        mesh=mesh,
        first_device=0,
        shardings=tuple(shardings),
        parameters=tuple(ParameterSharding(parameter=name, spec=spec) for name, spec in parameters.items()),
        received=tuple(TensorSharding(tensor=name, spec=spec) for name, spec in received.items()),
        in_flight=1,
        forward_s=0.01 * (number + 1),
        backward_s=0.02 * (number + 1),
        once_s=0.005,
        memory=NOTHING,
    )
