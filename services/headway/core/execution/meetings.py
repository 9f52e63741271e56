"""Operators in which elements meet along a dim that devices have parts of: what each device runs, and what they join in
between. Pure.

Softmax needs the greatest element of a row and the sum of the others' exponents; a loss over classes, and a table that
is read by its rows, need what one device has (Megatron-LM, Shoeybi et al. 2019, section 3); a mean needs a sum.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

from headway.core.execution.strides import row_major
from headway.core.execution.tiles import MoveKind
from headway.core.program import REFERENCE, Value

PLACES = "headway.places"
"""Target of programs: indices of a whole dim as those of the part that a device has."""
CLASSES, ROWS, ELEMENTS = "classes", "rows", "elements"
"""What meets along an axis; `ROWS` are those of a loss, or of a table."""
_MEAN, _SUM = 1, 2
LOSSES = {
    "mse_loss": 2,
    "smooth_l1_loss": 2,
    "huber_loss": 2,
    "binary_cross_entropy": 3,
    "mse_loss_backward": 3,
    "smooth_l1_loss_backward": 3,
    "huber_loss_backward": 3,
    "binary_cross_entropy_backward": 4,
}
"""Losses of single elements, by name: the positional argument that says how they are reduced."""


class Writer(Protocol):
    """Writes the program of a device; values are told by their numbers."""

    def value(self, at: int) -> Value: ...

    def call(self, target: str, arguments: Sequence[object], result: Value, **named: object) -> int: ...

    def join(self, at: int, kind: MoveKind, axis: int) -> int:
        """The same on all devices along an axis: a sum, or the greatest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """A call whose elements meet.

    Attributes:
        name: of the operator, such as '_log_softmax'.
        arguments: with the numbers of the device's own operands.
        axes: what meets along them.
        whole: shapes of the operands over all devices, in the order in which the arguments name them.
        results: as the device has them.
    """

    name: str
    target: str
    arguments: Sequence[object]
    named: Mapping[str, object]
    axes: Mapping[int, str]
    whole: Sequence[Sequence[int]]
    results: Sequence[Value]

    def operand(self, at: int) -> int:
        argument = self.arguments[at]
        assert isinstance(argument, dict), "a rule saw that it is one"
        number: int = argument[REFERENCE]
        return number

    def number(self, at: int, default: int) -> int:
        """An argument that is a number."""
        found = self.arguments[at] if at < len(self.arguments) else default
        assert isinstance(found, int)
        return found

    def along(self, *what: str) -> list[int]:
        return [axis for axis, each in sorted(self.axes.items()) if each in what]


def written(meeting: Meeting, to: Writer) -> list[int]:
    """Writes a call; the numbers of its results."""
    own = _MEETINGS.get(meeting.name) or (_loss_backward if meeting.name.endswith("_backward") else _loss)
    return own(meeting, to)


def _softmax(meeting: Meeting, to: Writer) -> list[int]:
    at = meeting.operand(0)
    x = to.value(at)
    dim = meeting.number(1, 0) % len(x.shape)
    top = _joined(to, to.call("aten.amax.default", [_ref(at), [dim], True], _row(x, dim)), MoveKind.MAX, meeting)
    moved = to.call("aten.sub.Tensor", [_ref(at), _ref(top)], _like(x))
    exponents = to.call("aten.exp.default", [_ref(moved)], _like(x))
    total = _total(to, exponents, dim, meeting)
    if meeting.name == "_softmax":
        return [to.call("aten.div.Tensor", [_ref(exponents), _ref(total)], _like(x))]
    logarithm = to.call("aten.log.default", [_ref(total)], _row(x, dim))
    return [to.call("aten.sub.Tensor", [_ref(moved), _ref(logarithm)], _like(x))]


def _softmax_backward(meeting: Meeting, to: Writer) -> list[int]:
    gradient, output = meeting.operand(0), meeting.operand(1)
    x = to.value(gradient)
    dim = meeting.number(2, 0) % len(x.shape)
    if meeting.name == "_softmax_backward_data":
        weighted = to.call("aten.mul.Tensor", [_ref(gradient), _ref(output)], _like(x))
        away = to.call("aten.mul.Tensor", [_ref(output), _ref(_total(to, weighted, dim, meeting))], _like(x))
        return [to.call("aten.sub.Tensor", [_ref(weighted), _ref(away)], _like(x))]
    shares = to.call("aten.exp.default", [_ref(output)], _like(x))
    away = to.call("aten.mul.Tensor", [_ref(shares), _ref(_total(to, gradient, dim, meeting))], _like(x))
    return [to.call("aten.sub.Tensor", [_ref(gradient), _ref(away)], _like(x))]


