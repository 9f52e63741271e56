"""The gated activation."""

import pytest
import torch

from headway.kernels import reference, silu_mul
from headway.kernels.cpu import CpuKernels


@pytest.mark.parametrize("width", [1, 7, 16, 65, 1408])
@pytest.mark.parametrize("num_rows", [0, 1, 5, 70])
def test_equals_the_reference(kernels: CpuKernels, num_rows: int, width: int) -> None:
    gate_up = 4 * torch.randn(num_rows, 2 * width)
    expected = reference.silu_mul(gate_up.double())
    torch.testing.assert_close(kernels.silu_mul(gate_up).double(), expected, rtol=1e-6, atol=1e-12)


def test_is_accurate_over_the_whole_range(kernels: CpuKernels) -> None:
    gate = torch.cat((torch.linspace(-86, 90, 20_000), torch.tensor([0.0, -0.0, 1e-30, 1e30])))
    gate_up = torch.cat((gate, torch.ones_like(gate)))[None]
    expected = torch.nn.functional.silu(gate.double())
    torch.testing.assert_close(kernels.silu_mul(gate_up)[0].double(), expected, rtol=4e-7, atol=0)


def test_a_hugely_negative_gate_closes(kernels: CpuKernels) -> None:
    gate_up = torch.tensor([[-88.0, -100.0, -1e4, 1.0, 1.0, 1.0]])
    assert kernels.silu_mul(gate_up).abs().max() < 1e-33


def test_nan_stays_nan(kernels: CpuKernels) -> None:
    gate_up = torch.tensor([[float("nan"), 1.0, 1.0, float("nan")]])
    assert kernels.silu_mul(gate_up).isnan().all()
    assert kernels.silu_mul(gate_up.bfloat16()).isnan().all()


def test_bfloat16_rounds_once(kernels: CpuKernels) -> None:
    gate_up = torch.randn(5, 134).bfloat16()
    expected = reference.silu_mul(gate_up)
    torch.testing.assert_close(kernels.silu_mul(gate_up), expected, rtol=2**-8, atol=0)


@pytest.mark.parametrize("gate_up", [torch.zeros(3, 5), torch.zeros(8), torch.zeros(3, 4, dtype=torch.int32)])
def test_a_bad_operand_is_named(gate_up: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"^gate_up must"):
        silu_mul(gate_up)
