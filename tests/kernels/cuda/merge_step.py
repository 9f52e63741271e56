"""Partial results with random contents, and what they must give together."""

from dataclasses import dataclass

import torch
from torch import Tensor

from headway.kernels.cuda.kernels import CudaKernels
from tests.kernels.cuda.cases import blank_result
from tests.kernels.test_merge_partials import merged_exactly, random_partials


@dataclass(frozen=True)
class MergeStep:
    """[shards, rows, heads, head_dim + 1]; a third of them are empty, and hold NaN but for the logarithm.

    The first row has none, and of the second the last shard has nearly all.
    """

    partials: Tensor

    @classmethod
    def of(cls, num_shards: int, *, head_dim: int) -> "MergeStep":
        partials = random_partials(num_shards, num_tokens=3, num_heads=2, head_dim=head_dim)
        partials[-1, 1, :, :-1], partials[-1, 1, :, -1] = 1, 300
        return cls(partials)

    def run_with(self, kernels: CudaKernels) -> tuple[Tensor, Tensor]:
        out, lse = blank_result(self.partials[0, ..., :-1])
        kernels.merge_partials(self.partials, starts=None, out=out, lse=lse)
        return out, lse

    def check(self, *results: Tensor) -> None:
        out, lse = results
        torch.testing.assert_close(out.double(), merged_exactly(self.partials), rtol=1e-5, atol=1e-6)
        expected = self.partials[..., -1].double().logsumexp(dim=0)
        torch.testing.assert_close(lse.double(), expected, rtol=1e-5, atol=1e-5)
