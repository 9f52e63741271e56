"""Losses over classes: each row of [rows, classes, ...] contributes the score of one class."""

from headway.core.graph import OperatorKind
from headway.core.iteration import Reduction
from headway.profiler.capture.call import Call, OperatorCost, axes
from headway.profiler.capture.space import Labels, Operand, iteration_space
from headway.profiler.capture.view import View

_MEAN = 1  # of torch's numbers for how a loss is reduced: none, mean, sum


def nll_loss(call: Call) -> OperatorCost:
    """The cost of the loss and of the weight of all rows. A rank that has a part of the classes gives zeros for the
    others'."""
    scores, targets, reduction = call.view(0), call.view(1), call.arguments[3]
    rows = _rows(scores)
    how = Reduction.MEAN if reduction == _MEAN else Reduction.SUM
    loss, weight = (*call.outputs, None)[:2]
    classes = {"d1": Reduction.SUM}
    is_summed = loss is not None and loss.shape != targets.shape
    writes = []
    if loss is not None:
        met = classes | dict.fromkeys(rows, how) if is_summed else classes
        writes.append(Operand(loss, () if is_summed else rows, met))
    if weight is not None:
        writes.append(Operand(weight, (), dict.fromkeys(rows, Reduction.SUM)))
    reads = [Operand(scores, axes(scores)), Operand(targets, rows)]
    return OperatorCost(kind=OperatorKind.REDUCTION, space=iteration_space(reads, writes))


def nll_loss_backward(call: Call) -> OperatorCost:
    """The cost of the scores' gradient, from that of the loss."""
    gradient, scores, targets = (call.view(i) for i in range(3))
    rows = _rows(scores)
    reads = [
        Operand(gradient, rows if gradient.shape == targets.shape else ("",) * len(gradient.shape)),
        Operand(scores, axes(scores)),
        Operand(targets, rows),
    ]
    space = iteration_space(reads, [Operand(call.output, axes(scores))])
    return OperatorCost(kind=OperatorKind.ELEMENTWISE, space=space)


def _rows(scores: View) -> Labels:
    """Labels the loops that the targets have: all but that over classes."""
    labels = axes(scores)
    return (*labels[:1], *labels[2:])