def _likelihood(meeting: Meeting, to: Writer) -> list[int]:
    """The loss, and how many targets count."""
    scores, targets = meeting.operand(0), meeting.operand(1)
    rows, one = to.value(targets), _shaped(to.value(scores), ())
    counts = to.call("aten.ne.Scalar", [_ref(targets), meeting.number(4, -100)], _flags(rows))
    found, is_own = _own_classes(meeting, to, targets, counts, to.value(scores).shape[1])
    column = _shaped(rows, (*rows.shape, 1))
    index = to.call("aten.unsqueeze.default", [_ref(found), 1], column)
    picked = to.call("aten.gather.default", [_ref(scores), 1, _ref(index)], _shaped(one, column.shape))
    flat = to.call("aten.squeeze.dim", [_ref(picked), 1], _shaped(one, rows.shape))
    kept = _masked(to, flat, is_own)
    loss = to.call("aten.neg.default", [_ref(to.call("aten.sum.default", [_ref(kept)], one))], one)
    weight = to.call("aten.sum.default", [_ref(counts)], one, dtype={"dtype": one.dtype})
    for axis in meeting.along(CLASSES, ROWS):
        loss = to.join(loss, MoveKind.SUM, axis)
    for axis in meeting.along(ROWS):
        weight = to.join(weight, MoveKind.SUM, axis)
    if meeting.number(3, _MEAN) == _MEAN:
        loss = to.call("aten.div.Tensor", [_ref(loss), _ref(weight)], one)
    return [loss, weight]


def _likelihood_backward(meeting: Meeting, to: Writer) -> list[int]:
    """Of classes that a device has; rows are their own."""
    gradient, scores, targets, weight = (meeting.operand(at) for at in (0, 1, 2, 6))
    rows, x = to.value(targets), to.value(scores)
    counts = to.call("aten.ne.Scalar", [_ref(targets), meeting.number(5, -100)], _flags(rows))
    found, is_own = _own_classes(meeting, to, targets, counts, x.shape[1])
    one, flat, column = (_shaped(x, shape) for shape in ((), rows.shape, (*rows.shape, 1)))
    share = to.call("aten.neg.default", [_ref(gradient)], one)
    if meeting.number(4, _MEAN) == _MEAN:
        share = to.call("aten.div.Tensor", [_ref(share), _ref(weight)], one)
    own = to.call("aten._to_copy.default", [_ref(is_own)], flat, dtype={"dtype": x.dtype})
    shares = to.call("aten.mul.Tensor", [_ref(own), _ref(share)], flat)
    source = to.call("aten.unsqueeze.default", [_ref(shares), 1], column)
    index = to.call("aten.unsqueeze.default", [_ref(found), 1], _shaped(rows, column.shape))
    zeros = to.call("aten.zeros_like.default", [_ref(scores)], _like(x))
    return [to.call("aten.scatter.src", [_ref(zeros), 1, _ref(index), _ref(source)], _like(x))]


def _own_classes(meeting: Meeting, to: Writer, targets: int, counts: int, size: int) -> tuple[int, int]:
    """Of each target its place among the classes that a device has, some place where it is of another, and whether it
    has it and it counts."""
    found, is_own = _own_places(meeting.along(CLASSES), to, targets, size)
    both = to.call("aten.logical_and.default", [_ref(is_own), _ref(counts)], to.value(is_own))
    return found, both


def _embedding(meeting: Meeting, to: Writer) -> list[int]:
    """A term: rows of the table that a device has, and zeros for others."""
    table, indices = meeting.operand(0), meeting.operand(1)
    size, width = to.value(table).shape
    found, is_own = _own_places(meeting.along(ROWS), to, indices, size)
    made = _shaped(to.value(table), (*to.value(indices).shape, width))
    rows = to.call("aten.embedding.default", [_ref(table), _ref(found)], made)
    return [_masked(to, rows, _beside(to, is_own))]


def _embedding_backward(meeting: Meeting, to: Writer) -> list[int]:
    """Of the rows that a device has."""
    gradient, indices = meeting.operand(0), meeting.operand(1)
    (result,) = meeting.results
    found, is_own = _own_places(meeting.along(ROWS), to, indices, result.shape[0])
    if (padding := meeting.number(3, -1)) >= 0:
        counts = to.call("aten.ne.Scalar", [_ref(indices), padding], to.value(is_own))
        is_own = to.call("aten.logical_and.default", [_ref(is_own), _ref(counts)], to.value(is_own))
    own = _masked(to, gradient, _beside(to, is_own))
    arguments = [_ref(own), _ref(found), result.shape[0], -1, False]
    return [to.call("aten.embedding_dense_backward.default", arguments, result)]


