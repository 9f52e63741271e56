"""The linear layer over packed weights."""

from typing import Any

import pytest
import torch
from torch import Tensor

from headway.kernels import linear, pack_linear, quantize, reference
from headway.kernels.cpu import CpuKernels

ACTIVATIONS = ("none", "relu", "silu", "gelu", "gelu_tanh")
DTYPES = (torch.float32, torch.bfloat16)
SHAPES = [(1, 1), (7, 3), (64, 16), (65, 40), (130, 512), (96, 1408)]


def run(
    kernels: CpuKernels,
    x: Tensor,
    weight: Tensor,
    *,
    scales: Tensor | None = None,
    is_gated: bool = False,
    bias: Tensor | None = None,
    activation: str = "none",
    residual: Tensor | None = None,
) -> Tensor:
    return kernels.linear(
        x,
        panels=kernels.pack_linear(weight, is_gated=is_gated),
        scales=scales,
        out_features=len(weight),
        is_gated=is_gated,
        bias=bias,
        activation=activation,
        residual=residual,
    )


def check(kernels: CpuKernels, x: Tensor, weight: Tensor, **options) -> None:
    """Sums are float32; what is bfloat16 is rounded to it once."""
    plain = {"scales": None, "is_gated": False, "bias": None, "activation": "none", "residual": None, **options}
    wide = {name: value.double() if isinstance(value, Tensor) else value for name, value in plain.items()}
    expected = reference.linear(x.double(), weight=weight, **wide)
    out = run(kernels, x, weight, **options)
    assert out.dtype is x.dtype
    tolerance = 1e-5 if x.dtype is torch.float32 else 2.0**-8
    torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=1e-5)


@pytest.mark.parametrize(("out_features", "in_features"), SHAPES)
@pytest.mark.parametrize("num_rows", [0, 1, 2, 6, 7, 13, 121, 300])
@pytest.mark.parametrize("dtype", DTYPES)
def test_equals_the_reference(
    kernels: CpuKernels, dtype: torch.dtype, num_rows: int, out_features: int, in_features: int
) -> None:
    weight = (torch.randn(out_features, in_features) / in_features**0.5).to(dtype)
    check(kernels, torch.randn(num_rows, in_features).to(dtype), weight)


@pytest.mark.parametrize(("out_features", "in_features"), SHAPES)
@pytest.mark.parametrize("num_rows", [0, 1, 6, 13, 121])
@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_in_int8_equal_the_reference(
    kernels: CpuKernels, dtype: torch.dtype, num_rows: int, out_features: int, in_features: int
) -> None:
    rows, scales = quantize(torch.randn(out_features, in_features) / in_features**0.5)
    check(kernels, torch.randn(num_rows, in_features).to(dtype), rows, scales=scales)


@pytest.mark.parametrize("is_gated", [False, True])
def test_scales_come_before_bias_and_activation(kernels: CpuKernels, is_gated: bool) -> None:
    rows, scales = quantize(torch.randn(70, 48) / 4)
    check(kernels, torch.randn(9, 48), rows, scales=scales, is_gated=is_gated, bias=torch.randn(70), activation="silu")


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_bias_activation_and_residual_follow_the_product(
    kernels: CpuKernels, dtype: torch.dtype, activation: str
) -> None:
    x, weight, residual = (2 * torch.randn(9, 48)).to(dtype), (torch.randn(70, 48) / 4).to(dtype), torch.randn(9, 70)
    check(kernels, x, weight, bias=torch.randn(70), activation=activation, residual=residual.to(dtype))


@pytest.mark.parametrize("width", [1, 8, 32, 50, 176])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_gates_multiply_the_other_half(kernels: CpuKernels, dtype: torch.dtype, width: int, has_bias: bool) -> None:
    bias = torch.randn(2 * width) if has_bias else None
    weight = (torch.randn(2 * width, 40) / 6).to(dtype)
    check(kernels, torch.randn(11, 40).to(dtype), weight, is_gated=True, bias=bias, activation="silu")


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_does_not_depend_on_its_neighbours_or_the_threads(kernels: CpuKernels, dtype: torch.dtype) -> None:
    x, weight = torch.randn(150, 512).to(dtype), torch.randn(400, 512).to(dtype)
    together = run(kernels, x, weight)
    torch.set_num_threads(1)
    for first, last in ((0, 1), (3, 10), (20, 150)):
        assert torch.equal(run(kernels, x[first:last], weight), together[first:last])


