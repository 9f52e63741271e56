"""Norms and draws with random contents, and what they must give."""

from dataclasses import dataclass

import torch
from torch import Tensor

from headway.core.request import SamplingParams
from headway.kernels import reference
from headway.kernels.cuda.kernels import CudaKernels
from headway.runner.draw import draw_tokens, token_weights, uniforms
from headway.runner.truncation import truncate

CPU = torch.device("cpu")


@dataclass(frozen=True)
class NormStep:
    x: Tensor
    weight: Tensor

    @classmethod
    def of(cls, width: int, dtype: torch.dtype, device: torch.device = CPU) -> "NormStep":
        x = torch.randn(2, width, generator=torch.Generator().manual_seed(0))
        return cls(x.to(device, dtype), torch.ones(width, dtype=dtype, device=device))

    def run_with(self, kernels: CudaKernels) -> tuple[Tensor, ...]:
        out = torch.empty_like(self.x)
        kernels.rms_norm(self.x, residual=None, weight=self.weight, out=out, eps=1e-5)
        return (out,)

    def check(self, *results: Tensor) -> None:
        expected = reference.rms_norm(self.x.double(), weight=self.weight.double(), eps=1e-5)
        unit = max(torch.finfo(self.x.dtype).eps, 1e-5)
        torch.testing.assert_close(results[0].double(), expected, rtol=unit, atol=unit)


@dataclass(frozen=True)
class SampleStep:
    logits: Tensor
    params: list[SamplingParams]
    device: torch.device = CPU

    @classmethod
    def of(cls, vocab_size: int, params: list[SamplingParams], device: torch.device = CPU) -> "SampleStep":
        return cls(torch.randn(len(params), vocab_size, generator=torch.Generator().manual_seed(0)), params, device)

    def run_with(self, kernels: CudaKernels) -> tuple[Tensor, ...]:
        out = torch.empty(len(self.params), dtype=torch.int64, device=self.device)
        columns = {name: column.to(self.device) for name, column in columns_of(self.params, self.positions).items()}
        kernels.sample_tokens(self.logits.to(self.device), **columns, out=out)
        return (out,)

    def check(self, *results: Tensor) -> None:
        assert torch.equal(results[0].cpu(), sampled_on_the_cpu(self.logits, self.params, self.positions))

    @property
    def positions(self) -> list[int]:
        return list(range(len(self.params)))


def columns_of(params: list[SamplingParams], positions: list[int]) -> dict[str, Tensor]:
    return {
        "seeds": torch.tensor([p.seed for p in params]),
        "positions": torch.tensor(positions),
        "temperatures": torch.tensor([p.temperature for p in params]),
        "top_k": torch.tensor([p.top_k for p in params]),
        "top_p": torch.tensor([p.top_p for p in params], dtype=torch.float64),
        "min_p": torch.tensor([p.min_p for p in params]),
    }


def sampled_on_the_cpu(logits: Tensor, params: list[SamplingParams], positions: list[int]) -> Tensor:
    """What the worker's sampler makes of the same rows."""
    weights = token_weights(logits, torch.tensor([p.temperature for p in params]))
    truncate(weights, params, vocab_size=logits.shape[1])
    return draw_tokens(weights, torch.from_numpy(uniforms([p.seed for p in params], positions)))
