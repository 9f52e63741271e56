"""Where the batch of a captured graph is: the dims of tensors and the loops of operators that grow with it. Pure.

It begins at dim 0 of the inputs and follows the loops of operators, forwards to what they make and backwards to what is
made for them, such as zeros to add to. Beginning at dim 1 it finds where the tokens of sequences are in the same way.
"""

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any, NamedTuple, TypeAlias

from headway.core.errors import FailedPreconditionError
from headway.core.graph import Graph, Operator, OperatorKind, TensorRole
from headway.core.iteration import Access, Dim, IterationSpace, Reduction

Place: TypeAlias = dict[int, int]
"""Dims that the batch runs along, each with how many of its indices one example has: of 4 examples of 8 tokens in one
dim of 32, 8."""

_ONTO = (OperatorKind.SCATTER, OperatorKind.DISPATCH)
_FIXED = (TensorRole.PARAMETER, TensorRole.BUFFER)


class Run(NamedTuple):
    """A loop along a dim of an operand: `step` indices of the dim are one of the loop's `size`."""

    operand: int
    dim: int
    loop: str
    step: int
    size: int


class BatchDims:
    """What grows with the batch of a graph.

    Args:
        along: dim of the inputs that grows: 0 for examples, 1 for the tokens of each.

    Attributes:
        size: of that dim.
        dims: of each tensor that grows, where.
        loops: of each operator in order, the loops that grow.

    Raises:
        FailedPreconditionError: the graph was captured with fewer than two examples or tokens, none of its inputs has
            them as that dim, or they meet a parameter or one another.
    """

    def __init__(self, graph: Graph, *, along: int = 0) -> None:
        self.size = graph.batch
        self.dims: dict[str, Place] = {}
        self.loops: list[dict[str, int]] = [{} for _ in graph.operators]
        self._graph = graph
        self._tensors = graph.tensors_by_name()
        self._positions = {operator.name: at for at, operator in enumerate(graph.operators)}
        self._users: dict[str, list[int]] = {}
        for at, operator in enumerate(graph.operators):
            for name in operator.inputs + operator.outputs:
                self._users.setdefault(name, []).append(at)
        self._waiting: list[int] = []  # a heap, so that operators come in order and mostly once
        self._is_waiting = [False] * len(graph.operators)
        self._known: dict[Any, list[Run]] = {}
        self._begin(along)
        self._follow()
        for at, operator in enumerate(graph.operators):
            if operator.is_backward and operator.space is not None and not self.loops[at]:
                self._summed(at, operator.space)

    def _begin(self, along: int) -> None:
        batch = self._graph.batch
        if not along and batch < 2:
            raise FailedPreconditionError(
                f"'{self._graph.name}' was captured with {batch or 'an unknown number of'} example{'s' * (batch != 1)} "
                "at once, which does not tell what grows with the batch.",
                hint="Capture it with two examples or more.",
            )
        inputs = [each for each in self._graph.tensors if each.role is TensorRole.INPUT and each.shape[:1] == (batch,)]
        if not inputs:
            raise FailedPreconditionError(
                f"No input of '{self._graph.name}' has its {batch} examples along the first dim.",
                hint="Let its inputs have the batch as their first dim: a factory with an argument `batch` is told it.",
            )
        sizes = {each.shape[along] for each in inputs if len(each.shape) > along} - {1}
        if len(sizes) != 1:
            raise FailedPreconditionError(
                f"The inputs of '{self._graph.name}' are no sequences of one length.",
                hint="Let the module take inputs of shape (examples, tokens).",
            )
        (self.size,) = sizes
        for each in inputs:
            if each.shape[along : along + 1] == (self.size,):
                self._grow(each.name, along, 1)

    def _follow(self) -> None:
        while self._waiting:
            at = heappop(self._waiting)
            self._visit(self._graph.operators[at], at)
            self._is_waiting[at] = False  # only now: what grows in a visit is known to the operator

    def _visit(self, operator: Operator, at: int) -> None:
        if operator.space is None:
            self._along_operands(operator)
            return
        accesses = operator.space.reads + operator.space.writes
        runs = self._runs(operator.space.dims, accesses)
        self._into_loops(at, accesses, runs)
        self._out_of_loops(at, accesses, runs)
        if operator.kind is OperatorKind.SORT:
            self._chosen(at, operator.space)
        elif operator.kind in _ONTO:
            self._onto(at, operator.space)

    def _runs(self, dims: tuple[Dim, ...], accesses: tuple[Access, ...]) -> list[Run]:
        """The loops along the dims of operands; operators of equal layers have equal ones."""
        key = dims, tuple([access.dims for access in accesses])
        if (runs := self._known.get(key)) is None:
            sizes = {dim.name: dim.size for dim in dims}
            runs = [
                Run(operand, dim, loop, step, size)
                for operand, access in enumerate(accesses)
                for dim, text in enumerate(access.dims)
                for loop, step, size in _steps(text, sizes)
            ]
            self._known[key] = runs
        return runs

    def _grow(self, tensor: str, dim: int, inner: int, *, by: str = "") -> None:
        place = self.dims.setdefault(tensor, {})
        if place.get(dim) == inner:
            return
        if dim in place or self._tensors[tensor].role in _FIXED:
            what = "meets another one in" if dim in place else "would change the size of"
            raise FailedPreconditionError(
                f"The batch of '{self._graph.name}' cannot be followed: in operator {by} it {what} {tensor}.",
                hint="Capture the model again with the wanted batch.",
            )
        place[dim] = inner
        for user in self._users.get(tensor, ()):
            if not self._is_waiting[user]:
                self._is_waiting[user] = True
                heappush(self._waiting, user)

    def _into_loops(self, at: int, accesses: tuple[Access, ...], runs: list[Run]) -> None:
        """Finds the loops that run along the batch of an operand."""
        loops, places = self.loops[at], [self.dims.get(access.tensor) for access in accesses]
        for operand, dim, loop, step, size in runs:
            inner = place.get(dim, 0) if (place := places[operand]) else 0
            if step <= inner < step * size and inner % step == 0:
                loops.setdefault(loop, inner // step)

    def _out_of_loops(self, at: int, accesses: tuple[Access, ...], runs: list[Run]) -> None:
        """Finds the dims of an operand along which loops of the batch run."""
        loops = self.loops[at]
        for operand, dim, loop, step, _ in runs if loops else ():
            if loop in loops:
                self._grow(accesses[operand].tensor, dim, step * loops[loop], by=self._graph.operators[at].name)

    def _chosen(self, at: int, space: IterationSpace) -> None:
        """Of the best so many of all examples' tokens there are in proportion more in a larger batch: an expert's
        capacity."""
        loops = self.loops[at]
        for access in space.writes:
            if any(access.reduced.get(loop) is Reduction.WHOLE for loop in loops):
                for dim, size in enumerate(self._tensors[access.tensor].shape):
                    if size > 1 and not access.dims[dim]:
                        self._grow(access.tensor, dim, 1, by=self._graph.operators[at].name)

    def _onto(self, at: int, space: IterationSpace) -> None:
        """What is written where an index says is as long as what it is written onto."""
        for target, result in zip(space.reads[:1], space.writes, strict=False):
            if target.dims == result.dims:
                for source, tensor in ((target.tensor, result.tensor), (result.tensor, target.tensor)):
                    for dim, inner in tuple(self.dims.get(source, {}).items()):
                        self._grow(tensor, dim, inner, by=self._graph.operators[at].name)

    def _summed(self, at: int, space: IterationSpace) -> None:
        """A sum over one broadcast number, such as a bias's gradient where the loss is a sum, has loops that index
        nothing: its forward operator's batch is the first of them that is as long."""
        forward = self._positions.get(self._graph.operators[at].forward, at)
        dims = (dim for other in (self._graph.operators[forward].space,) if other is not None for dim in other.dims)
        grown = {dim.size: self.loops[forward][dim.name] for dim in dims if dim.name in self.loops[forward]}
        indexing = {loop for access in space.reads + space.writes for loop in access.loops} if grown else set()
        for dim in space.dims:
            if dim.size in grown and dim.name not in indexing:
                self.loops[at][dim.name] = grown[dim.size]
                return

    def _along_operands(self, operator: Operator) -> None:
        """Without loops, a result grows where it is as long as an operand that does."""
        for name in operator.outputs:
            shape = self._tensors[name].shape
            for source in operator.inputs:
                sizes = self._tensors[source].shape
                for dim, inner in tuple(self.dims.get(source, {}).items()):
                    if shape[dim : dim + 1] == sizes[dim : dim + 1]:
                        self._grow(name, dim, inner, by=operator.name)


def _steps(dim: str, sizes: dict[str, int]) -> Iterator[tuple[str, int, int]]:
    """The loops along a dim, the minor ones first, each with how many indices one step of it is, and its size."""
    step = 1
    for part in reversed(dim.split("*")) if dim else ():
        size = int(part) if part.isdigit() else sizes.get(part, 1)
        if part in sizes:
            yield part, step, size
        step *= size
