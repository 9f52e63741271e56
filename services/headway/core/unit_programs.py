"""Makes the programs to be timed from a graph and its program. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from math import prod

from headway.core.adam import UPDATE_BYTES, adam_program
from headway.core.graph import Graph, Operator, OperatorKind, TensorRole, TensorSpec
from headway.core.profiling_units import Layer, OperatorGroup, ProfilingUnits
from headway.core.program import Program

_PRODUCTS = (
    OperatorKind.MATMUL,
    OperatorKind.BATCHED_MATMUL,
    OperatorKind.CONVOLUTION,
    OperatorKind.ATTENTION,
)
_OUTSIDE = "(model)"


@dataclass(frozen=True, slots=True)
class UnitPrograms:
    """The subject, and every program that it names by its content hash."""

    subject: ProfilingUnits
    programs: dict[str, Program]


def unit_programs(graph: Graph, program: Program) -> UnitPrograms:
    """Equal operators and equal layers become one program each.

    Args:
        program: of the graph, its instructions named as the graph's operators.
    """
    return _UnitBuilder(graph, program).unit_programs()


def operator_programs(graph: Graph, program: Program) -> dict[str, str]:
    """By the operators' names the program that each is timed as; see `UnitPrograms.programs`."""
    return _UnitBuilder(graph, program).hashes


def with_stages(known: UnitPrograms, graph: Graph, program: Program, stages: Sequence[Sequence[Layer]]) -> UnitPrograms:
    """The same, and each of the stages, which are consecutive layers, as a program of its own."""
    builder = _UnitBuilder(graph, program)
    made = tuple(builder.stage(f"stage {number}", layers) for number, layers in enumerate(stages))
    return UnitPrograms(replace(known.subject, stages=made), known.programs | builder.programs)


def layer_of(path: str) -> str:
    """The repeated module that a module or parameter is in: its path up to the first run of numbers.

    `encoder.layers.3.mlp.fc` -> `encoder.layers.3`; without a number the outermost module.
    """
    parts = path.split(".")
    first = next((i for i, part in enumerate(parts) if part.isdigit()), None)
    if first is None:
        return parts[0] or _OUTSIDE
    run = list(takewhile(str.isdigit, parts[first:]))
    return ".".join(parts[: first + len(run)])


