"""Rows of a table."""

import pytest
import torch

from headway.kernels import embed, reference
from headway.kernels.cpu import CpuKernels


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize(("num_tokens", "width"), [(0, 8), (1, 1), (70, 33), (200, 512)])
def test_equals_the_reference(
    kernels: CpuKernels, num_tokens: int, width: int, index_dtype: torch.dtype, dtype: torch.dtype
) -> None:
    table = torch.randn(50, width).to(dtype)
    numbers = torch.randint(0, 50, (num_tokens,), dtype=index_dtype)
    assert torch.equal(kernels.embed(numbers, table=table), reference.embed(numbers, table=table))


def test_rows_may_lie_apart(kernels: CpuKernels) -> None:
    table = torch.randn(20, 48)[:, :17]
    assert torch.equal(kernels.embed(torch.tensor([3, 19, 0]), table=table), table[[3, 19, 0]])


@pytest.mark.parametrize("number", [-1, 20, 2**40])
def test_a_number_of_no_row_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match="not of a row of table"):
        embed(torch.tensor([0, number]), torch.randn(20, 4))


@pytest.mark.parametrize(
    ("numbers", "table", "name"),
    [
        (torch.zeros(3), torch.zeros(4, 4), "numbers"),
        (torch.zeros(6, dtype=torch.int64)[::2], torch.zeros(4, 4), "numbers"),
        (torch.zeros(3, dtype=torch.int64), torch.zeros(4), "table"),
        (torch.zeros(3, dtype=torch.int64), torch.zeros(4, 4).t()[:, :2], "table"),
        (torch.zeros(3, dtype=torch.int64), torch.zeros(4, 4, dtype=torch.float64), "table"),
    ],
)
def test_operands_are_checked(numbers: torch.Tensor, table: torch.Tensor, name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be"):
        embed(numbers, table)
