"""Operators whose arithmetic counts: products, convolutions, attention. Two FLOPs for each multiply-add."""

from math import prod

from headway.core.graph import OperatorKind
from headway.core.iteration import Access, IterationSpace
from headway.profiler.capture.call import Call, OperatorCost, Rule
from headway.profiler.capture.space import Operand, iteration_space
from headway.profiler.capture.view import View


def _product(kind: OperatorKind, left: str, right: str, *, first: int, bias: str | None = None) -> Rule:
    """A product of two operands labelled by letters, the first at argument `first`; `bias` labels the argument 0."""
    free = [label for label in dict.fromkeys(left + right) if not (label in left and label in right)]
    out = [label for label in dict.fromkeys(left + right) if label in free or (label in left[:1] and left[:1] == "b")]

    def rule(call: Call) -> OperatorCost:
        a, b, output = call.view(first), call.view(first + 1), call.output
        reads = [Operand(a, tuple(left)), Operand(b, tuple(right))]
        if bias is not None:
            added = call.view(0)
            labels = tuple(bias[len(bias) - len(added.shape) :])
            labels = tuple(label if size != 1 else "" for label, size in zip(labels, added.shape, strict=True))
            reads.insert(0, Operand(added, labels))
        space = iteration_space(reads, [Operand(output, tuple(out))], reduced=("k",))
        return OperatorCost(kind=kind, flops=2 * prod(output.shape) * a.shape[left.index("k")], space=space)

    return rule


def _convolution(call: Call) -> OperatorCost:
    transposed, groups = bool(call.arguments[6]), int(call.arguments[8])
    x, weight, bias = call.view(0), call.view(1), call.arguments[2]
    return _convolve(x, weight, call.output, bias=bias, transposed=transposed, groups=groups)


def _convolve(x: View, weight: View, output: View, *, bias: object, transposed: bool, groups: int) -> OperatorCost:
    rank = len(weight.shape) - 2
    sliding = x if transposed else output
    windows, taps = [f"y{i}" for i in range(rank)], [f"r{i}" for i in range(rank)]
    both = [f"{window}+{tap}" for window, tap in zip(windows, taps, strict=True)]
    group, shape = (("g",), (groups,)) if groups > 1 else ((), ())
    channels, filters = x.shape[1] // groups, output.shape[1] // groups
    inner, outer = ("i", "o") if not transposed else ("o", "i")  # of the weight's dims 1 and 0
    weight_rows = weight.shape[0] // groups
    x_view = x.reshape((x.shape[0], *shape, channels, *x.shape[2:]))
    out_view = output.reshape((output.shape[0], *shape, filters, *output.shape[2:]))
    weight_view = weight.reshape((*shape, weight_rows, *weight.shape[1:]))
    reads = [
        Operand(x_view, ("n", *group, "i", *(windows if transposed else both))),
        Operand(weight_view, (*group, outer, inner, *taps)),
    ]
    if isinstance(bias, View):
        reads.append(Operand(bias.reshape((*shape, filters)), (*group, "o")))
    writes = [Operand(out_view, ("n", *group, "o", *(both if transposed else windows)))]
    space = iteration_space(reads, writes, reduced=("i", *taps))
    flops = 2 * prod(weight.shape) * x.shape[0] * prod(sliding.shape[2:])
    return OperatorCost(kind=OperatorKind.CONVOLUTION, flops=flops, space=space)


def _convolution_backward(call: Call) -> OperatorCost:
    """As many FLOPs as the forward pass for each of the gradients of input and weight."""
    gradient, x, weight = call.view(0), call.view(1), call.view(2)
    transposed, groups = bool(call.arguments[7]), int(call.arguments[9])
    forward = _convolve(x, weight, gradient, bias=None, transposed=transposed, groups=groups)
    assert forward.space is not None
    (read_x, read_weight, *_), (written,) = forward.space.reads, forward.space.writes
    writes = tuple(
        Access(tensor=output.base, dims=source.dims)
        for output, source in zip(call.outputs, (read_x, read_weight), strict=False)
        if output is not None and len(source.dims) == len(output.base_shape)
    )
    kept = [_loops(access.dims) for access in writes]
    space = IterationSpace(
        dims=forward.space.dims,
        reads=(written, read_x, read_weight),
        writes=writes,
        reduced=tuple(dim.name for dim in forward.space.dims if not all(dim.name in loops for loops in kept)),
    )
    return OperatorCost(kind=OperatorKind.CONVOLUTION, flops=len(writes) * forward.flops, space=space)


