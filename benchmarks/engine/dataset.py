"""Request lengths like those of the two datasets of the dissertation (5.6.1, figure 5.11).

The means are the figure's: ShareGPT's prompts are 8.4 times as long as Alpaca's and its outputs 5.8 times. The datasets
themselves are not used: lengths are lognormal, and their spreads are our choice, prompts of ShareGPT spread widest.
"""

from dataclasses import dataclass

from benchmarks.serve.workload import WorkloadSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Lognormal lengths in tokens: means, and the standard deviations of their logarithms."""

    name: str
    prompt_mean: float
    prompt_sigma: float
    output_mean: float
    output_sigma: float

    def workload(
        self,
        num_requests: int,
        *,
        seed: int,
        rate_per_s: float | None = None,
        shared_prefix_tokens: int = 0,
        n: int = 1,
    ) -> WorkloadSpec:
        return WorkloadSpec(
            num_requests=num_requests,
            rate_per_s=rate_per_s,
            seed=seed,
            prompt_mean=self.prompt_mean,
            prompt_sigma=self.prompt_sigma,
            output_mean=self.output_mean,
            output_sigma=self.output_sigma,
            shared_prefix_tokens=shared_prefix_tokens,
            n=n,
        )


ALPACA = Dataset(name="alpaca", prompt_mean=19.3, prompt_sigma=0.6, output_mean=58.5, output_sigma=0.9)
SHAREGPT = Dataset(name="sharegpt", prompt_mean=161.3, prompt_sigma=1.2, output_mean=338.0, output_sigma=0.9)
DATASETS = (ALPACA, SHAREGPT)
