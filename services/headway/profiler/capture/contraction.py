"""Operators whose arithmetic counts: products, convolutions, attention. Two FLOPs for each multiply-add."""

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from headway.core.graph import OperatorKind
from headway.core.iteration import Access, IterationSpace, Reduction
from headway.profiler.capture.call import Call, OperatorCost, Rule
from headway.profiler.capture.space import Operand, iteration_space
from headway.profiler.capture.view import View


def _product(kind: OperatorKind, left: str, right: str, *, first: int, bias: str | None = None) -> Rule:
    """The cost of a product of two operands labelled by letters, the first at argument `first`; `bias` labels argument
    0."""
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
        space = iteration_space(reads, [Operand(output, tuple(out), {"k": Reduction.SUM})])
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
    summed = dict.fromkeys(("i", *taps), Reduction.SUM)
    writes = [Operand(out_view, ("n", *group, "o", *(both if transposed else windows)), summed)]
    space = iteration_space(reads, writes)
    flops = 2 * prod(weight.shape) * x.shape[0] * prod(sliding.shape[2:])
    return OperatorCost(kind=OperatorKind.CONVOLUTION, flops=flops, space=space)


def _convolution_backward(call: Call) -> OperatorCost:
    """The cost of a convolution's gradients: as many FLOPs as the forward pass for each of input and weight."""
    gradient, x, weight = call.view(0), call.view(1), call.view(2)
    transposed, groups = bool(call.arguments[7]), int(call.arguments[9])
    forward = _convolve(x, weight, gradient, bias=None, transposed=transposed, groups=groups)
    assert forward.space is not None
    (read_x, read_weight, *_), (written,) = forward.space.reads, forward.space.writes
    read_gradient = replace(written, reduced={})
    names = [dim.name for dim in forward.space.dims]
    # Gradients of input, weight and bias: like what, and what the gradient of the output is multiplied by.
    products = ((read_x, read_weight.loops), (read_weight, read_x.loops), (_bias(read_gradient), frozenset[str]()))
    writes = tuple(
        Access(
            tensor=output.base,
            dims=like.dims,
            reduced=dict.fromkeys(sorted((read_gradient.loops | factor) - like.loops), Reduction.SUM),
        )
        for output, (like, factor) in zip(call.outputs, products, strict=False)
        if output is not None and len(like.dims) == len(output.base_shape)
    )
    space = IterationSpace(
        dims=forward.space.dims,
        reads=(read_gradient, read_x, read_weight),
        writes=writes,
        reduced=tuple(name for name in names if any(name in access.reduced for access in writes)),
    )
    num_products = sum(output is not None for output in call.outputs[:2])
    return OperatorCost(kind=OperatorKind.CONVOLUTION, flops=num_products * forward.flops, space=space)


def _bias(gradient: Access) -> Access:
    """Labels a bias as it would be read: along the channels of the output's gradient."""
    return replace(gradient, dims=gradient.dims[1:2])


def _attention(call: Call) -> OperatorCost:
    """The cost of softmax(q k) v over [batch, heads, tokens, width]; keys and values may have fewer heads. Masks are
    left out."""
    query, key, value = (call.view(i) for i in range(3))
    heads = _Heads(query, key)
    reads = [heads.operand(query, "qd"), heads.operand(key, "kd"), heads.operand(value, "ke")]
    met = dict.fromkeys(("k", "d"), Reduction.WHOLE)
    writes = [heads.operand(call.output, "qe", met | {"e": Reduction.WHOLE})]  # to split e would not split the scores
    if len(call.outputs) > 1 and isinstance(call.outputs[1], View) and len(call.outputs[1].shape) == 3:
        writes.append(heads.operand(call.outputs[1], "q", met))  # of the softmax sums
    space = iteration_space(reads, writes)
    return OperatorCost(
        kind=OperatorKind.ATTENTION, flops=_scores(query, key) * (key.shape[3] + value.shape[3]), space=space
    )


def _attention_backward(call: Call) -> OperatorCost:
    """The cost of attention's gradients, five products: the scores again, and the gradients of probabilities, query,
    key and value."""
    gradient, query, key, value, output = (call.view(i) for i in range(5))
    heads = _Heads(query, key)
    labelled = ((gradient, "qe"), (query, "qd"), (key, "kd"), (value, "ke"), (output, "qe"))
    reads = [heads.operand(view, labels) for view, labels in labelled]
    met = {"d": Reduction.WHOLE, "e": Reduction.WHOLE}  # the scores, and a row's product with its gradient
    pairs = zip(call.outputs, ("qd", "kd", "ke"), ("k", "q", "q"), strict=False)
    writes = [
        heads.operand(view, labels, met | {summed: Reduction.SUM}) for view, labels, summed in pairs if view is not None
    ]
    space = iteration_space(reads, writes)
    flops = _scores(query, key) * (3 * key.shape[3] + 2 * value.shape[3])
    return OperatorCost(kind=OperatorKind.ATTENTION, flops=flops, space=space)


def _scores(query: View, key: View) -> int:
    """FLOPs of all attention scores at a width of one."""
    return 2 * prod(query.shape[:3]) * key.shape[2]


class _Heads:
    """Labels attention's operands: query heads that share keys are a loop of their own, `h` in groups `g`."""

    def __init__(self, query: View, key: View) -> None:
        self._num_heads, self._num_kv_heads = query.shape[1], key.shape[1]

    def operand(self, view: View, labels: str, reduced: Mapping[str, Reduction] | None = None) -> Operand:
        reduced = reduced or {}
        if self._num_heads == self._num_kv_heads:
            return Operand(view, ("b", "h", *labels), reduced)
        if view.shape[1] == self._num_kv_heads:  # of a gradient, the heads that share it are summed
            return Operand(view, ("b", "g", *labels), reduced and {**reduced, "h": Reduction.SUM})
        share = self._num_heads // self._num_kv_heads
        split = view.reshape((view.shape[0], self._num_kv_heads, share, *view.shape[2:]))
        return Operand(split, ("b", "g", "h", *labels), reduced)


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
