"""Small random graphs, and an oracle for covers of them that was written apart from the search."""

import random
from collections.abc import Iterator, Sequence
from itertools import combinations

from headway.core.graph import Graph, Operator, OperatorKind, TensorRole, TensorSpec
from headway.planner.backends.network import Network, Operators
from headway.planner.backends.placing import Kernel

TARGETS = ("aten.convolution.default", "aten.relu.default", "aten.add.Tensor", "aten.gelu.default")


def make_graph(edges: Sequence[Sequence[int]], targets: Sequence[str] = (), results: Sequence[int] = ()) -> Graph:
    """A graph in which operator i reads what the operators `edges[i]` make, or else the input; those that nobody reads
    and `results` are the model's."""
    read = {source for sources in edges for source in sources}
    tensors = [TensorSpec(name="x", shape=(2, 4), dtype="float32", role=TensorRole.INPUT)]
    operators = []
    for at, sources in enumerate(edges):
        is_result = at not in read or at in results
        role = TensorRole.OUTPUT if is_result else TensorRole.ACTIVATION
        tensors.append(TensorSpec(name=f"t{at}", shape=(2, 4), dtype="float32", role=role))
        operators.append(
            Operator(
                name=f"op{at}",
                kind=OperatorKind.ELEMENTWISE,
                target=targets[at] if targets else "aten.relu.default",
                inputs=tuple(f"t{source}" for source in sources) or ("x",),
                outputs=(f"t{at}",),
                bytes_read=32,
                bytes_written=32,
            )
        )
    return Graph(name="g", is_training=False, tensors=tuple(tensors), operators=tuple(operators))


def random_graph(seed: int, *, most: int = 8) -> Graph:
    generator = random.Random(seed)
    size = generator.randint(1, most)
    edges = [generator.sample(range(at), generator.randint(0, min(2, at))) for at in range(size)]
    results = [at for at in range(size) if generator.random() < 0.1]
    return make_graph(edges, [generator.choice(TARGETS) for _ in range(size)], results)


def legal_sets(network: Network, *, most: int) -> list[Operators]:
    """All sets of operators with one way out, found by trying all."""
    count = len(network.graph.operators)
    sets = [frozenset(some) for size in range(1, most + 1) for some in combinations(range(count), size)]
    return [some for some in sets if len(ways_out(network, some)) == 1]


def ways_out(network: Network, operators: Operators) -> list[int]:
    """Operators of a set whose result somebody outside reads."""
    graph = network.graph
    outputs = {tensor.name for tensor in graph.tensors if tensor.role is TensorRole.OUTPUT}
    read_outside = {name for at, each in enumerate(graph.operators) if at not in operators for name in each.inputs}
    return [at for at in sorted(operators) if set(graph.operators[at].outputs) & (outputs | read_outside)]


def covers(kernels: Sequence[Kernel], left: Operators) -> Iterator[tuple[Kernel, ...]]:
    """All ways to cover operators with disjoint kernels."""
    if not left:
        yield ()
        return
    first = min(left)
    for kernel in kernels:
        if first in kernel.operators and kernel.operators <= left:
            for others in covers(kernels, left - kernel.operators):
                yield (kernel, *others)
