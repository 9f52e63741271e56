"""Which parts of operands give which parts of an operator's results, along one axis of a mesh. Pure.

A rule is asked with the ways in which a plan wants operands to lie; it answers with ways that belong together, or with
None where no device can compute a part by itself. What a rule says holds whatever the plan thought.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from headway.core.execution.meetings import CLASSES, ELEMENTS, LOSSES, ROWS
from headway.core.program import REFERENCE
from headway.core.sharding_spec import Shard


@dataclass(frozen=True, slots=True)
class SplitCall:
    """A call that devices along an axis are to share.

    Attributes:
        name: of the operator, such as 'addmm'.
        arguments: as the program has them.
        named: keyword arguments.
        shapes: of the operands, in the order in which the arguments name them.
        wanted: how each is to be cut; None where it is whole.
        results: shapes.
        made: how the first result is to be cut, where no operand tells; None where it is whole.
    """

    name: str
    arguments: Sequence[object]
    named: dict[str, object]
    shapes: Sequence[Sequence[int]]
    wanted: Sequence[Shard | None]
    results: Sequence[Sequence[int]]
    made: Shard | None = None

    def operand(self, at: int) -> int | None:
        """The number of the operand that a positional argument is; None where it is none."""
        if at >= len(self.arguments) or not _is_operand(self.arguments[at]):
            return None
        return sum(map(_num_operands, self.arguments[:at]))

    def wish(self, at: int) -> Shard | None:
        number = self.operand(at)
        return None if number is None else self.wanted[number]

    def split(
        self,
        operands: dict[int, Shard],
        results: Sequence["Shard | Summed | None"],
        *,
        once: Sequence[int] = (),
        meets: str = "",
    ) -> "Split":
        """Args:
        operands: cuts by positional argument; all others are whole.
        once: positional arguments that count on one device only.
        meets: see `Split`.
        """
        numbers = {self.operand(at): shard for at, shard in operands.items()}
        lie = tuple(numbers.get(number) for number in range(len(self.shapes)))
        return Split(lie, tuple(results), tuple(n for n in map(self.operand, once) if n is not None), meets)


class Summed:
    """Each device has a term of the result."""


SUMMED = Summed()


@dataclass(frozen=True, slots=True)
class Split:
    """Attributes:
    operands: how each is cut.
    results: how each is cut, or that each device has a term of it; None where all have it.
    once: operands of which only the first device uses what there is, and all others zeros.
    meets: what meets along the axis inside of the operator, of `meetings`; empty where nothing does.
    """

    operands: tuple[Shard | None, ...]
    results: tuple[Shard | Summed | None, ...]
    once: tuple[int, ...] = ()
    meets: str = ""


Rule = Callable[[SplitCall], Split | None]

_POINTWISE = (
    "add", "sub", "rsub", "mul", "div", "neg", "abs", "sign", "exp", "exp2", "expm1", "log", "log1p", "log2", "sqrt",
    "rsqrt", "square", "pow", "reciprocal", "sin", "cos", "tanh", "tanh_backward", "sigmoid", "sigmoid_backward",
    "silu", "silu_backward", "gelu", "gelu_backward", "relu", "threshold_backward", "leaky_relu", "leaky_relu_backward",
    "elu", "hardtanh", "hardtanh_backward", "hardswish", "hardswish_backward", "softplus", "softplus_backward", "where",
    "masked_fill", "eq", "ne", "lt", "gt", "le", "ge", "logical_not", "logical_and", "logical_or", "bitwise_not",
    "bitwise_and", "bitwise_or", "maximum", "minimum", "clamp", "clamp_min", "clamp_max", "floor", "ceil", "erf",
    "clone", "_to_copy", "native_dropout_backward", "addcmul", "addcdiv", "zeros_like", "ones_like", "full_like",
)  # fmt: skip
FOLLOWING = ("clone", "_to_copy")
"""What lies as what it reads, where a plan says nothing of it."""


def split_call(call: SplitCall) -> Split | None:
    rule = _RULES.get(call.name) or (_pointwise if call.name.removesuffix("_") in _POINTWISE else None)
    return rule(call) if rule is not None else None


def _is_operand(argument: object) -> bool:
    return isinstance(argument, dict) and REFERENCE in argument


def _num_operands(argument: object) -> int:
    if isinstance(argument, list):
        return sum(map(_num_operands, argument))
    return int(_is_operand(argument))


def _pointwise(call: SplitCall) -> Split | None:
    if len(call.results) != 1:
        return None
    result = call.results[0]
    pairs = zip(call.shapes, call.wanted, strict=True)
    over = (replace(s, dim=s.dim + len(result) - len(shape)) for shape, s in pairs if s and shape[s.dim] > 1)
    target = next(over, None)
    return None if target is None else Split(tuple(_broadcast(s, result, target) for s in call.shapes), (target,))


def _broadcast(shape: Sequence[int], result: Sequence[int], target: Shard) -> Shard | None:
    """How an operand is cut where a result is: where it has one element for all of them, not at all."""
    dim = target.dim - (len(result) - len(shape))
    return replace(target, dim=dim) if dim >= 0 and shape[dim] > 1 else None


def _product(call: SplitCall, *, first: int, bias: int | None = None) -> Split | None:
    """Matrices [..., m, k] and [..., k, n], of which the leading dim is a batch where there is one.

    Args:
        first: positional argument of the first matrix.
        bias: of what is added to the product.
    """
    second = first + 1
    number = call.operand(first)
    assert number is not None
    rank = len(call.shapes[number])
    rows, columns = rank - 2, rank - 1
    left, right = call.wish(first), call.wish(second)
    batch = next((s for s in (left, right) if s is not None and s.dim < rows), None)
    if batch is not None:
        own = {first: batch, second: batch}
        return call.split({**own, **_bias(call, bias, batch)}, [batch])
    if left is not None and left.dim == rows:
        return call.split({first: left, **_bias(call, bias, left)}, [left])
    inner = left or (right if right is not None and right.dim == rows else None)
    if inner is not None:
        own = {first: Shard(columns, inner.outer), second: Shard(rows, inner.outer)}
        return call.split(own, [SUMMED], once=() if bias is None else (bias,))
    if right is not None:
        return call.split({second: right, **_bias(call, bias, right)}, [right])
    return None


def _bias(call: SplitCall, at: int | None, target: Shard) -> dict[int, Shard]:
    number = None if at is None else call.operand(at)
    if at is None or number is None:
        return {}
    cut = _broadcast(call.shapes[number], call.results[0], target)
    return {} if cut is None else {at: cut}


def _attention(call: SplitCall) -> Split | None:
    """Over examples or heads, which are dims 0 and 1 of all operands and results."""
    if any(each != 0.0 for each in call.arguments[_dropout_at(call) :][:1]):
        return None
    target = next((s for s in call.wanted if s is not None and s.dim < 2), None)
    if (
        target is None
        or len({shape[target.dim] for shape in call.shapes if len(shape) > 2 and shape[target.dim] > 1}) > 1
    ):
        return None
    cut = tuple(target if len(shape) > 2 and shape[target.dim] > 1 else None for shape in call.shapes)
    return Split(cut, tuple(target for _ in call.results))


def _dropout_at(call: SplitCall) -> int:
    return 6 if call.name.endswith("_backward") else 3


def _along(dim_argument: int) -> Rule:
    """Operators in which elements along one dim meet; all operands have the shape of the result."""

    def rule(call: SplitCall) -> Split | None:
        dim = call.arguments[dim_argument]
        assert isinstance(dim, int)
        met = dim % len(call.shapes[0])
        target = next((s for s in call.wanted if s is not None), None)
        meets = CLASSES if target is not None and target.dim == met else ""
        return None if target is None else Split((target,) * len(call.shapes), (target,), meets=meets)

    return rule


def _norm(call: SplitCall) -> Split | None:
    """Of rows, each by itself; weights are whole."""
    target = _row(call, call.wish(0), 1)
    return None if target is None else call.split({0: target}, [target] * len(call.results))


def _norm_backward(statistics: Sequence[int]) -> Rule:
    """Args: statistics: positional arguments that have a number for each row."""

    def rule(call: SplitCall) -> Split | None:
        wishes = (call.wish(at) for at in (0, 1, *statistics))
        target = next((t for wish in wishes if (t := _row(call, wish, 2)) is not None), None)
        if target is None:
            return None
        terms = [SUMMED] * (len(call.results) - 1)
        return call.split(dict.fromkeys((0, 1, *statistics), target), [target, *terms])

    return rule


def _row(call: SplitCall, wish: Shard | None, shape_argument: int) -> Shard | None:
    normalized = call.arguments[shape_argument]
    assert isinstance(normalized, list)
    return wish if wish is not None and wish.dim < len(call.shapes[0]) - len(normalized) else None


def _sum(call: SplitCall) -> Split | None:
    """Along dims that are left, or terms along others."""
    target = call.wish(0)
    if target is None:
        return None
    rank = len(call.shapes[0])
    given = call.arguments[1] if len(call.arguments) > 1 else None
    dims = {dim % rank for dim in given} if isinstance(given, list) and given else set(range(rank))
    if target.dim in dims:
        return call.split({0: target}, [SUMMED])
    keeps = len(call.results[0]) == rank
    gone = 0 if keeps else sum(dim < target.dim for dim in dims)
    return call.split({0: target}, [replace(target, dim=target.dim - gone)])


def _mean(call: SplitCall) -> Split | None:
    found = _sum(call)
    is_met = found is not None and found.results[0] is SUMMED
    return replace(found, results=(None,), meets=ELEMENTS) if found is not None and is_met else found


def _loss(reduction: int, first: int) -> Rule:
    """Losses of single elements.

    Args:
        reduction: positional argument that says how they are reduced: not at all, or by mean or sum.
        first: positional argument from which on operands have an element for each.
    """

    def rule(call: SplitCall) -> Split | None:
        numbers = [n for at in range(first, len(call.arguments)) if (n := call.operand(at)) is not None]
        target = next((call.wanted[n] for n in numbers if call.wanted[n] is not None), None)
        is_plain = len(call.arguments) > reduction and call.arguments[reduction] == 0
        if target is None or is_plain or len({tuple(call.shapes[n]) for n in numbers}) > 1:
            return _pointwise(call) if is_plain else None
        cut = tuple(target if number in numbers else None for number in range(len(call.shapes)))
        return Split(cut, (target if first else None,), meets=ELEMENTS)

    return rule


def _embedding(call: SplitCall) -> Split | None:
    """Over indices, or over the columns of the table, or its rows."""
    table, indices = call.wish(0), call.wish(1)
    if indices is not None:
        return call.split({1: indices}, [indices])
    if table is not None and table.dim == 1:
        return call.split({0: table}, [replace(table, dim=len(call.results[0]) - 1)])
    is_by_rows = table is not None and table.outer == 1
    return call.split({0: table}, [SUMMED], meets=ROWS) if table is not None and is_by_rows else None


def _embedding_backward(call: SplitCall) -> Split | None:
    if any(call.arguments[4:]):  # gradients of rows are divided by how often they are read
        return None
    gradient, indices = call.wish(0), call.wish(1)
    last = len(call.shapes[0]) - 1
    if gradient is None and indices is None:
        is_by_rows = call.made is not None and call.made == Shard(0)
        return call.split({}, [call.made], meets=ROWS) if is_by_rows else None
    rows = indices or (gradient if gradient is not None and gradient.dim < last else None)
    if rows is not None:
        return call.split({0: rows, 1: rows}, [SUMMED])
    return None if gradient is None else call.split({0: gradient}, [replace(gradient, dim=1)])


def _cat(call: SplitCall) -> Split | None:
    """Along other dims, or where all parts are of one size, each of them along the dim that they make."""
    given = call.arguments[1] if len(call.arguments) > 1 else 0
    assert isinstance(given, int)
    dim = given % len(call.results[0])
    target = next((s for s in call.wanted if s is not None), None)
    if target is None or any(len(shape) != len(call.results[0]) for shape in call.shapes):
        return None
    if target.dim == dim:
        if len({shape[dim] for shape in call.shapes}) > 1:
            return None
        return Split((target,) * len(call.shapes), (Shard(dim, target.outer * len(call.shapes)),))
    return Split((target,) * len(call.shapes), (target,))


def _likelihood(call: SplitCall) -> Split | None:
    """Over rows, or over classes; each device gets the loss of all, and its weight."""
    scores = call.wish(0) or call.wish(1)
    if scores is None or len(call.shapes[0]) != 2 or call.operand(2) is not None or call.arguments[3] not in (1, 2):
        return None
    if scores.dim == 0:
        return call.split({0: scores, 1: scores}, [None, None], meets=ROWS)
    return call.split({0: scores}, [None, None], meets=CLASSES) if scores.outer == 1 else None


def _likelihood_backward(call: SplitCall) -> Split | None:
    """Over rows, or over classes; what all of them are divided by is an operand."""
    target = call.wish(1) or call.wish(2)
    if target is None or len(call.shapes[1]) != 2 or call.operand(3) is not None or call.arguments[4] not in (1, 2):
        return None
    if target.dim == 0:
        return call.split({1: target, 2: target}, [target])
    return call.split({1: target}, [target], meets=CLASSES) if target.outer == 1 else None


def _padded(call: SplitCall) -> Split | None:
    """A gradient of a slice: along other dims; its sizes are replaced by those that a device has."""
    dim, target = call.arguments[2], call.wish(0)
    assert isinstance(dim, int)
    if target is None or dim % len(call.results[0]) == target.dim or call.name != "slice_backward":
        return None
    return call.split({0: target}, [target])


_RULES: dict[str, Rule] = {
    "mm": lambda call: _product(call, first=0),
    "bmm": lambda call: _product(call, first=0),
    "addmm": lambda call: _product(call, first=1, bias=0),
    "baddbmm": lambda call: _product(call, first=1, bias=0),
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention,
    "_softmax": _along(1),
    "_log_softmax": _along(1),
    "_softmax_backward_data": _along(2),
    "_log_softmax_backward_data": _along(2),
    "native_layer_norm": _norm,
    "native_layer_norm_backward": _norm_backward((3, 4)),
    "_fused_rms_norm": _norm,
    "_fused_rms_norm_backward": _norm_backward((3,)),
    "sum": _sum,
    "mean": _mean,
    "embedding": _embedding,
    "embedding_dense_backward": _embedding_backward,
    "cat": _cat,
    "nll_loss_forward": _likelihood,
    "nll_loss_backward": _likelihood_backward,
    "slice_backward": _padded,
    **{name: _loss(at, int(name.endswith("_backward"))) for name, at in LOSSES.items()},
}
SIZED = {"slice_backward": 1}
"""Positional arguments that are the shape of the result."""