class _UnitBuilder:
    def __init__(self, graph: Graph, program: Program) -> None:
        self._graph = graph
        self._program = program
        self._positions = program.positions()
        self._tensors = graph.tensors_by_name()
        self.programs: dict[str, Program] = {}
        self.hashes = {operator.name: self._add([operator], with_views=False) for operator in graph.operators}
        self._updates = {name: self._add_update(self._tensors[name]) for name in graph.trained}

    def unit_programs(self) -> UnitPrograms:
        graph = self._graph
        self.programs[self._program.content_hash] = self._program
        subject = ProfilingUnits(
            model=graph.name,
            is_training=graph.is_training,
            graph_hash=graph.content_hash,
            parameters=graph.parameters,
            weight_bytes=graph.parameter_bytes,
            activation_bytes=graph.activation_bytes,
            gradient_bytes=graph.gradient_bytes,
            optimizer_bytes=graph.optimizer_bytes,
            operators=(*self._operators(), *self._optimizer()),
            layers=self._layers(),
            program=self._program.content_hash,
        )
        return UnitPrograms(subject, self.programs)

    def stage(self, name: str, layers: Sequence[Layer]) -> Layer:
        names = {layer.name for layer in layers}
        operators = [operator for operator in self._graph.operators if layer_of(operator.module) in names]
        weights = [w for w in self._weights() if layer_of(w.name.rpartition(".")[0]) in names]
        label = layers[0].name if len(layers) == 1 else f"{layers[0].name} to {layers[-1].name}"
        return self._layer(f"{name}: {label}", operators, weights)

    def _weights(self) -> Iterable[TensorSpec]:
        return (tensor for tensor in self._graph.tensors if tensor.role is TensorRole.PARAMETER)

    def _add(self, operators: Iterable[Operator], *, with_views: bool) -> str:
        part = self._program.part((self._positions[op.name] for op in operators), with_views=with_views)
        self.programs.setdefault(part.content_hash, part)
        return part.content_hash

    def _add_update(self, parameter: TensorSpec) -> str:
        update = adam_program(parameter.num_elements)
        self.programs.setdefault(update.content_hash, update)
        return update.content_hash

    def _operators(self) -> Iterable[OperatorGroup]:
        groups: dict[tuple[str, bool], list[Operator]] = defaultdict(list)
        for operator in self._graph.operators:
            groups[self.hashes[operator.name], operator.is_backward].append(operator)
        for (program, is_backward), members in groups.items():
            first = members[0]
            inputs = self.programs[program].inputs
            yield OperatorGroup(
                target=first.target,
                kind=first.kind.value,
                phase="backward" if is_backward else "forward",
                shapes=" ".join("x".join(map(str, value.shape)) or "1" for value in inputs),
                dtype=inputs[-1].dtype if inputs else "",
                count=len(members),
                flops=first.flops,
                bytes_moved=first.bytes_read + first.bytes_written,
                extents=_extents(first),
                program=program,
            )

    def _optimizer(self) -> Iterable[OperatorGroup]:
        for program, count in Counter(self._updates.values()).items():
            num_elements = prod(self.programs[program].inputs[0].shape)
            yield OperatorGroup(
                target="aten._fused_adam_.default",
                kind="optimizer",
                phase="optimizer",
                shapes=str(num_elements),
                dtype="float32",
                count=count,
                flops=0,
                bytes_moved=UPDATE_BYTES * num_elements,
                program=program,
            )

    def _layers(self) -> tuple[Layer, ...]:
        """Returns the layers in the order in which they are first run."""
        members: dict[str, list[Operator]] = defaultdict(list)
        for operator in self._graph.operators:
            members[layer_of(operator.module)].append(operator)
        weights: dict[str, list[TensorSpec]] = defaultdict(list)
        for tensor in self._weights():
            weights[layer_of(tensor.name.rpartition(".")[0])].append(tensor)
        return tuple(self._layer(name, members.get(name, ()), weights.get(name, ())) for name in {**members, **weights})

    def _layer(self, name: str, operators: Sequence[Operator], weights: Sequence[TensorSpec]) -> Layer:
        forward = [operator for operator in operators if not operator.is_backward]
        backward = [operator for operator in operators if operator.is_backward]
        forward_program = self._add(forward, with_views=True) if forward else ""
        backward_program = self._add(backward, with_views=True) if backward else ""
        return Layer(
            name=name,
            weight_bytes=sum(weight.num_bytes for weight in weights),
            activation_bytes=self._activation_bytes(forward, forward_program),
            forward=dict(Counter(self.hashes[operator.name] for operator in forward)),
            backward=dict(Counter(self.hashes[operator.name] for operator in backward)),
            optimizer=dict(Counter(self._updates[w.name] for w in weights if w.name in self._updates)),
            forward_program=forward_program,
            backward_program=backward_program,
        )

    def _activation_bytes(self, forward: Sequence[Operator], program: str) -> int:
        if self._graph.is_training:
            saved = {name for operator in forward for name in operator.outputs} & set(self._graph.saved)
            return sum(self._tensors[name].num_bytes for name in saved)
        if not program:
            return 0
        return self.programs[program].peak_bytes - self.programs[program].input_bytes


def _extents(operator: Operator) -> tuple[int, ...]:
    """Rows, columns and the summed dimension of a product, by which loops its two operands share."""
    space = operator.space
    if operator.kind not in _PRODUCTS or space is None or len(space.reads) < 2:
        return ()
    first = 0 if operator.kind is OperatorKind.ATTENTION else -2
    left, right = (access.loops for access in (space.reads[first], space.reads[first + 1]))
    sizes = {dim.name: dim.size for dim in space.dims}
    sides = (left - right, right - left, left & right & set(space.reduced))
    return tuple(prod(sizes[loop] for loop in side) for side in sides)
