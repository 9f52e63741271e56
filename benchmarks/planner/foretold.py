"""What the planner says that a layout takes: the plan that has just that layout, priced."""

from collections.abc import Iterator
from functools import cache
from itertools import pairwise

from benchmarks.planner.layout import COLUMN_WISE, ROW_WISE, Layout
from headway.core.batch_dims import BatchDims
from headway.core.capture import CaptureRequest
from headway.core.catalogue import built_in_catalogue
from headway.core.cost.catalogued import CatalogueCosts
from headway.core.graph import Graph, Operator, OperatorKind, TensorRole
from headway.core.training_cluster import NodeGroup, TrainingCluster
from headway.core.training_layout import LayoutStage, OperatorSplit, TrainingLayout
from headway.planner.training.alpa import Found
from headway.planner.training.fixed import lay_out
from headway.planner.training.problem import TrainingProblem
from headway.planner.training.step import cut_layers, training_graph
from headway.profiler.capture.capture import capture


@cache
def captured(model: str, seq: int | None) -> Graph:
    """A training step of two examples.

    Args:
        model: `zoo:NAME` or `module:factory`.
    """
    request = CaptureRequest(source=model, batch=2, seq=seq, train=True)
    graph = capture(request, report=lambda _: None).graph
    assert graph is not None
    return graph


def node_group(num_devices: int, *, node: str = "DGX H100", memory_bytes: int = 10**12) -> NodeGroup:
    """Whole nodes, or a part of one, with memory for anything."""
    catalogue = built_in_catalogue()
    kind = catalogue.nodes[node]
    per_node = min(8, num_devices)
    return NodeGroup(
        device=kind.device,
        num_nodes=num_devices // per_node,
        devices_per_node=per_node,
        memory_bytes=memory_bytes,
        link=catalogue.links[kind.link].fabric,
        network=catalogue.links[kind.network].fabric,
        num_ports=kind.num_ports,
    )


def foretold(
    model: str,
    layout: Layout,
    *,
    node: str = "DGX H100",
    seq: int | None = None,
    num_stages: int = 1,
    num_micro_batches: int = 2,
) -> Found:
    """The plan of a layout, whatever memory it takes.

    Blocks' matrices are split as Megatron-LM does it; all else along examples alone.

    Args:
        layout: of each stage.
        node: of the catalogue.
        num_stages: of equally many layers, as far as that goes.
    """
    graph, nodes = captured(model, seq), node_group(num_stages * layout.num_devices, node=node)
    problem = TrainingProblem(
        model=model,
        graph=graph,
        cluster=TrainingCluster(groups=(nodes,)),
        batch=num_micro_batches * layout.micro_batch,
        precision=layout.precision,
    )
    layers = cut_layers(training_graph(graph, layout.micro_batch, layout.precision), None)
    layer_of = {graph.operators[at].name: number for number, layer in enumerate(layers) for at in layer.forward}
    bounds = [number * len(layers) // num_stages for number in range(num_stages + 1)]
    split = tuple(splits(graph)) if layout.tensor > 1 else ()
    stages = tuple(
        LayoutStage(
            layers=(first, behind - 1),
            mesh=(layout.data, layout.tensor),
            axes=("data", "model"),
            zero_stages=(layout.zero_stage,),
            recomputes=layout.recomputes,
            splits=tuple(each for each in split if first <= layer_of[each.operator] < behind),
            place=f"stages[{number}]",
        )
        for number, (first, behind) in enumerate(pairwise(bounds))
    )
    costs = [CatalogueCosts(built_in_catalogue().device(nodes.device))]
    return lay_out(problem, costs, TrainingLayout(num_micro_batches=num_micro_batches, stages=stages, place="layout"))


def splits(graph: Graph) -> Iterator[OperatorSplit]:
    """The splits of products with parameters and of tables."""
    tensors = graph.tensors_by_name()
    for operator, batch in zip(graph.operators, BatchDims(graph).loops, strict=True):
        has_parameter = any(tensors[name].role is TensorRole.PARAMETER for name in operator.inputs)
        is_leading = operator.kind in (OperatorKind.MATMUL, OperatorKind.EMBEDDING)
        if is_leading and has_parameter and not operator.is_backward:
            along = next((dim.name for dim in operator.space.dims if dim.name in batch), "") if operator.space else ""
            yield OperatorSplit(operator=operator.name, loops=(along, _across(operator)), place=operator.name)


def _across(operator: Operator) -> str:
    """The loop along a matrix's columns or rows; '' where it is whole on every device."""
    kind = operator.module.rpartition(".")[2]
    assert operator.space is not None
    reduced = operator.space.writes[0].reduced
    weight = operator.space.reads[-1]
    for dim in operator.space.dims:
        if dim.name in weight.loops and ((kind in ROW_WISE) if dim.name in reduced else (kind in COLUMN_WISE)):
            return dim.name
    return ""
