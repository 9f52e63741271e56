"""RMS norm, alone and fused with the residual addition."""

import pytest
import torch

from headway.kernels import add_rms_norm, reference, rms_norm
from headway.kernels.cpu import CpuKernels

WIDTHS = [1, 7, 16, 63, 64, 65, 512, 1000]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("num_rows", [0, 1, 3, 130])
def test_rms_norm_equals_the_reference(kernels: CpuKernels, num_rows: int, width: int) -> None:
    x, weight = 3 * torch.randn(num_rows, width), torch.randn(width)
    expected = reference.rms_norm(x.double(), weight=weight.double(), eps=1e-6)
    torch.testing.assert_close(kernels.rms_norm(x, weight=weight, eps=1e-6).double(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("width", WIDTHS)
def test_rms_norm_equals_torch(kernels: CpuKernels, width: int) -> None:
    x, weight = torch.randn(5, width), torch.randn(width)
    expected = torch.nn.functional.rms_norm(x, (width,), weight, eps=1e-5)
    torch.testing.assert_close(kernels.rms_norm(x, weight=weight, eps=1e-5), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("width", WIDTHS)
def test_add_rms_norm_updates_the_residual(kernels: CpuKernels, width: int) -> None:
    x, residual, weight = torch.randn(9, width), torch.randn(9, width), torch.randn(width)
    total = x + residual
    out = kernels.add_rms_norm(x, residual=residual, weight=weight, eps=1e-6)
    assert torch.equal(residual, total)
    expected = reference.rms_norm(total.double(), weight=weight.double(), eps=1e-6)
    torch.testing.assert_close(out.double(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("width", [7, 64, 200])
def test_bfloat16_is_computed_in_float32(kernels: CpuKernels, width: int) -> None:
    x, residual, weight = (torch.randn(n, width).bfloat16() for n in (9, 9, 1))
    expected_residual = residual.clone()
    expected = reference.add_rms_norm(x, residual=expected_residual, weight=weight[0], eps=1e-6)
    out = kernels.add_rms_norm(x, residual=residual, weight=weight[0], eps=1e-6)
    assert torch.equal(residual, expected_residual)
    torch.testing.assert_close(out, expected, rtol=2**-8, atol=0)  # the last bit may round the other way


def test_strided_rows_are_read_in_place() -> None:
    wide, weight = torch.randn(6, 100), torch.randn(40)
    view = wide[:, 30:70]
    assert torch.equal(rms_norm(view, weight, eps=1e-6), rms_norm(view.contiguous(), weight, eps=1e-6))
    residual = torch.randn(6, 90)
    before = residual.clone()
    add_rms_norm(view, residual[:, :40], weight, eps=1e-6)
    assert torch.equal(residual[:, :40], before[:, :40] + view)
    assert torch.equal(residual[:, 40:], before[:, 40:])


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    x, weight = torch.randn(300, 512), torch.randn(512)
    together = rms_norm(x, weight, eps=1e-6)
    for row in (0, 17, 299):
        assert torch.equal(rms_norm(x[row : row + 1], weight, eps=1e-6)[0], together[row])


@pytest.mark.parametrize(
    ("name", "x", "residual", "weight"),
    [
        ("x", torch.zeros(4), torch.zeros(2, 4), torch.zeros(4)),
        ("x", torch.zeros(4, 2).T, torch.zeros(2, 4), torch.zeros(4)),
        ("x", torch.zeros(2, 4, dtype=torch.float16), torch.zeros(2, 4), torch.zeros(4)),
        ("residual", torch.zeros(2, 4), torch.zeros(3, 4), torch.zeros(4)),
        ("residual", torch.zeros(2, 4), torch.zeros(1, 4).expand(2, 4), torch.zeros(4)),
        ("residual", torch.zeros(2, 4), torch.zeros(2, 4, dtype=torch.bfloat16), torch.zeros(4)),
        ("weight", torch.zeros(2, 4), torch.zeros(2, 4), torch.zeros(5)),
        ("weight", torch.zeros(2, 4), torch.zeros(2, 4), torch.zeros(4, dtype=torch.bfloat16)),
        ("weight", torch.zeros(2, 4), torch.zeros(2, 4), torch.zeros(8)[::2]),
        ("weight", torch.zeros(2, 4), torch.zeros(2, 4), torch.zeros(4, device="meta")),
    ],
)
def test_a_bad_operand_is_named(name: str, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be"):
        add_rms_norm(x, residual, weight, eps=1e-6)