@pytest.mark.parametrize("in_features", [3, 33, 512])
@pytest.mark.parametrize("dtype", DTYPES)
def test_nor_does_it_with_weights_in_int8(kernels: CpuKernels, dtype: torch.dtype, in_features: int) -> None:
    """Wherever they are widened."""
    rows, scales = quantize(torch.randn(200, in_features))
    x = torch.randn(70, in_features).to(dtype)
    together = run(kernels, x, rows, scales=scales)
    for first, last in ((0, 1), (3, 20), (30, 63)):
        assert torch.equal(run(kernels, x[first:last], rows, scales=scales), together[first:last])


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_may_be_strided(kernels: CpuKernels, dtype: torch.dtype) -> None:
    wide, weight = torch.randn(20, 100).to(dtype), (torch.randn(30, 40) / 6).to(dtype)
    check(kernels, wide[:, 10:50], weight, residual=torch.randn(20, 90).to(dtype)[:, 7:37])


def test_neighbouring_memory_is_left_alone(kernels: CpuKernels) -> None:
    residual = torch.randn(5, 33)
    before = residual.clone()
    run(kernels, torch.randn(5, 20), torch.randn(33, 20), residual=residual)
    assert torch.equal(residual, before)


def test_activations_are_accurate_over_a_wide_range(kernels: CpuKernels) -> None:
    x = torch.linspace(-30, 30, 10_001)[:, None]
    for activation in ACTIVATIONS:
        out = run(kernels, x, torch.ones(1, 1), activation=activation)
        expected = reference.linear(
            x.double(),
            weight=torch.ones(1, 1, dtype=torch.float64),
            scales=None,
            is_gated=False,
            bias=None,
            activation=activation,
            residual=None,
        )
        torch.testing.assert_close(out.double(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_stays_in_its_row(kernels: CpuKernels, dtype: torch.dtype) -> None:
    x = torch.randn(8, 21).to(dtype)
    x[3, 5] = torch.nan
    for activation in ACTIVATIONS:
        is_nan = run(kernels, x, torch.randn(40, 21).to(dtype), activation=activation).isnan()
        assert is_nan[3].all()
        assert is_nan.sum() == 40


@pytest.mark.parametrize(
    ("weight", "options"),
    [
        (torch.zeros(3), {}),
        (torch.zeros(3, 4, dtype=torch.float16), {}),
        (torch.zeros(3, 4, dtype=torch.int8), {}),
        (torch.zeros(3, 4), {"is_gated": True}),
        (torch.zeros(3, 4), {"scales": torch.zeros(3)}),
    ],
)
def test_a_bad_weight_is_named(weight: Tensor, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^weight must"):
        pack_linear(weight, **options)


def test_a_scale_is_missed() -> None:
    with pytest.raises(ValueError, match=r"^scales must"):
        pack_linear(torch.zeros(3, 4, dtype=torch.int8), scales=torch.zeros(2))


@pytest.mark.parametrize(
    ("name", "operands"),
    [
        ("x", {"x": torch.zeros(2, 5)}),
        ("x", {"x": torch.zeros(2, 4).bfloat16()}),
        ("bias", {"bias": torch.zeros(4)}),
        ("activation", {"activation": "mish"}),
        ("residual", {"residual": torch.zeros(2, 4)}),
    ],
)
def test_a_bad_operand_is_named(name: str, operands: dict[str, Tensor]) -> None:
    with pytest.raises(ValueError, match=f"^{name} must"):
        linear(**{"x": torch.zeros(2, 4), "layer": pack_linear(torch.zeros(3, 4)), **operands})
