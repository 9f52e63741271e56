"""The largest output of a linear layer, with a sketch of its weight: always the one that the whole product has."""

import pytest
import torch
from torch import Tensor

from headway.kernels import find_largest, pack_linear, quantize, sketch_linear
from headway.kernels.cpu import CpuKernels
from headway.kernels.library import supported_isas

SKETCHING_ISAS = ("amx", "avx512_bf16")
DTYPES = (torch.float32, torch.bfloat16)
SHAPES = [(1, 1), (63, 3), (64, 16), (65, 41), (700, 130), (5000, 512)]


@pytest.fixture(scope="module", params=SKETCHING_ISAS)
def sketching(built: None, request: pytest.FixtureRequest) -> CpuKernels:
    """A variant that multiplies bytes."""
    if request.param not in supported_isas():
        pytest.skip(f"this processor does not run {request.param}")
    return CpuKernels(request.param)


def search(
    kernels: CpuKernels, x: Tensor, weight: Tensor, *, scales: Tensor | None = None, tally: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """What is found, with a sketch where there is a tally of one, and the whole product, in float32."""
    layer = {"panels": kernels.pack_linear(weight, is_gated=False), "scales": scales, "out_features": len(weight)}
    sketch = None if tally is None else kernels.sketch_linear(weight, scales=scales)
    assert (sketch is None) == (tally is None)
    values, places = kernels.find_largest(x, sketch=sketch, tally=tally, **layer)
    out = kernels.linear(x, **layer, is_gated=False, bias=None, activation="none", residual=None)
    return values, places, out.float()


def check(
    kernels: CpuKernels, x: Tensor, weight: Tensor, *, scales: Tensor | None = None, sketched: bool = True
) -> int:
    """What is found is right to the bit; returns how many rows the sketch left undecided."""
    tally = torch.zeros(3, dtype=torch.int64) if sketched else None
    values, places, out = search(kernels, x, weight, scales=scales, tally=tally)
    expected = torch.from_numpy(out.numpy().argmax(axis=1)) if len(x) else places
    assert places.tolist() == expected.tolist()
    torch.testing.assert_close(values, out.gather(1, places[:, None])[:, 0], rtol=0, atol=0, equal_nan=True)
    if tally is None:
        return len(x)
    assert tally[0] == len(x)
    return int(tally[1])


@pytest.mark.parametrize(("out_features", "in_features"), SHAPES)
@pytest.mark.parametrize("num_rows", [0, 1, 5, 6, 13, 150])
@pytest.mark.parametrize("dtype", DTYPES)
def test_equals_the_whole_product(
    sketching: CpuKernels, dtype: torch.dtype, num_rows: int, out_features: int, in_features: int
) -> None:
    weight, x = torch.randn(out_features, in_features).to(dtype), torch.randn(num_rows, in_features).to(dtype)
    assert check(sketching, x, weight) == 0


@pytest.mark.parametrize(("out_features", "in_features"), SHAPES)
@pytest.mark.parametrize("num_rows", [0, 1, 5, 6, 13, 150])
@pytest.mark.parametrize("dtype", DTYPES)
def test_without_a_sketch_all_outputs_are_looked_at(
    kernels: CpuKernels, dtype: torch.dtype, num_rows: int, out_features: int, in_features: int
) -> None:
    weight, x = torch.randn(out_features, in_features).to(dtype), torch.randn(num_rows, in_features).to(dtype)
    check(kernels, x, weight, sketched=False)
    check(kernels, x * 0, weight, sketched=False)  # all alike: the first
    rows, scales = quantize(weight.float())
    check(kernels, x, rows, scales=scales, sketched=False)


def test_without_a_sketch_too_a_nan_is_the_largest(kernels: CpuKernels) -> None:
    weight, x = torch.randn(700, 64), torch.rand(6, 64) + 0.1
    weight[70, 3], weight[400, 8], weight[500] = torch.inf, -torch.inf, torch.nan
    x[2] = -torch.inf
    check(kernels, x, weight, sketched=False)
    check(kernels, x, weight[:500], sketched=False)
    check(kernels, x, torch.full((130, 64), -torch.inf), sketched=False)


@pytest.mark.parametrize("dtype", DTYPES)
def test_equals_the_product_with_weights_in_int8(sketching: CpuKernels, dtype: torch.dtype) -> None:
    rows, scales = quantize(torch.randn(900, 96))
    assert check(sketching, torch.randn(20, 96).to(dtype), rows, scales=scales) == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("grain", [1e-8, 1e-6, 1e-4, 1e-2])
def test_outputs_that_are_nearly_alike_are_told_apart(sketching: CpuKernels, dtype: torch.dtype, grain: float) -> None:
    """Forty features differ by less than codes can show, some not at all: the first of the largest is found."""
    weight = torch.randn(3000, 256)
    twins = torch.randperm(3000)[:40]
    weight[twins] = 3 * weight[0] + grain * torch.randn(40, 256)
    weight[twins[20:]] = weight[twins[:20]]
    assert check(sketching, weight[:1].repeat(8, 1).to(dtype) + 0, weight.to(dtype)) == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_features_of_very_different_size_are_bounded_each_by_itself(sketching: CpuKernels, dtype: torch.dtype) -> None:
    weight = torch.randn(2000, 128) * torch.logspace(-6, 6, 2000)[torch.randperm(2000), None]
    x = torch.randn(40, 128)
    x[:, 7] *= 100  # one that takes the codes from all others
    check(sketching, x.to(dtype), weight.to(dtype))
    check(sketching, -weight[:30].abs().to(dtype), weight.abs().to(dtype))


def test_all_negative_outputs_have_a_largest_too(sketching: CpuKernels) -> None:
    weight = torch.rand(130, 64) + 0.5  # two panels and a part of one
    assert check(sketching, -torch.rand(9, 64) - 0.5, weight) == 0


def test_rows_of_which_too_much_may_be_the_largest_are_computed_whole(sketching: CpuKernels) -> None:
    weight, x = torch.randn(4000, 64), torch.randn(5, 64)
    x[1], x[3, 9] = 0, torch.nan
    assert check(sketching, x, weight) == 2
    assert check(sketching, x, weight[:1].repeat(4000, 1)) == 5


def test_a_sketch_that_tells_nothing_is_asked_only_for_so_long(sketching: CpuKernels) -> None:
    """All rows are alike but for the last bits, so nothing is ruled out."""
    weight = torch.randn(1, 64).repeat(3000, 1) * (1 + 1e-7 * torch.randn(3000, 1))
    layer = {"panels": sketching.pack_linear(weight, is_gated=False), "scales": None, "out_features": 3000}
    sketch, tally, x = (
        sketching.sketch_linear(weight, scales=None),
        torch.zeros(3, dtype=torch.int64),
        torch.randn(512, 64),
    )
    expected = sketching.find_largest(x, sketch=None, tally=None, **layer)
    told = []
    for _ in range(4):
        found = sketching.find_largest(x, sketch=sketch, tally=tally, **layer)
        assert all(map(torch.equal, found, expected))
        told.append(tally.tolist())
    assert told == [[512, 512, 0], [0, 0, 1], [0, 0, 1], [0, 0, 1]]


def test_weights_that_are_not_finite_are_looked_at_themselves(sketching: CpuKernels) -> None:
    weight, x = torch.randn(500, 64), torch.rand(4, 64) + 0.1
    weight[70, 3], weight[400, 8] = torch.inf, -torch.inf
    assert check(sketching, x, weight) == 0


def test_the_number_of_threads_changes_nothing(sketching: CpuKernels) -> None:
    weight, x = torch.randn(6000, 300), torch.randn(100, 300)
    found = []
    for num_threads in (1, 2, 3):
        torch.set_num_threads(num_threads)
        found += [search(sketching, x, weight, tally=tally)[:2] for tally in (None, torch.zeros(3, dtype=torch.int64))]
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


def test_other_variants_have_no_sketches(kernels: CpuKernels) -> None:
    assert (kernels.sketch_linear(torch.ones(1, 1), scales=None) is None) == (kernels.isa not in SKETCHING_ISAS)


def test_rows_too_long_for_32_bits_have_no_sketch(kernels: CpuKernels) -> None:
    assert kernels.sketch_linear(torch.ones(1, (1 << 16) + 1), scales=None) is None


def test_operands_are_checked() -> None:
    weight = torch.randn(70, 16)
    with pytest.raises(ValueError, match="weight must be bfloat16 or float32"):
        sketch_linear(weight.double())
    with pytest.raises(ValueError, match="scales must be"):
        sketch_linear(*quantize(weight)[:1], scales=torch.ones(3))
    sketch = sketch_linear(weight)
    if sketch is None:
        pytest.skip("this processor has no products of bytes, and no sketches")
    with pytest.raises(ValueError, match=r"x must be \[tokens, 16\]"):
        find_largest(torch.randn(2, 15), pack_linear(weight), sketch)
    with pytest.raises(ValueError, match="sketch must be int8"):
        find_largest(torch.randn(2, 16), pack_linear(torch.randn(300, 16)), sketch)
    with pytest.raises(ValueError, match="layer must be without gate"):
        find_largest(torch.randn(2, 16), pack_linear(weight, is_gated=True), sketch)
