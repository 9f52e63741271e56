"""Operators that loop over the elements of a tensor: maps, reductions, windows, copies."""

from math import prod

from headway.core.graph import OperatorKind
from headway.core.iteration import Dim
from headway.profiler.capture.call import Call, OperatorCost, Rule, axes, leading, pointwise_space
from headway.profiler.capture.space import Operand, iteration_space
from headway.profiler.capture.view import View


def pointwise(kind: OperatorKind) -> Rule:
    def rule(call: Call) -> OperatorCost:
        return OperatorCost(kind=kind, space=pointwise_space(call.tensors, call.outputs))

    return rule


def along(kind: OperatorKind, *, dim_argument: int) -> Rule:
    """Operators in which elements along one dim meet; the first tensor has the shape of the loops."""

    def rule(call: Call) -> OperatorCost:
        largest = call.tensors[0]
        dim = call.arguments[dim_argument] if dim_argument < len(call.arguments) else -1
        reduced = f"d{int(dim) % max(len(largest.shape), 1)}" if isinstance(dim, int) else ""
        return OperatorCost(kind=kind, space=pointwise_space(call.tensors, call.outputs, reduced=(reduced,)))

    return rule


def reduction(call: Call) -> OperatorCost:
    """A loop for each dim of the input; those that the output lacks are reduced."""
    source, output = call.tensors[0], call.outputs[0]
    assert output is not None
    labels = axes(source)
    dims = _reduced_dims(call, source, output)
    kept = tuple(label for dim, label in enumerate(labels) if dim not in dims)
    if len(output.shape) == len(labels):
        kept = tuple("" if dim in dims else label for dim, label in enumerate(labels))
    writes = [Operand(view, kept) for view in call.outputs if view is not None and len(view.shape) == len(kept)]
    space = iteration_space([Operand(source, labels)], writes, reduced=[labels[dim] for dim in sorted(dims)])
    return OperatorCost(kind=OperatorKind.REDUCTION, space=space)


def _reduced_dims(call: Call, source: View, output: View) -> frozenset[int]:
    """Of a full reduction all dims; else those that the second argument names."""
    rank = len(source.shape)
    named = call.arguments[1] if len(call.arguments) > 1 else None
    if isinstance(named, int) and not isinstance(named, bool):
        named = [named]
    if isinstance(named, list | tuple) and named and all(isinstance(dim, int) for dim in named):
        return frozenset(dim % rank for dim in named) if rank else frozenset()
    return frozenset(range(rank)) if prod(output.shape) == 1 else frozenset()


def pooling(call: Call) -> OperatorCost:
    """Windows that slide over the trailing dims."""
    small, large = sorted((call.tensors[0], call.output), key=lambda view: prod(view.shape))
    kernel = next((a for a in call.arguments[1:] if isinstance(a, list | tuple) and a and isinstance(a[0], int)), ())
    rank = len(small.shape)
    labels = axes(small)
    taps = {f"d{rank - len(kernel) + i}": f"r{i}" for i in range(len(kernel))}
    windows = tuple(f"{label}+{taps[label]}" if label in taps else label for label in labels)

    def operand(view: View) -> Operand:
        if len(view.shape) != rank:
            return Operand(view, ("",) * len(view.shape))
        return Operand(view, windows if view.shape == large.shape != small.shape else labels)

    space = iteration_space(
        [operand(view) for view in call.tensors],
        [operand(view) for view in call.outputs if view is not None],
        reduced=tuple(taps.values()),
        extra=[Dim(f"r{i}", int(size)) for i, size in enumerate(kernel)],
    )
    return OperatorCost(kind=OperatorKind.POOLING, space=space)


def opaque(kind: OperatorKind) -> Rule:
    """Loops over the output; how inputs are indexed is left open where their shape differs."""

    def rule(call: Call) -> OperatorCost:
        output = call.output
        space = iteration_space(
            [Operand(v, axes(v) if v.shape == output.shape else _partly(v, output)) for v in call.tensors],
            [Operand(v, axes(v) if v.shape == output.shape else ("",) * len(v.shape)) for v in call.outputs if v],
        )
        return OperatorCost(kind=kind, space=space)

    return rule


def _partly(view: View, output: View) -> tuple[str, ...]:
    return leading(view, output) if len(view.shape) == len(output.shape) else ("",) * len(view.shape)
