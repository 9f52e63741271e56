"""Random tensors for a program's inputs, the same every time."""

from math import prod

import torch

from headway.core.program import Value


def make_input(value: Value, *, device: torch.device, generator: torch.Generator) -> torch.Tensor:
    """Numbers from [0, 1), laid out in memory as the value says; indices within their bound."""
    return _laid_out(_flat(value, device, generator), value)


def make_signed_input(
    value: Value, *, is_constant: bool, device: torch.device, generator: torch.Generator
) -> torch.Tensor:
    """Signed numbers, which hide no error, with a variance of one, or for a weight of several dims of one over what is
    summed. Constants of one dim, such as variances, are from [0.5, 1.5); whatever is no number is as in `make_input`.
    """
    flat = _flat(value, device, generator)
    if flat.dtype.is_floating_point and is_constant and len(value.shape) == 1:
        flat = flat + 0.5
    elif flat.dtype.is_floating_point:
        scale = max(1, prod(value.shape[1:])) ** -0.5 if is_constant else 1.0
        flat = ((flat.float() - 0.5) * (12**0.5 * scale)).to(flat.dtype)
    return _laid_out(flat, value)


def _flat(value: Value, device: torch.device, generator: torch.Generator) -> torch.Tensor:
    spans = ((size - 1) * step for size, step in zip(value.shape, value.stride, strict=True))
    count = 0 if 0 in value.shape else 1 + sum(spans)
    return _numbers(count, getattr(torch, value.dtype), value.bound, device=device, generator=generator)


def _laid_out(flat: torch.Tensor, value: Value) -> torch.Tensor:
    return flat.reshape(value.shape) if 0 in value.shape else flat.as_strided(value.shape, value.stride)


def _numbers(
    count: int, dtype: torch.dtype, bound: int, *, device: torch.device, generator: torch.Generator
) -> torch.Tensor:
    if dtype.is_complex or (dtype.is_floating_point and dtype.itemsize > 1):
        return torch.rand(count, dtype=dtype, device=device, generator=generator)
    if dtype.is_floating_point:
        return torch.rand(count, device=device, generator=generator).to(dtype)
    if dtype == torch.bool:
        return torch.rand(count, device=device, generator=generator) < 0.5
    return torch.randint(max(1, bound), (count,), device=device, generator=generator).to(dtype)
