"""The call behind each cell of one process, as eager torch runs it in a model: with new memory for its result."""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import cycle
from math import isqrt

import torch
from torch import Tensor, nn
from torch.nn import functional

from headway.core.errors import InvalidArgumentError
from headway.core.hardware.cell import Cell

Call = Callable[[], object]
_COLD_BYTES = 64 << 20
_WARM_BYTES = 16 << 20
_MAX_COPIES = 512


def _batch_norm(x: Tensor) -> Tensor:
    """Batch normalisation of at most 64 channels with known statistics."""
    channels = min(64, len(x))
    statistics = torch.ones(channels, dtype=x.dtype, device=x.device)
    return functional.batch_norm(x.view(1, channels, -1), statistics, statistics, statistics, statistics)


_UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": functional.gelu,
    "silu": functional.silu,
    "tanh": torch.tanh,
    "exp": torch.exp,
    "sin": torch.sin,
    "sqrt": torch.sqrt,
    "compare": lambda x: x > 0,
    "convert": lambda x: x.to(torch.float64),
    "batch_norm": _batch_norm,
}
_BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"add": torch.add, "div": torch.div}


def call_of(cell: Cell, device: torch.device) -> Call:
    """InvalidArgumentError where there is no such family."""
    dtype: torch.dtype = getattr(torch, cell.dtype)
    with torch.device(device):
        if cell.family in _UNARY:
            return _turns(_UNARY[cell.family], 1, cell.extents, dtype)
        if cell.family in _BINARY:
            return _turns(_BINARY[cell.family], 2, cell.extents, dtype)
        maker = _MAKERS.get(cell.family)
        if maker is None:
            raise InvalidArgumentError(f"No operator is called '{cell.family}'.", field="family")
        return maker(cell.extents, dtype)


