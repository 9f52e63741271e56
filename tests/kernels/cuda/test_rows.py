"""Norms and activations, against their definition."""

import pytest
import torch
from torch import Tensor

from headway.kernels import reference
from headway.kernels.cuda import add_rms_norm, rms_norm, silu_mul
from headway.kernels.cuda.kernels import CudaKernels
from tests.kernels.cuda.cases import BF16, F16, F32
from tests.kernels.cuda.schedules import SCHEDULES


def rows_of(width: int, dtype: torch.dtype) -> Tensor:
    """Five rows that do not lie one after the other."""
    return torch.randn(5, width + 24).to(dtype)[:, :width]


def unit_of(dtype: torch.dtype) -> float:
    return max(torch.finfo(dtype).eps, 1e-5)


# one piece of a lane, less than a warp, several warps, and rows longer than the threads take at once
@pytest.mark.parametrize("width", [8, 240, 1000, 4200])
@pytest.mark.parametrize("dtype", [F32, BF16, F16])
def test_norms_equal_the_definition(host: CudaKernels, dtype: torch.dtype, width: int) -> None:
    x, residual, weight = rows_of(width, dtype), rows_of(width, dtype), torch.randn(width).to(dtype)
    results = []
    for schedule in SCHEDULES:
        host.set_schedule(schedule)
        own = residual.clone()
        results.append((rms_norm(x, weight, eps=1e-5), add_rms_norm(x, own, weight, eps=1e-5), own))
    for result in results[1:]:
        assert all(torch.equal(one, other) for one, other in zip(result, results[0], strict=True))
    alone, added, own = results[0]
    unit = unit_of(dtype)
    exact = reference.rms_norm(x.double(), weight=weight.double(), eps=1e-5)
    torch.testing.assert_close(alone.double(), exact, rtol=unit, atol=unit)
    assert torch.equal(own, (residual.float() + x.float()).to(dtype))
    exact = reference.rms_norm(own.double(), weight=weight.double(), eps=1e-5)
    torch.testing.assert_close(added.double(), exact, rtol=unit, atol=unit)


@pytest.mark.parametrize("width", [8, 200, 2056])
@pytest.mark.parametrize("dtype", [F32, BF16, F16])
def test_gates_equal_the_definition(host: CudaKernels, dtype: torch.dtype, width: int) -> None:
    gate_up = 8 * rows_of(2 * width, dtype)
    unit = unit_of(dtype)
    torch.testing.assert_close(
        silu_mul(gate_up).double(), reference.silu_mul(gate_up.double()), rtol=unit, atol=unit, check_dtype=False
    )


def test_a_gate_that_overflows_is_closed(host: CudaKernels) -> None:
    gate_up = torch.tensor([-1e4, 1e4]).repeat_interleave(8)[None]
    assert not silu_mul(gate_up).any()


def test_no_rows_give_no_rows(host: CudaKernels) -> None:
    assert rms_norm(torch.zeros(0, 16), torch.zeros(16), eps=1e-5).shape == (0, 16)
    assert silu_mul(torch.zeros(0, 16)).shape == (0, 8)


def test_bad_operands_are_named(host: CudaKernels) -> None:
    x, weight = torch.zeros(2, 16), torch.zeros(16)
    with pytest.raises(ValueError, match="x must be bfloat16 or float16 or float32; it is float64"):
        rms_norm(x.double(), weight.double(), eps=1e-5)
    with pytest.raises(ValueError, match="x must be of a multiple of 8 columns"):
        rms_norm(x[:, :12], weight[:12], eps=1e-5)
    with pytest.raises(ValueError, match=r"weight must be float32 \[16\]"):
        rms_norm(x, weight[:8], eps=1e-5)
    with pytest.raises(ValueError, match="weight must be at a multiple of 16 bytes"):
        rms_norm(x, torch.zeros(17)[1:], eps=1e-5)
    with pytest.raises(ValueError, match=r"residual must be float32 \[2, 16\]"):
        add_rms_norm(x, x[:1], weight, eps=1e-5)
    with pytest.raises(ValueError, match="gate_up must be of a multiple of 16 columns"):
        silu_mul(torch.zeros(2, 24))
    with pytest.raises(ValueError, match="gate_up must be of at most 134215680 columns"):
        silu_mul(torch.empty(1, 134215680 + 16))
