"""One call of an operator as the rules see it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headway.core.graph import OperatorKind
from headway.core.iteration import IterationSpace, Reduction
from headway.profiler.capture.space import Labels, Operand, iteration_space
from headway.profiler.capture.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of an aten operator in a trace, with tensors as views.

    Attributes:
        name: of the operator without its overload and the underscore of in-place forms, e.g. 'addmm'.
        arguments: in the order of the schema, defaults filled in; tensors as views.
        outputs: None where a result is not computed.
    """

    name: str
    arguments: tuple[Any, ...]
    outputs: tuple[View | None, ...]

    @property
    def tensors(self) -> tuple[View, ...]:
        return tuple(_views(self.arguments))

    @property
    def output(self) -> View:
        first = self.outputs[0]
        assert first is not None
        return first

    def view(self, index: int) -> View:
        view = self.arguments[index]
        assert isinstance(view, View)
        return view


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCost:
    """The FLOPs and the iteration space of a call; `read_elements` overrides how many elements are read of an
    argument's tensor, by its name."""

    kind: OperatorKind
    flops: int = 0
    space: IterationSpace | None = None
    read_elements: dict[str, int] | None = None


Rule = Callable[[Call], OperatorCost]


def axes(view: View) -> Labels:
    """Labels the dims of a tensor d0, d1, ...: one loop for each."""
    return tuple(f"d{dim}" for dim in range(len(view.shape)))


def aligned(view: View, output: View) -> Labels:
    """Labels an operand that is broadcast against an output whose loops are d0, d1, ..."""
    offset = len(output.shape) - len(view.shape)
    return tuple(
        f"d{dim + offset}" if dim + offset >= 0 and size == output.shape[dim + offset] else ""
        for dim, size in enumerate(view.shape)
    )


def leading(view: View, like: View) -> tuple[str, ...]:
    """Labels a view whose dims are those of another view, or 1."""
    pairs = zip(view.shape, like.shape, strict=True)
    return tuple(f"d{dim}" if size == other else "" for dim, (size, other) in enumerate(pairs))


def pointwise_space(
    reads: Sequence[View], outputs: Sequence[View | None], *, reduced: Mapping[str, Reduction] | None = None
) -> IterationSpace:
    """The iteration space over the largest view; all others are broadcast against it. What is written has the
    reductions `reduced`."""
    written = [view for view in outputs if view is not None]
    largest = max((*reads, *written), key=lambda view: (len(view.shape), view.num_distinct))
    return iteration_space(
        [Operand(view, aligned(view, largest)) for view in reads],
        [Operand(view, aligned(view, largest), reduced or {}) for view in written],
    )


def _views(arguments: Sequence[Any]) -> Iterator[View]:
    for argument in arguments:
        if isinstance(argument, View):
            yield argument
        elif isinstance(argument, list | tuple):
            yield from _views(argument)
