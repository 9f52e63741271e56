"""Normalisations: elements of a row, a channel or a group meet in its statistics."""

from headway.core.graph import OperatorKind
from headway.profiler.capture.call import Call, OperatorCost, aligned, axes, leading
from headway.profiler.capture.space import Operand, iteration_space
from headway.profiler.capture.view import View


def layer_norm(call: Call) -> OperatorCost:
    """Normalises over the last dims, as many as the shape among the arguments has."""
    x = call.tensors[0]
    shape = next(
        argument
        for argument in call.arguments
        if isinstance(argument, list | tuple) and argument and all(type(size) is int for size in argument)
    )
    reduced = axes(x)[len(x.shape) - len(shape) :]

    def labels(view: View) -> tuple[str, ...]:
        return aligned(view, x) if len(view.shape) < len(x.shape) or view.shape == x.shape else leading(view, x)

    writes = [Operand(view, labels(view)) for view in call.outputs if view is not None]
    summed = [label for label in axes(x) if label in reduced or not all(label in write.labels for write in writes)]
    space = iteration_space([Operand(view, labels(view)) for view in call.tensors], writes, reduced=summed)
    return OperatorCost(kind=OperatorKind.NORMALIZATION, space=space)


def channel_norm(call: Call) -> OperatorCost:
    """Batch and group norms of [batch, channels, ...]: all statistics and weights are per channel or group."""
    x = call.tensors[0]

    def labels(view: View) -> tuple[str, ...]:
        if view.shape == x.shape:
            return axes(x)
        return ("d1",) if view.shape == x.shape[1:2] else ("",) * len(view.shape)

    space = iteration_space(
        [Operand(view, labels(view)) for view in call.tensors],
        [Operand(view, labels(view)) for view in call.outputs if view is not None],
        reduced=[label for label in axes(x) if label != "d1"],
    )
    return OperatorCost(kind=OperatorKind.NORMALIZATION, space=space)
