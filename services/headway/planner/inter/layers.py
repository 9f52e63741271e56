"""Cuts a training step into layers: runs of forward operators with the backward ones that belong to them. Pure."""

import re
from collections.abc import Hashable, Sequence
from itertools import pairwise

import numpy as np

from headway.core.dataflow import Dataflow
from headway.core.graph import TensorRole
from headway.planner.inter.clustering import DELTA, cluster
from headway.planner.intra.layer import Layer
from headway.planner.intra.quantities import Floats
from headway.planner.intra.training_graph import TrainingGraph

_MOST_LAYERS = 64
_REPEATED = re.compile(r"^(.*?\.)?\d+(\.\d+)*(?=\.|$)")  # of a module's path, up to its place in a list of lists
_LIGHT_SHARE = 0.1  # of the equal share of the work: a part with less is no layer of its own


def make_layers(training: TrainingGraph, *, num_layers: int | None = None, delta: float = DELTA) -> list[Layer]:
    """Cuts the step into layers by equation 3.6, between repeated modules where there are such, else between operators.

    Args:
        num_layers: None for as many as there are repeated modules with work, or operators with work, up to 64.

    Raises:
        InvalidArgumentError: there are fewer operators than layers.
    """
    units = _units(training)
    flops = [sum(training.graph.operators[at].flops for at in unit) for unit in units]
    if num_layers is None:
        heavy = sum(work >= _LIGHT_SHARE * sum(flops) / len(flops) for work in flops)
        num_layers = max(1, min(heavy, _MOST_LAYERS))
    elif num_layers > len(units):
        units = [(at,) for unit in units for at in unit]
        flops = [training.graph.operators[unit[0]].flops for unit in units]
    cuts = cluster(flops, _received_bytes(training, units), num_layers=num_layers, delta=delta)
    runs = [tuple(at for unit in units[first : last + 1] for at in unit) for first, last in cuts]
    return _with_backward(training, runs)


def equal_layers(training: TrainingGraph, num_layers: int) -> list[Layer]:
    """Cuts the step into layers of equally many operators, whatever they do (dissertation section 3.8.3)."""
    forward = [at for at, operator in enumerate(training.graph.operators) if not operator.is_backward]
    ends = [round(len(forward) * i / num_layers) for i in range(num_layers + 1)]
    return _with_backward(training, [tuple(forward[start:end]) for start, end in pairwise(ends)])


def layer_key(training: TrainingGraph, layer: Layer) -> Hashable:
    """Equal for layers that are the same but for the names of their operators and tensors."""
    numbers: dict[str, int] = {}
    graph = training.graph
    saved, trained = set(graph.saved), set(graph.trained)

    def number(names: Sequence[str]) -> tuple[int, ...]:
        return tuple(numbers.setdefault(name, len(numbers)) for name in names)

    operators = []
    for at in (*layer.forward, *layer.backward):
        operator = graph.operators[at]
        space = operator.space
        loops = None if space is None else (space.dims, str(space))
        operators.append(
            (operator.target, number(operator.inputs), number(operator.outputs), loops, number((operator.forward,)))
        )
    tensors = []
    for name in list(numbers):
        tensor = training.tensors.get(name)
        if tensor is not None:
            primal = training.primals.get(name, "")
            facts = tensor.shape, tensor.dtype, tensor.role, name in saved, name in trained, name in training.scaled
            tensors.append((*facts, numbers.get(primal, -1)))
    ends = number(layer.entering), number(layer.leaving)
    return tuple(operators), tuple(tensors), ends


def _units(training: TrainingGraph) -> list[tuple[int, ...]]:
    """Runs of forward operators of one repeated module, such as `layers.3` or `stages.1.4`, and what lies between; of a
    model without repeated modules each operator."""
    runs: list[tuple[str, list[int]]] = []
    for at, operator in enumerate(training.graph.operators):
        if operator.is_backward:
            continue
        found = _REPEATED.match(operator.module)
        name = found.group() if found else ""
        if not runs or runs[-1][0] != name:
            runs.append((name, []))
        runs[-1][1].append(at)
    if len(runs) == 1:
        return [(at,) for at in runs[0][1]]
    return [tuple(positions) for _, positions in runs]


def _received_bytes(training: TrainingGraph, units: Sequence[Sequence[int]]) -> Floats:
    """[units, units]: bytes that the units i to k read of what earlier ones make."""
    unit_of = {at: i for i, unit in enumerate(units) for at in unit}
    flow = Dataflow(training.graph)
    received = np.zeros((len(units), len(units)))
    for name, producer in flow.producer.items():
        if producer not in unit_of or name not in training.scaled:
            continue
        readers = sorted({unit_of[at] for at in flow.consumers.get(name, ()) if at in unit_of})
        first = unit_of[producer] + 1
        num_bytes = training.tensors[name].num_bytes
        for reader in readers:
            received[first : reader + 1, reader:] += num_bytes
            first = max(first, reader + 1)
    return received


def _with_backward(training: TrainingGraph, runs: Sequence[tuple[int, ...]]) -> list[Layer]:
    graph, flow = training.graph, Dataflow(training.graph)
    layer_of = {at: i for i, run in enumerate(runs) for at in run}
    backward: list[list[int]] = [[] for _ in runs]
    for at, operator in enumerate(graph.operators):
        if operator.is_backward:
            home = layer_of[at] = _home(training, flow, at, layer_of)
            backward[home].append(at)
    entering: list[list[str]] = [[] for _ in range(len(runs) + 1)]
    for tensor in graph.tensors:
        name = tensor.name
        producer = flow.producer.get(name)
        if producer is None or graph.operators[producer].is_backward or name not in training.scaled:
            continue
        if tensor.role not in (TensorRole.ACTIVATION, TensorRole.OUTPUT):
            continue
        readers = [layer_of[at] for at in flow.consumers.get(name, ()) if not graph.operators[at].is_backward]
        for layer in range(layer_of[producer] + 1, max(readers, default=0) + 1):
            entering[layer].append(name)
    return [
        Layer(
            forward=run,
            backward=tuple(backward[i]),
            entering=tuple(entering[i]),
            leaving=tuple(entering[i + 1]),
        )
        for i, run in enumerate(runs)
    ]


def _home(training: TrainingGraph, flow: Dataflow, at: int, layer_of: dict[int, int]) -> int:
    """The layer of a backward operator: that of its forward one. One that adds up gradients of a tensor is where the
    last of them is made."""
    operator = training.graph.operators[at]
    primals = {training.primals.get(name) for name in (*operator.inputs, *operator.outputs)}
    makers = [flow.producer[name] for name in operator.inputs if name in flow.producer]
    if len(primals) == 1 and None not in primals and makers:
        return layer_of[max(makers)]
    forward = flow.positions.get(operator.forward)
    return layer_of[forward] if forward is not None else layer_of[max(makers)]
