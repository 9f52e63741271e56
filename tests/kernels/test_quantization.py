import torch

from headway.kernels import quantize


def test_every_weight_is_within_half_a_step() -> None:
    weight = torch.randn(20, 300) * torch.logspace(-6, 6, 20)[:, None]
    rows, scales = quantize(weight)
    assert rows.dtype is torch.int8
    assert scales.dtype is torch.float32
    assert rows.abs().amax(dim=1).eq(127).all()
    error = (rows * scales[:, None] - weight).abs()
    assert (error <= 0.5001 * scales[:, None]).all()


def test_a_row_of_zeros_stays_one() -> None:
    rows, scales = quantize(torch.zeros(2, 5))
    assert not (rows * scales[:, None]).any()


def test_bfloat16_is_rounded_as_its_float32_is() -> None:
    weight = torch.randn(7, 40).bfloat16()
    for narrow, wide in zip(quantize(weight), quantize(weight.float()), strict=True):
        assert torch.equal(narrow, wide)
