"""Normalisations: elements of a row, a channel or a group meet in its statistics."""

from headway.core.graph import OperatorKind
from headway.core.iteration import Reduction
from headway.profiler.capture.call import Call, OperatorCost, aligned, axes, leading
from headway.profiler.capture.space import Operand, iteration_space
from headway.profiler.capture.view import View


def layer_norm(call: Call) -> OperatorCost:
    """The cost of normalising over the last dims, as many as the shape among the arguments has."""
    x = call.tensors[0]
    shape = next(
        argument
        for argument in call.arguments
        if isinstance(argument, list | tuple) and argument and all(type(size) is int for size in argument)
    )
    rows, columns = axes(x)[: len(x.shape) - len(shape)], axes(x)[len(x.shape) - len(shape) :]

    def labels(view: View) -> tuple[str, ...]:
        return aligned(view, x) if len(view.shape) < len(x.shape) or view.shape == x.shape else leading(view, x)

    def written(view: View) -> Operand:
        """Labels an output; one without rows is a gradient of weights, summed over the rows."""
        has_rows = len(view.shape) >= len(x.shape) or not rows
        met = dict.fromkeys(columns, Reduction.MOMENTS) if has_rows else dict.fromkeys(rows, Reduction.SUM)
        return Operand(view, labels(view), met)

    space = iteration_space(
        [Operand(view, labels(view)) for view in call.tensors],
        [written(view) for view in call.outputs if view is not None],
    )
    return OperatorCost(kind=OperatorKind.NORMALIZATION, space=space)


def channel_norm(call: Call) -> OperatorCost:
    """The cost of batch and group norms of [batch, channels, ...]: statistics and weights are per channel or group."""
    x = call.tensors[0]

    def labels(view: View) -> tuple[str, ...]:
        if view.shape == x.shape:
            return axes(x)
        return ("d1",) if view.shape == x.shape[1:2] else ("",) * len(view.shape)

    is_group_norm = "group" in call.name
    met = dict.fromkeys((label for label in axes(x) if label != "d1"), Reduction.MOMENTS)
    if is_group_norm:  # channels of a group meet, examples do not
        met = met | {"d1": Reduction.WHOLE}
        del met["d0"]
    space = iteration_space(
        [Operand(view, labels(view)) for view in call.tensors],
        [Operand(view, labels(view), met) for view in call.outputs if view is not None],
    )
    return OperatorCost(kind=OperatorKind.NORMALIZATION, space=space)