def _mean(meeting: Meeting, to: Writer) -> list[int]:
    (result,) = meeting.results
    rank = len(meeting.whole[0])
    given = meeting.arguments[1] if len(meeting.arguments) > 1 else None
    dims = list(given) if isinstance(given, list) and given else list(range(rank))
    keeps = bool(meeting.arguments[2]) if len(meeting.arguments) > 2 else False
    arguments = [_ref(meeting.operand(0)), dims, keeps]
    total = to.call("aten.sum.dim_IntList", arguments, result, **meeting.named)
    count = prod(meeting.whole[0][dim] for dim in dims)
    return [_shared(to, _joined(to, total, MoveKind.SUM, meeting), count)]


def _loss(meeting: Meeting, to: Writer) -> list[int]:
    """Of the elements that a device has, and joined."""
    total = _joined(to, _summed(meeting, to), MoveKind.SUM, meeting)
    return [_shared(to, total, prod(meeting.whole[0])) if _is_mean(meeting) else total]


def _loss_backward(meeting: Meeting, to: Writer) -> list[int]:
    made = _summed(meeting, to)
    return [_shared(to, made, prod(meeting.whole[1])) if _is_mean(meeting) else made]


def _summed(meeting: Meeting, to: Writer) -> int:
    """The same call as a sum over elements."""
    at = LOSSES[meeting.name]
    absent = [None] * (at - len(meeting.arguments))
    arguments = [*meeting.arguments[:at], *absent, _SUM, *meeting.arguments[at + 1 :]]
    return to.call(meeting.target, arguments, meeting.results[0], **meeting.named)


def _is_mean(meeting: Meeting) -> bool:
    return meeting.number(LOSSES[meeting.name], _MEAN) == _MEAN


def _own_places(axes: Sequence[int], to: Writer, indices: int, size: int) -> tuple[int, int]:
    """Of each index its place in the part of `size` that a device has, or some place where it has it not; and whether
    it has."""
    like = to.value(indices)
    places = to.call(PLACES, [_ref(indices), list(axes), size], _like(like))
    is_above = to.call("aten.ge.Scalar", [_ref(places), 0], _flags(like))
    is_below = to.call("aten.lt.Scalar", [_ref(places), size], _flags(like))
    is_own = to.call("aten.logical_and.default", [_ref(is_above), _ref(is_below)], _flags(like))
    return to.call("aten.clamp.default", [_ref(places), 0, size - 1], _like(like)), is_own


def _beside(to: Writer, flags: int) -> int:
    """Flags for all elements of a last dim more."""
    value = to.value(flags)
    return to.call("aten.unsqueeze.default", [_ref(flags), -1], _shaped(value, (*value.shape, 1)))


def _masked(to: Writer, at: int, keeps: int) -> int:
    """Zeros where a flag is not set."""
    others = to.call("aten.logical_not.default", [_ref(keeps)], to.value(keeps))
    return to.call("aten.masked_fill.Scalar", [_ref(at), _ref(others), 0], _like(to.value(at)))


def _total(to: Writer, at: int, dim: int, meeting: Meeting) -> int:
    arguments = [_ref(at), [dim], True]
    own = to.call("aten.sum.dim_IntList", arguments, _row(to.value(at), dim))
    return _joined(to, own, MoveKind.SUM, meeting)


def _joined(to: Writer, at: int, kind: MoveKind, meeting: Meeting) -> int:
    for axis in sorted(meeting.axes):
        at = to.join(at, kind, axis)
    return at


def _shared(to: Writer, at: int, count: int) -> int:
    return to.call("aten.div.Scalar", [_ref(at), count], _like(to.value(at)))


def _ref(at: int) -> dict[str, int]:
    return {REFERENCE: at}


def _like(value: Value) -> Value:
    return _shaped(value, value.shape)


def _row(value: Value, dim: int) -> Value:
    """One element in the place of a dim."""
    return _shaped(value, (*value.shape[:dim], 1, *value.shape[dim + 1 :]))


def _flags(value: Value) -> Value:
    return Value(shape=value.shape, stride=row_major(value.shape), dtype="bool")


def _shaped(value: Value, shape: Sequence[int]) -> Value:
    return Value(shape=tuple(shape), stride=row_major(shape), dtype=value.dtype)


_MEETINGS: dict[str, Callable[[Meeting, Writer], list[int]]] = {
    "_softmax": _softmax,
    "_log_softmax": _softmax,
    "_softmax_backward_data": _softmax_backward,
    "_log_softmax_backward_data": _softmax_backward,
    "nll_loss_forward": _likelihood,
    "nll_loss_backward": _likelihood_backward,
    "embedding": _embedding,
    "embedding_dense_backward": _embedding_backward,
    "mean": _mean,
}
