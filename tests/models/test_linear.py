import pytest
import torch
from torch.nn import functional

from headway.kernels import quantize
from headway.models.linear import Linear
from headway.models.product import Epilogue, QuantizedProduct
from headway.models.weights import Piece

CPU = torch.device("cpu")
REFERENCES = {
    "none": lambda x: x,
    "relu": functional.relu,
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
}
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 3e-2}


def make_linear(*, dtype: torch.dtype, activation: str = "none", is_gated: bool = False) -> Linear:
    linear = Linear(48, 80, bias=True, dtype=dtype, device=CPU, activation=activation, is_gated=is_gated)
    generator = torch.Generator().manual_seed(1)
    linear.weight.copy_(torch.randn(80, 48, generator=generator) / 7)
    if linear.bias is not None:
        linear.bias.copy_(torch.randn(80, generator=generator))
    return linear


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("activation", REFERENCES)
@torch.inference_mode()
def test_product_equals_the_definition(activation, dtype, is_packed):
    linear = make_linear(dtype=dtype, activation=activation)
    weight, bias = linear.weight.float(), linear.bias.float()
    if is_packed:
        linear.pack()
    for num_rows in (0, 1, 3, 64):
        x = torch.randn(num_rows, 48).to(dtype)
        expected = REFERENCES[activation](x.float() @ weight.T + bias)
        torch.testing.assert_close(linear(x).float(), expected, atol=TOLERANCES[dtype], rtol=TOLERANCES[dtype])


@pytest.mark.parametrize("is_packed", [False, True])
@torch.inference_mode()
def test_adding_to_a_residual_leaves_it_unchanged(is_packed):
    linear = make_linear(dtype=torch.float32)
    x, residual = torch.randn(5, 48), torch.randn(5, 80)
    before, expected = residual.clone(), residual + x @ linear.weight.T + linear.bias
    if is_packed:
        linear.pack()
    torch.testing.assert_close(linear(x, residual=residual), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(residual, before, atol=0, rtol=0)


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCES)
@torch.inference_mode()
def test_first_half_gates_the_second(dtype, is_packed):
    linear = make_linear(dtype=dtype, activation="silu", is_gated=True)
    weight, bias = linear.weight.float(), linear.bias.float()
    if is_packed:
        linear.pack()
    x = torch.randn(7, 48).to(dtype)
    gate, value = (x.float() @ weight.T + bias).chunk(2, dim=1)
    expected = functional.silu(gate) * value
    torch.testing.assert_close(linear(x).float(), expected, atol=5 * TOLERANCES[dtype], rtol=TOLERANCES[dtype])


@pytest.mark.parametrize("options", [{}, {"activation": "gelu"}, {"activation": "silu", "is_gated": True}])
@pytest.mark.parametrize("dtype", TOLERANCES)
@torch.inference_mode()
def test_weights_in_int8_are_the_rounded_ones(dtype, options):
    linear, rounded = make_linear(dtype=dtype, **options), make_linear(dtype=torch.float32, **options)
    rows, scales = quantize(linear.weight)
    rounded.weight.copy_(rows * scales[:, None])
    rounded.bias.copy_(linear.bias)
    linear.pack(quantization="int8")
    for num_rows in (0, 1, 64):
        x = torch.randn(num_rows, 48).to(dtype)
        out = linear(x)
        assert out.dtype is dtype
        torch.testing.assert_close(
            out.float(), rounded(x.float()), atol=5 * TOLERANCES[dtype], rtol=5 * TOLERANCES[dtype]
        )


@torch.inference_mode()
def test_a_gpu_multiplies_rounded_weights_as_the_cpu_does():
    linear = make_linear(dtype=torch.float32)
    rows, scales = quantize(linear.weight)
    epilogue = Epilogue(linear.bias, "none", is_gated=False)
    x, residual = torch.randn(5, 48), torch.randn(5, 80)
    on_gpu = QuantizedProduct(rows, epilogue, scales=scales)(x, residual.clone())
    linear.pack(quantization="int8")
    torch.testing.assert_close(on_gpu, linear(x, residual=residual), atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def test_a_layer_that_must_stay_exact_is_not_rounded():
    exact = Linear(48, 80, bias=False, dtype=torch.float32, device=CPU, is_quantizable=False)
    exact.weight.copy_(torch.randn(80, 48))
    weight, x = exact.weight.clone(), torch.randn(3, 48)
    exact.pack(quantization="int8")
    torch.testing.assert_close(exact(x), x @ weight.T, atol=1e-5, rtol=1e-5)


def test_packing_leaves_a_shared_weight_as_it_is():
    shared = torch.randn(80, 48)
    before = shared.clone()
    linear = Linear(48, 80, bias=False, dtype=torch.float32, device=CPU, weight=shared)
    linear.pack()
    torch.testing.assert_close(shared, before, atol=0, rtol=0)
    assert linear.weight is not shared


def test_parts_are_rows_of_the_fused_weight_in_order():
    linear = make_linear(dtype=torch.float32)
    parts = dict(linear.named_parts(("first", Piece.whole(50)), ("second", Piece.whole(30))))
    assert parts.keys() == {"first.weight", "first.bias", "second.weight", "second.bias"}
    torch.testing.assert_close(parts["second.weight"].view, linear.weight[50:], atol=0, rtol=0)


def make_searched(weight: torch.Tensor) -> Linear:
    linear = Linear(weight.shape[1], len(weight), bias=False, dtype=weight.dtype, device=CPU, is_searched=True)
    linear.weight.copy_(weight)
    return linear


@pytest.mark.parametrize("quantization", [None, "int8"])
@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCES)
@torch.inference_mode()
def test_largest_output_is_that_of_the_product(dtype, is_packed, quantization):
    linear = make_searched(torch.randn(700, 48).to(dtype))
    if is_packed:
        linear.pack(quantization=quantization)
    x = torch.randn(30, 48).to(dtype)
    x[4] = 0  # where all outputs are alike, the first is meant
    values, places = linear.largest(x)
    out = linear(x).float()
    assert places.tolist() == out.numpy().argmax(axis=1).tolist()
    assert torch.equal(values, out.amax(dim=1))
    assert linear.largest(x[:0])[1].tolist() == []
