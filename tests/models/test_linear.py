import pytest
import torch
from torch.nn import functional

from headway.models.linear import Linear

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


def test_packing_leaves_a_shared_weight_as_it_is():
    shared = torch.randn(80, 48)
    before = shared.clone()
    linear = Linear(48, 80, bias=False, dtype=torch.float32, device=CPU, weight=shared)
    linear.pack()
    torch.testing.assert_close(shared, before, atol=0, rtol=0)
    assert linear.weight is not shared


def test_parts_are_rows_of_the_fused_weight_in_order():
    linear = make_linear(dtype=torch.float32)
    parts = dict(linear.named_parts(first=50, second=30))
    assert parts.keys() == {"first.weight", "first.bias", "second.weight", "second.bias"}
    torch.testing.assert_close(parts["second.weight"], linear.weight[50:], atol=0, rtol=0)
