"""Maps an operator of a graph to a timed family, and to its extents in that family's terms."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from headway.core.graph import Operator, OperatorKind, TensorSpec, dtype_bytes
from headway.core.token_slices import context_of

_CLASSES: dict[str, str] = {}
for _family, _names in {
    "exp": "exp exp_ log log2 log1p pow erf logaddexp softplus",
    "sin": "sin cos",
    "tanh": "tanh tanh_",
    "gelu": "gelu",
    "silu": "silu silu_ sigmoid sigmoid_ hardswish",
    "sqrt": "sqrt rsqrt",
    "div": "div div_ reciprocal",
    "compare": "eq ne lt le gt ge logical_not logical_and logical_or isnan isinf bitwise_not bitwise_and",
    "where": "where masked_fill masked_fill_",
}.items():
    _CLASSES |= dict.fromkeys(_names.split(), _family)
_POOL_TAPS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Attributes:
    family: of `headway.core.hardware.family`.
    scale: by which the family's seconds are multiplied.
    is_exact: whether the family does what the operator does, not only something alike.
    """

    family: str
    dtype: str
    extents: tuple[float, ...]
    scale: float = 1.0
    is_exact: bool = True


def workload_of(operator: Operator, tensors: Mapping[str, TensorSpec]) -> Workload:
    """Returns the workload of an operator. An operator that no family covers counts as a copy of its bytes."""
    maker = _MAKERS.get(operator.kind)
    output = tensors[operator.outputs[0]] if operator.outputs else None
    if maker is None or output is None or (operator.space is None and operator.kind is not OperatorKind.CREATE):
        return _copied(operator)
    return maker(operator, output)


def _copied(operator: Operator) -> Workload:
    num_bytes = float(max(1, operator.bytes_read + operator.bytes_written))
    return Workload(family="stream_copy", dtype="float32", extents=(num_bytes,), is_exact=False)


def _matmul(operator: Operator, output: TensorSpec) -> Workload:
    n, k = _along(operator, "n"), _along(operator, "k")
    return Workload(family="matmul", dtype=output.dtype, extents=(operator.flops / (2 * n * k), n, k))


def _batched(operator: Operator, output: TensorSpec) -> Workload:
    batch, n, k = (_along(operator, name) for name in "bnk")
    extents = (batch, operator.flops / (2 * batch * n * k), n, k)
    return Workload(family="batched_matmul", dtype=output.dtype, extents=extents)


def _convolution(operator: Operator, output: TensorSpec) -> Workload:
    """A 3-D or transposed one takes as long as a 2-D one with as many products."""
    sizes, groups = _sizes(operator), int(operator.attributes.get("groups", "1"))
    taps = _along(operator, "r")
    outputs = sizes.get("o", 1) * sizes.get("g", 1)
    inputs = sizes.get("i", 1)  # of each group
    pixels = operator.flops / (2 * taps * inputs * outputs)
    plain = operator.attributes.get("transposed") != "True" and len(output.shape) == 4
    if groups > 1:
        extents: tuple[float, ...] = (pixels, outputs, inputs)
        return Workload(
            family="grouped_convolution", dtype=output.dtype, extents=extents, scale=taps / 9, is_exact=plain
        )
    extents = (taps, pixels, inputs, outputs)
    return Workload(family="convolution", dtype=output.dtype, extents=extents, is_exact=plain)


def _attention(operator: Operator, output: TensorSpec) -> Workload:
    sizes = _sizes(operator)
    heads, queries, dim = prod(sizes.get(name, 1) for name in "bgh"), sizes["q"], sizes["d"]
    keys = sizes["k"] + context_of(operator)
    if operator.attributes.get("is_causal") == "True" and queries == keys:
        return Workload(family="causal_attention", dtype=output.dtype, extents=(heads, queries, dim))
    return Workload(family="attention", dtype=output.dtype, extents=(heads, queries, keys, dim))


