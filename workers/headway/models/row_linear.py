"""A linear layer whose inputs are split over ranks."""

import torch
from torch import Tensor

from headway.models.layout import TensorAxis
from headway.models.linear import Linear


class RowLinear(Linear):
    """`x @ weight.T + bias`, where each rank has some of x's columns: the ranks' products add up.

    The first rank alone adds the bias and the residual. The output is complete, and the same, on every rank.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        bias: bool,
        dtype: torch.dtype,
        device: torch.device,
        axis: TensorAxis,
        site: str,
        weight: Tensor | None = None,
    ) -> None:
        """`in_features`: of this rank. `site`: see `TensorAxis.all_reduce`. `weight`: see `Linear`."""
        super().__init__(
            in_features, out_features, bias=bias and axis.rank == 0, dtype=dtype, device=device, weight=weight
        )
        self._axis = axis
        self._site = site

    def __call__(self, x: Tensor, *, residual: Tensor | None = None) -> Tensor:
        """x [T, in] -> a new [T, out]; `residual` [T, out] is added if given."""
        if self._axis.size == 1:
            return self._product(x, residual)
        summand = self._product(x, residual if self._axis.rank == 0 else None)
        return self._axis.all_reduce(summand, site=self._site)

    def summand(self, x: Tensor) -> Tensor:
        """Returns this rank's product alone, for an owner that adds up more than that."""
        return self._product(x, None)