def _turns(function: Callable[..., Tensor], num_operands: int, extents: Sequence[int], dtype: torch.dtype) -> Call:
    """Operands and results take turns, so that they come from the caches that they would come from in a model."""
    num_bytes = max(1, extents[0] * dtype.itemsize)
    number = min(_MAX_COPIES, max(1, _WARM_BYTES // (num_bytes * (num_operands + 1))))
    operands = cycle([tuple(torch.rand(num_operands, *extents, dtype=dtype) + 1) for _ in range(number)])
    results: deque[Tensor] = deque(maxlen=number)
    return lambda: results.append(function(*next(operands)))


class _Viewing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.view(1, -1).transpose(0, 1)


def _dispatch(extents: Sequence[int], dtype: torch.dtype) -> Call:
    module, x = _Viewing(), torch.ones(extents, dtype=dtype)
    return lambda: module(x)


def _read(extents: Sequence[int], dtype: torch.dtype) -> Call:
    x = torch.ones(extents[0] // dtype.itemsize, dtype=dtype)
    return x.sum


def _copy(extents: Sequence[int], dtype: torch.dtype) -> Call:
    x = torch.ones(2, extents[0] // dtype.itemsize // 2, dtype=dtype)
    return lambda: x[0].copy_(x[1])


def _triad(extents: Sequence[int], dtype: torch.dtype) -> Call:
    x = torch.ones(3, max(1, extents[0] // dtype.itemsize // 3), dtype=dtype)
    return lambda: torch.add(x[1], x[2], alpha=3.0, out=x[0])


def _where(extents: Sequence[int], dtype: torch.dtype) -> Call:
    x = torch.rand(2, *extents, dtype=dtype)
    mask = x[0] > x[1]
    return lambda: torch.where(mask, x[0], x[1])


def _pool(extents: Sequence[int], dtype: torch.dtype) -> Call:
    """3 x 3 over images of 32 x 32 pixels or less."""
    side = isqrt(min(extents[0], 1024))
    x = torch.rand(1, max(1, extents[0] // side**2), side, side, dtype=dtype)
    return lambda: functional.max_pool2d(x, 3, stride=1, padding=1)


def _softmax(extents: Sequence[int], dtype: torch.dtype) -> Call:
    x = torch.rand(extents, dtype=dtype)
    return lambda: torch.softmax(x, dim=-1)


def _layer_norm(extents: Sequence[int], dtype: torch.dtype) -> Call:
    x, weight, bias = torch.rand(extents, dtype=dtype), *torch.rand(2, extents[1], dtype=dtype)
    return lambda: functional.layer_norm(x, (extents[1],), weight, bias)


def _reduce(extents: Sequence[int], dtype: torch.dtype) -> Call:
    x = torch.rand(extents, dtype=dtype)
    return lambda: x.mean(dim=-1)


def _transpose(extents: Sequence[int], dtype: torch.dtype) -> Call:
    rows, columns = extents
    heads = min(rows, 16)
    x = torch.rand(rows // heads, heads, columns, dtype=dtype).transpose(0, 1)
    return lambda: x.clone(memory_format=torch.contiguous_format)


def _concatenate(extents: Sequence[int], dtype: torch.dtype) -> Call:
    x = torch.rand(2, extents[0], extents[1] // 2, dtype=dtype)
    halves = [x[0], x[1]]
    return lambda: torch.cat(halves, dim=-1)


def _gather(extents: Sequence[int], dtype: torch.dtype) -> Call:
    rows, columns = extents
    table = torch.ones(_COLD_BYTES // columns // dtype.itemsize, columns, dtype=dtype)
    indices = cycle([torch.randint(len(table), (rows,)) for _ in range(8)])
    return lambda: functional.embedding(next(indices), table)


def _linear(extents: Sequence[int], dtype: torch.dtype) -> Call:
    """Weights take turns, so that each comes from memory as in a model that is larger than the caches."""
    m, n, k = extents
    x = torch.rand(m, k, dtype=dtype)
    number = min(_MAX_COPIES, max(2, _COLD_BYTES // (n * k * dtype.itemsize)))
    weights = cycle(list(torch.ones(number, n, k, dtype=dtype)))
    bias = torch.rand(n, dtype=dtype)
    return lambda: functional.linear(x, next(weights), bias)


def _linear_cached(extents: Sequence[int], dtype: torch.dtype) -> Call:
    m, n, k = extents
    x, weight, bias = torch.rand(m, k, dtype=dtype), torch.rand(n, k, dtype=dtype), torch.rand(n, dtype=dtype)
    return lambda: functional.linear(x, weight, bias)


def _weights(extents: Sequence[int], dtype: torch.dtype) -> Call:
    """Weights of a model so large take turns, as they do from pass to pass: what the caches keep of them shows."""
    width = 512
    x, bias = torch.rand(16, width, dtype=dtype), torch.rand(width, dtype=dtype)
    number = max(1, extents[0] // (width * width * dtype.itemsize))
    weights = cycle([torch.ones(width, width, dtype=dtype) for _ in range(number)])
    return lambda: functional.linear(x, next(weights), bias)


def _batched(extents: Sequence[int], dtype: torch.dtype) -> Call:
    batch, m, n, k = extents
    x, y = torch.rand(batch, m, k, dtype=dtype), torch.rand(batch, k, n, dtype=dtype)
    return lambda: torch.bmm(x, y)


def _convolution(extents: Sequence[int], dtype: torch.dtype) -> Call:
    taps, pixels, inputs, outputs = extents
    side, kernel = isqrt(pixels), isqrt(taps)
    x, weight = torch.rand(1, inputs, side, side, dtype=dtype), torch.rand(outputs, inputs, kernel, kernel, dtype=dtype)
    return lambda: functional.conv2d(x, weight, padding=kernel // 2)


def _grouped_convolution(extents: Sequence[int], dtype: torch.dtype) -> Call:
    pixels, channels, group = extents
    side = isqrt(pixels)
    x, weight = torch.rand(1, channels, side, side, dtype=dtype), torch.rand(channels, group, 3, 3, dtype=dtype)
    return lambda: functional.conv2d(x, weight, padding=1, groups=channels // group)


def _attention(extents: Sequence[int], dtype: torch.dtype) -> Call:
    heads, queries, keys, dim = extents
    query, key, value = _heads(heads, queries, dim, dtype), *(_heads(heads, keys, dim, dtype) for _ in range(2))
    return lambda: functional.scaled_dot_product_attention(query, key, value)


def _causal_attention(extents: Sequence[int], dtype: torch.dtype) -> Call:
    heads, queries, dim = extents
    query, key, value = (_heads(heads, queries, dim, dtype) for _ in range(3))
    return lambda: functional.scaled_dot_product_attention(query, key, value, is_causal=True)


def _heads(heads: int, tokens: int, dim: int, dtype: torch.dtype) -> Tensor:
    """Makes a tensor of attention heads as projections leave them: [1, tokens, heads, dim] in memory, seen as [1,
    heads, tokens, dim].
    """
    return torch.rand(1, tokens, heads, dim, dtype=dtype).transpose(1, 2)


_MAKERS: dict[str, Callable[[Sequence[int], torch.dtype], Call]] = {
    "dispatch": _dispatch,
    "stream_read": _read,
    "stream_copy": _copy,
    "stream_triad": _triad,
    "where": _where,
    "pool": _pool,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "reduce": _reduce,
    "transpose": _transpose,
    "concatenate": _concatenate,
    "gather": _gather,
    "matmul": _linear,
    "matmul_cached": _linear_cached,
    "weights": _weights,
    "batched_matmul": _batched,
    "convolution": _convolution,
    "grouped_convolution": _grouped_convolution,
    "attention": _attention,
    "causal_attention": _causal_attention,
}
