"""Plans of small decoders: as Alpa's search finds them, and with stages that split as one says."""

from collections.abc import Sequence
from functools import cache

from headway.core.batch_dims import BatchDims
from headway.core.catalogue import built_in_catalogue
from headway.core.cost.catalogued import CatalogueCosts
from headway.core.device_mesh import DeviceMesh, Submesh
from headway.core.exports.decoder import block_of
from headway.core.graph import Graph, OperatorKind, TensorRole
from headway.core.plan.training import (
    DeviceMemory,
    OperatorSharding,
    ParameterSharding,
    TrainingPlan,
    TrainingStage,
)
from headway.core.precision import Precision
from headway.core.sharding_spec import ShardingSpec
from headway.core.training_cluster import NodeGroup, TrainingCluster
from headway.planner.intra.strategies import Splitter, Strategy
from headway.planner.training.alpa import AlpaSearch
from headway.planner.training.problem import TrainingProblem
from headway.planner.training.space import SearchSpace
from tests.profiler.capture.zoo import captured

LLAMA = "llama-70b-small"  # two blocks, four heads, two of keys and values
GPT = "alpa-gpt3-350m-small"  # two blocks, four heads, tied
BATCH = 8
ALL_BLOCKS = (0, 2)
_ROW_WISE = ("output", "down")
_MEMORY = DeviceMemory(weights_bytes=1, gradients_bytes=1, optimizer_bytes=1, activations_bytes=1, workspace_bytes=1)


def node_group(*, num_nodes: int = 1, memory_bytes: int = 16 * 10**9) -> NodeGroup:
    """Nodes of eight V100s."""
    catalogue = built_in_catalogue()
    node = catalogue.nodes["p3.16xlarge"]
    return NodeGroup(
        device=node.device,
        num_nodes=num_nodes,
        devices_per_node=8,
        memory_bytes=memory_bytes,
        link=catalogue.links[node.link].fabric,
        network=catalogue.links[node.network].fabric,
    )


def plan_of(graph: Graph, stages: Sequence[TrainingStage], **changes: object) -> TrainingPlan:
    facts: dict[str, object] = {
        "plan_id": "p1",
        "created_at_s": 0.0,
        "model": f"zoo:{graph.name}",
        "graph_hash": graph.content_hash,
        "cluster": TrainingCluster(groups=(node_group(),)),
        "batch": 4 * graph.batch,
        "num_micro_batches": 4,
        "precision": "bfloat16",
        "method": "alpa",
        "flops": float(4 * graph.flops),
        "stages": tuple(stages),
        "iteration_s": 1.0,
    }
    return TrainingPlan(**(facts | changes))  # type: ignore[arg-type]


@cache
def searched(name: str, *, num_stages: int | None = None) -> tuple[Graph, TrainingPlan]:
    """What the search finds, of stages that split examples as these models are small."""
    graph = captured(name, batch=BATCH)
    group = node_group()
    problem = TrainingProblem(
        model=name,
        graph=graph,
        cluster=TrainingCluster(groups=(group,)),
        batch=4 * BATCH,
        precision=Precision.FLOAT16,
        space=SearchSpace(num_stages=num_stages),
        micro_batches=(4,),
    )
    search = AlpaSearch(problem, [CatalogueCosts(built_in_catalogue().device(group.device))])
    found = search.run(report=lambda _: None, should_stop=lambda: False)
    assert found is not None
    return graph, plan_of(graph, found.stages, iteration_s=found.iteration_s, precision="float16")


def stage(
    graph: Graph,
    *,
    data: int,
    tensor: int = 1,
    blocks: tuple[int, int] = ALL_BLOCKS,
    first_device: int = 0,
    zero_stage: int = 0,
    recomputes: bool = False,
) -> TrainingStage:
    """A stage whose first mesh axis splits examples, and whose second one parameters as Megatron-LM does.

    Args:
        blocks: the first, and the one behind the last; what lies before and behind all blocks goes with them.
    """
    mesh = DeviceMesh(Submesh(1, data * tensor), (data, tensor))
    numbers = _numbers(graph)
    inside = [operator for operator in graph.operators if blocks[0] <= numbers[operator.name] < blocks[1]]
    strategies = {
        name: each for name, each in _strategies(graph, mesh.shape).items() if blocks[0] <= numbers[name] < blocks[1]
    }
    specs: dict[str, ShardingSpec] = {}
    parameters = {tensor.name for tensor in graph.tensors if tensor.role is TensorRole.PARAMETER}
    for operator in inside:
        for access, spec in zip(
            operator.space.reads if operator.space else (), strategies[operator.name].reads, strict=True
        ):
            if access.tensor in parameters:
                specs.setdefault(access.tensor, spec)
    return TrainingStage(
        operators=tuple(operator.name for operator in inside),
        mesh=mesh,
        first_device=first_device,
        shardings=tuple(
            OperatorSharding(operator=name, splits=tuple(loop or "" for loop in strategy.loops))
            for name, strategy in strategies.items()
        ),
        parameters=tuple(
            ParameterSharding(parameter=name, spec=spec, zero_stage=zero_stage) for name, spec in specs.items()
        ),
        in_flight=1,
        recomputes=recomputes,
        forward_s=0.1,
        backward_s=0.2,
        memory=_MEMORY,
    )


def _numbers(graph: Graph) -> dict[str, int]:
    """The block that each operator goes with."""
    numbers: dict[str, int] = {}
    last = max(number for operator in graph.operators if (number := block_of(operator)) is not None)
    seen = False
    for operator in graph.operators:
        number = block_of(operator)
        seen |= number is not None
        if number is None:
            number = numbers.get(operator.forward, last if seen else 0)
        numbers[operator.name] = number
    return numbers


def _strategies(graph: Graph, mesh_shape: Sequence[int]) -> dict[str, Strategy]:
    tensors = graph.tensors_by_name()
    found: dict[str, Strategy] = {}
    for operator, batch in zip(graph.operators, BatchDims(graph).loops, strict=True):
        splitter = Splitter(operator, tensors, mesh_shape)
        along = next((loop for loop in splitter.loops if loop in batch and mesh_shape[0] > 1), None)
        across = None
        if operator.kind is OperatorKind.MATMUL and not operator.is_backward and mesh_shape[1] > 1:
            is_row_wise = operator.module.endswith(_ROW_WISE)
            across = next((loop for loop in splitter.loops if loop.startswith("k" if is_row_wise else "n")), None)
        strategy = (
            splitter.strategy((along, across)) or splitter.strategy((along, None)) or splitter.strategy((None, None))
        )
        assert strategy is not None
        found[operator.name] = strategy
    return found
