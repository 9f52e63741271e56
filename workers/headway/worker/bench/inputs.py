"""Random tensors for a program's inputs, the same every time."""

import torch

from headway.core.program import Value


def make_input(value: Value, *, device: torch.device, generator: torch.Generator) -> torch.Tensor:
    """Numbers from [0, 1), laid out in memory as the value says; indices within their bound."""
    dtype: torch.dtype = getattr(torch, value.dtype)
    if 0 in value.shape:
        return torch.empty(value.shape, dtype=dtype, device=device)
    spans = ((size - 1) * step for size, step in zip(value.shape, value.stride, strict=True))
    flat = _numbers(1 + sum(spans), dtype, value.bound, device=device, generator=generator)
    return flat.as_strided(value.shape, value.stride)


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
