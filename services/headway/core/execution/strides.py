"""How tensors lie in memory."""

from collections.abc import Sequence


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a tensor whose last dim is the innermost."""
    return dense_stride(shape, range(len(shape), 0, -1))


def dense_stride(shape: Sequence[int], like: Sequence[int]) -> tuple[int, ...]:
    """The strides of a tensor without gaps whose dims are ordered in memory as those of `like` are."""
    order = sorted(range(len(shape)), key=lambda dim: (-like[dim], dim))
    stride, step = [1] * len(shape), 1
    for dim in reversed(order):
        stride[dim] = step
        step *= max(1, shape[dim])
    return tuple(stride)