def _elementwise(operator: Operator, output: TensorSpec) -> Workload:
    family = _CLASSES.get(_base_name(operator), "")
    if family == "exp" and operator.attributes.get("exponent") in ("2", "2.0"):
        family = ""
    if not family:  # as fast as memory is
        family = "add" if operator.bytes_read > 1.5 * operator.bytes_written else "relu"
        elements = output.num_bytes / dtype_bytes("float32")
        return Workload(family=family, dtype="float32", extents=(elements,))
    return Workload(family=family, dtype="float32", extents=(output.num_elements,))


def _rows(operator: Operator, output: TensorSpec) -> Workload:
    """Softmax, normalisations and reductions: rows of elements that meet."""
    assert operator.space is not None
    is_reduced = {dim.name: dim.name in operator.space.reduced for dim in operator.space.dims}
    sizes = _sizes(operator)
    columns = prod(size for name, size in sizes.items() if is_reduced[name])
    rows = prod(size for name, size in sizes.items() if not is_reduced[name])
    if "batch_norm" in operator.target and operator.attributes.get("training") != "True":
        return Workload(family="batch_norm", dtype="float32", extents=(output.num_elements,))
    family = {OperatorKind.SOFTMAX: "softmax", OperatorKind.REDUCTION: "reduce"}.get(operator.kind, "layer_norm")
    return Workload(family=family, dtype=output.dtype, extents=(rows, columns))


def _copy(operator: Operator, output: TensorSpec) -> Workload:
    name = _base_name(operator)
    if name == "_to_copy":
        return Workload(family="convert", dtype="float32", extents=(output.num_elements,))
    columns = output.shape[-1] if output.shape else 1
    rows = output.num_elements / max(1, columns)
    family = "concatenate" if name in ("cat", "stack") else "transpose"
    scale = dtype_bytes(output.dtype) / dtype_bytes("float32")
    return Workload(family=family, dtype="float32", extents=(rows, columns), scale=scale, is_exact=scale == 1)


def _gather(operator: Operator, output: TensorSpec) -> Workload:
    columns = output.shape[-1] if output.shape else 1
    is_exact = operator.kind is OperatorKind.EMBEDDING
    extents = (output.num_elements / max(1, columns), columns)
    return Workload(family="gather", dtype=output.dtype, extents=extents, is_exact=is_exact)


def _pooling(operator: Operator, output: TensorSpec) -> Workload:
    scale = _along(operator, "r") / _POOL_TAPS
    return Workload(family="pool", dtype="float32", extents=(output.num_elements,), scale=scale, is_exact=False)


def _create(operator: Operator, output: TensorSpec) -> Workload:  # noqa: ARG001 - as the others
    elements = output.num_bytes / dtype_bytes("float32")
    return Workload(family="relu", dtype="float32", extents=(elements,), is_exact=False)


_MAKERS = {
    OperatorKind.MATMUL: _matmul,
    OperatorKind.BATCHED_MATMUL: _batched,
    OperatorKind.CONVOLUTION: _convolution,
    OperatorKind.ATTENTION: _attention,
    OperatorKind.ELEMENTWISE: _elementwise,
    OperatorKind.SOFTMAX: _rows,
    OperatorKind.NORMALIZATION: _rows,
    OperatorKind.REDUCTION: _rows,
    OperatorKind.COPY: _copy,
    OperatorKind.EMBEDDING: _gather,
    OperatorKind.GATHER: _gather,
    OperatorKind.DISPATCH: _gather,
    OperatorKind.POOLING: _pooling,
    OperatorKind.CREATE: _create,
}


def _along(operator: Operator, name: str) -> int:
    """Loops of that name together: `m`, or what it was split into, `m0` and `m1`. Loops of length 1 are left out."""
    return prod(size for each, size in _sizes(operator).items() if each.rstrip("0123456789") == name)


def _sizes(operator: Operator) -> dict[str, int]:
    assert operator.space is not None
    return {dim.name: dim.size for dim in operator.space.dims}


def _base_name(operator: Operator) -> str:
    """Returns an operator's base name: 'aten.mul.Tensor' -> 'mul'."""
    parts = operator.target.split(".")
    return parts[1] if len(parts) > 1 else parts[0]