def _loops(dims: tuple[str, ...]) -> frozenset[str]:
    return frozenset(loop for dim in dims for part in dim.split("*") for loop in part.split("+"))


def _attention(call: Call) -> OperatorCost:
    """Softmax(q k) v over [batch, heads, tokens, width]; keys and values may have fewer heads. Masks are left out."""
    query, key, value = (call.view(i) for i in range(3))
    heads = _Heads(query, key)
    reads = [heads.operand(query, "qd"), heads.operand(key, "kd"), heads.operand(value, "ke")]
    space = iteration_space(reads, [heads.operand(call.output, "qe")], reduced=("k", "d"))
    return OperatorCost(
        kind=OperatorKind.ATTENTION, flops=_scores(query, key) * (key.shape[3] + value.shape[3]), space=space
    )


def _attention_backward(call: Call) -> OperatorCost:
    """Five products: the scores again, and the gradients of probabilities, query, key and value."""
    gradient, query, key, value, output = (call.view(i) for i in range(5))
    heads = _Heads(query, key)
    labelled = ((gradient, "qe"), (query, "qd"), (key, "kd"), (value, "ke"), (output, "qe"))
    reads = [heads.operand(view, labels) for view, labels in labelled]
    pairs = zip(call.outputs, ("qd", "kd", "ke"), strict=False)
    writes = [heads.operand(view, labels) for view, labels in pairs if view is not None]
    space = iteration_space(reads, writes, reduced=("q", "k", "d", "e"))
    flops = _scores(query, key) * (3 * key.shape[3] + 2 * value.shape[3])
    return OperatorCost(kind=OperatorKind.ATTENTION, flops=flops, space=space)


def _scores(query: View, key: View) -> int:
    """FLOPs of all scores by a width of one."""
    return 2 * prod(query.shape[:3]) * key.shape[2]


class _Heads:
    """Labels of operands: heads of the query that share keys are a loop of their own, `h` in groups `g`."""

    def __init__(self, query: View, key: View) -> None:
        self._num_heads, self._num_kv_heads = query.shape[1], key.shape[1]

    def operand(self, view: View, labels: str) -> Operand:
        if self._num_heads == self._num_kv_heads:
            return Operand(view, ("b", "h", *labels))
        if view.shape[1] == self._num_kv_heads:
            return Operand(view, ("b", "g", *labels))
        share = self._num_heads // self._num_kv_heads
        split = view.reshape((view.shape[0], self._num_kv_heads, share, *view.shape[2:]))
        return Operand(split, ("b", "g", "h", *labels))


_BATCHED, _MATMUL = OperatorKind.BATCHED_MATMUL, OperatorKind.MATMUL

CONTRACTIONS: dict[str, Rule] = {
    "mm": _product(_MATMUL, "mk", "kn", first=0),
    "addmm": _product(_MATMUL, "mk", "kn", first=1, bias="mn"),
    "mv": _product(_MATMUL, "mk", "k", first=0),
    "addmv": _product(_MATMUL, "mk", "k", first=1, bias="m"),
    "dot": _product(_MATMUL, "k", "k", first=0),
    "bmm": _product(_BATCHED, "bmk", "bkn", first=0),
    "baddbmm": _product(_BATCHED, "bmk", "bkn", first=1, bias="bmn"),
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    **dict.fromkeys(
        (
            "_scaled_dot_product_flash_attention_for_cpu",
            "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_efficient_attention",
            "_scaled_dot_product_cudnn_attention",
        ),
        _attention,
    ),
    **dict.fromkeys(
        (
            "_scaled_dot_product_flash_attention_for_cpu_backward",
            "_scaled_dot_product_flash_attention_backward",
            "_scaled_dot_product_efficient_attention_backward",
            "_scaled_dot_product_cudnn_attention_backward",
        ),
        _attention_backward,
    ),
}
