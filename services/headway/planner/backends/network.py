"""A captured model as the searches see it: operators by position, and which sets of them may become one kernel."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from headway.core.dataflow import Dataflow
from headway.core.graph import Graph, Operator, TensorSpec

Operators = frozenset[int]
"""Operators by their positions in the graph."""


@dataclass(frozen=True)
class Network:
    """A graph with its edges. Operators go by their position in `graph.operators`."""

    graph: Graph

    @cached_property
    def flow(self) -> Dataflow:
        return Dataflow(self.graph)

    @cached_property
    def tensors(self) -> dict[str, TensorSpec]:
        return self.graph.tensors_by_name()

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        return tuple(self.flow.predecessors(at) for at in range(len(self.graph.operators)))

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        return tuple(self.flow.successors(at) for at in range(len(self.graph.operators)))

    @cached_property
    def exits(self) -> Operators:
        """Operators whose results the caller gets, or which nobody reads."""
        results = self.flow.results
        operators = enumerate(self.graph.operators)
        return frozenset(at for at, each in operators if results & set(each.outputs) or not self.successors[at])

    @cached_property
    def post_order(self) -> tuple[int, ...]:
        """Every operator behind all that read it, and close to them: the order in which patterns are matched backwards.

        The depth of a node (algorithm 1) is its place here.
        """
        order: list[int] = []
        waiting = {at: len(readers) for at, readers in enumerate(self.successors)}
        ready = [at for at, count in sorted(waiting.items()) if count == 0]
        while ready:
            at = ready.pop()
            order.append(at)
            for source in self.predecessors[at]:
                waiting[source] -= 1
                if waiting[source] == 0:
                    ready.append(source)
        return tuple(order)

    @cached_property
    def post_dominators(self) -> tuple[int | None, ...]:
        """The first operator that every path from each one to the caller goes through; None where there is none."""
        places = {at: place for place, at in enumerate(self.post_order)}
        found: list[int | None] = [None] * len(places)
        for at in self.post_order:
            if at not in self.exits:
                found[at] = self._meeting(self.successors[at], places, found)
        return tuple(found)

    def operator(self, at: int) -> Operator:
        return self.graph.operators[at]

    def output(self, at: int) -> TensorSpec | None:
        """The first tensor that an operator makes; None where it makes none."""
        outputs = self.graph.operators[at].outputs
        return self.tensors[outputs[0]] if outputs else None

    def between(self, source: int, sink: int) -> Operators:
        """Operators on paths from one to another, without the first and with the last; empty where there is no path."""
        behind = self._reached(source, self.successors, until=sink)
        before = self._reached(sink, self.predecessors, until=source)
        return behind & before | {sink} if sink in behind else frozenset()

    def why_illegal(self, operators: Operators) -> str:
        """Says why these operators can't be one kernel; empty where they can.

        A kernel gives one result. So one operator is its sink, and nothing else that it makes is read elsewhere.
        Whoever leaves such a set leaves it by the sink, and so no path leads out of it and back: what is made of
        disjoint legal sets has no cycles.
        """
        if not operators:
            return "it has no operator"
        open_ends = [at for at in sorted(operators) if at in self.exits or set(self.successors[at]) - operators]
        if len(open_ends) == 1:
            return ""
        names = [self.graph.operators[at].name for at in open_ends]
        if any(self._comes_back(at, operators) for at in open_ends):
            return f"it is cyclic: what {names[0]} gives leaves it and comes back"
        return f"more than one result leaves it: those of {' and '.join(names)}"

    def _comes_back(self, at: int, operators: Operators) -> bool:
        outside = {reader for reader in self.successors[at] if reader not in operators}
        seen: set[int] = set()
        while outside:
            reader = outside.pop()
            seen.add(reader)
            readers = set(self.successors[reader])
            if readers & operators:
                return True
            outside |= readers - seen
        return False

    def _reached(self, start: int, edges: tuple[tuple[int, ...], ...], *, until: int) -> Operators:
        """What is reached from an operator, itself left out; nothing is sought behind `until`."""
        seen: set[int] = set()
        waiting = [start]
        while waiting:
            for at in edges[waiting.pop()]:
                if at not in seen:
                    seen.add(at)
                    if at != until:
                        waiting.append(at)
        return frozenset(seen)

    def _meeting(self, readers: Iterable[int], places: dict[int, int], found: list[int | None]) -> int | None:
        """The nearest operator at which the post-dominators of all readers meet."""
        meeting: int | None = None
        for number, reader in enumerate(readers):
            other: int | None = reader
            if number == 0:
                meeting = other
                continue
            while meeting != other:
                if meeting is None or other is None:
                    return None
                if places[meeting] > places[other]:
                    meeting = found[meeting]
                else:
                    other = found[other]
        return meeting
