"""The dataflow of a graph: who makes and who reads each tensor, and how long it is held."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from headway.core.graph import Graph, Operator, TensorRole


@dataclass(frozen=True)
class Dataflow:
    """The edges of a graph. Operators are named by their position in `graph.operators`."""

    graph: Graph

    @cached_property
    def positions(self) -> dict[str, int]:
        """The position of each operator, by its name."""
        return {operator.name: at for at, operator in enumerate(self.graph.operators)}

    @cached_property
    def producer(self) -> dict[str, int]:
        """The position of the operator that makes each tensor, by the tensor's name."""
        return {name: at for at, operator in enumerate(self.graph.operators) for name in operator.outputs}

    @cached_property
    def consumers(self) -> dict[str, tuple[int, ...]]:
        """The positions of the operators that read each tensor, in order, by the tensor's name."""
        found: dict[str, list[int]] = {}
        for at, operator in enumerate(self.graph.operators):
            for name in operator.inputs:
                found.setdefault(name, []).append(at)
        return {name: tuple(positions) for name, positions in found.items()}

    @cached_property
    def results(self) -> frozenset[str]:
        """Tensors that are held to the end: outputs and gradients of parameters."""
        outputs = {tensor.name for tensor in self.graph.tensors if tensor.role is TensorRole.OUTPUT}
        return frozenset(outputs | set(self.graph.gradients))

    @cached_property
    def last_use(self) -> dict[str, int]:
        """The position of the last operator that reads each tensor, or of its maker where none does."""
        return {name: (self.consumers.get(name, ()) or (at,))[-1] for name, at in self.producer.items()}

    def predecessors(self, at: int) -> tuple[int, ...]:
        """Operators whose results it reads, in order, each once."""
        operator = self.graph.operators[at]
        return tuple(sorted({self.producer[name] for name in operator.inputs if name in self.producer} - {at}))

    def successors(self, at: int) -> tuple[int, ...]:
        """Operators that read its results, in order, each once."""
        readers = {reader for name in self.graph.operators[at].outputs for reader in self.consumers.get(name, ())}
        return tuple(sorted(readers - {at}))

    def live(self) -> Iterator[frozenset[str]]:
        """Tensors that operators make and that are held while each operator runs, in order.

        A tensor is held from the operator that makes it to the last that reads it; results to the end.
        """
        held: set[str] = set()
        ends: dict[int, list[str]] = {}
        for name, at in self.last_use.items():
            if name not in self.results:
                ends.setdefault(at, []).append(name)
        for at, operator in enumerate(self.graph.operators):
            held.update(operator.outputs)
            yield frozenset(held)
            held.difference_update(ends.get(at, ()))

    def received(self, operators: Sequence[int]) -> tuple[str, ...]:
        """Tensors that some operators read and others make."""
        inside = set(operators)
        names = dict.fromkeys(name for at in operators for name in self.graph.operators[at].inputs)
        return tuple(name for name in names if name in self.producer and self.producer[name] not in inside)


def is_in_order(operators: Sequence[Operator]) -> bool:
    """Whether every operator comes behind those that make what it reads."""
    return out_of_order(operators) is None


def out_of_order(operators: Sequence[Operator]) -> str | None:
    """Says of the first operator that reads what itself or a later one makes, what and whose it is; else None."""
    makers = {name: at for at, operator in enumerate(operators) for name in operator.outputs}
    for at, operator in enumerate(operators):
        for name in operator.inputs:
            if makers.get(name, -1) >= at:
                return f"{operator.name} reads {name}, which {operators[makers[name]].name} makes"
    return None
