"""Operators that loop over the elements of a tensor: maps, reductions, windows, copies."""

from dataclasses import replace
from math import prod

from headway.core.graph import OperatorKind
from headway.core.iteration import Dim, Reduction
from headway.profiler.capture.call import Call, OperatorCost, Rule, axes, leading, pointwise_space
from headway.profiler.capture.space import Operand, iteration_space
from headway.profiler.capture.view import View

# By the operator's name; all others see all elements at once.
_REDUCTIONS = {
    "sum": Reduction.SUM,
    "mean": Reduction.MEAN,
    "amax": Reduction.MAX,
    "max": Reduction.MAX,
    "any": Reduction.MAX,
    "amin": Reduction.MIN,
    "min": Reduction.MIN,
    "all": Reduction.MIN,
    "prod": Reduction.PRODUCT,
    "count_nonzero": Reduction.SUM,
    "var": Reduction.MOMENTS,
    "var_mean": Reduction.MOMENTS,
    "std": Reduction.MOMENTS,
    "norm": Reduction.MOMENTS,
    "linalg_vector_norm": Reduction.MOMENTS,
    "mse_loss": Reduction.MEAN,
}


def pointwise(kind: OperatorKind) -> Rule:
    def rule(call: Call) -> OperatorCost:
        return OperatorCost(kind=kind, space=pointwise_space(call.tensors, call.outputs))

    return rule


def along(kind: OperatorKind, *, dim_argument: int) -> Rule:
    """The rule of operators in which elements along one dim meet; the first tensor has the shape of the loops."""

    def rule(call: Call) -> OperatorCost:
        largest = call.tensors[0]
        dim = call.arguments[dim_argument] if dim_argument < len(call.arguments) else -1
        how = Reduction.MOMENTS if kind is OperatorKind.SOFTMAX else Reduction.WHOLE
        met = {f"d{int(dim) % max(len(largest.shape), 1)}": how} if isinstance(dim, int) else {}
        return OperatorCost(kind=kind, space=pointwise_space(call.tensors, call.outputs, reduced=met))

    return rule


def reduction(call: Call) -> OperatorCost:
    """The rule of reductions: a loop for each dim of the input; those that the output lacks are reduced."""
    source, output = call.tensors[0], call.outputs[0]
    assert output is not None
    labels = axes(source)
    dims = _reduced_dims(call, source, output)
    kept = tuple(label for dim, label in enumerate(labels) if dim not in dims)
    if len(output.shape) == len(labels):
        kept = tuple("" if dim in dims else label for dim, label in enumerate(labels))
    how = _REDUCTIONS.get(call.name, Reduction.WHOLE)
    reduced = [labels[dim] for dim in sorted(dims)]
    writes = [
        Operand(view, kept, dict.fromkeys(reduced, how if i == 0 or how is Reduction.MOMENTS else Reduction.WHOLE))
        for i, view in enumerate(call.outputs)  # behind a largest value comes its index, which can't be joined
        if view is not None and len(view.shape) == len(kept)
    ]
    space = iteration_space([Operand(source, labels)], writes)
    return OperatorCost(kind=OperatorKind.REDUCTION, space=space)


def _reduced_dims(call: Call, source: View, output: View) -> frozenset[int]:
    """The dims that a reduction sums over: those that its second argument names, else all."""
    rank = len(source.shape)
    named = call.arguments[1] if len(call.arguments) > 1 else None
    if isinstance(named, int) and not isinstance(named, bool):
        named = [named]
    if isinstance(named, list | tuple) and named and all(isinstance(dim, int) for dim in named):
        return frozenset(dim % rank for dim in named) if rank else frozenset()
    return frozenset(range(rank)) if prod(output.shape) == 1 else frozenset()


def pooling(call: Call) -> OperatorCost:
    """The rule of pooling: windows that slide over the trailing dims."""
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

    met = dict.fromkeys(taps.values(), Reduction.WHOLE)
    space = iteration_space(
        [operand(view) for view in call.tensors],
        [replace(operand(view), reduced=met) for view in call.outputs if view is not None],
        extra=[Dim(f"r{i}", int(size)) for i, size in enumerate(kernel)],
    )
    return OperatorCost(kind=OperatorKind.POOLING, space=space)


def opaque(kind: OperatorKind) -> Rule:
    """The rule of operators with loops over the output; inputs of another shape are indexed in an unknown way."""

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
