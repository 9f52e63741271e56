"""Simulates normalised latency by block size, with step times scaled from one measured latency model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarks.ablation.kernel import BlockCosts
from benchmarks.engine.dataset import DATASETS, SHAREGPT, Dataset
from benchmarks.engine.simulation import Service, Simulation
from headway.core.latency import LatencyModel
from headway.engine.config import EngineConfig, PreemptionMode

BOUND = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A pool of so many slots, and the latency model that was measured at one block size.

    Attributes:
        attention_s: of a step at that block size, as `BlockCosts` has it.
        swapped_tokens: that the costs of swapping were measured with.
    """

    latency: LatencyModel
    attention_s: float
    num_slots: int
    max_model_len: int
    swapped_tokens: int
    num_lifetimes: float

    def simulation(self, costs: BlockCosts, *, preemption: PreemptionMode = "recompute") -> Simulation:
        """Makes an engine of that block size. The terms of attention grow and shrink with the kernel's time."""
        slowdown = costs.attention_s / self.attention_s
        num_blocks = self.num_slots // costs.block_size
        return Simulation(
            config=EngineConfig(
                num_blocks=num_blocks,
                block_size=costs.block_size,
                max_model_len=self.max_model_len,
                max_num_seqs=256,
                max_num_batched_tokens=512,
                enable_prefix_cache=False,
                num_host_blocks=num_blocks if preemption == "swap" else 0,
                preemption=preemption,
            ),
            latency=replace(
                self.latency,
                per_context_token_s=self.latency.per_context_token_s * slowdown,
                per_prefill_pair_s=self.latency.per_prefill_pair_s * slowdown,
            ),
            copy_block_s=costs.copy_block_s(self.swapped_tokens),
        )

    def sustained_rate_per_s(self, costs: BlockCosts, dataset: Dataset) -> float:
        """The request rate at which a token takes `BOUND` times as long as alone."""
        setting = self.simulation(costs)
        return setting.sustained_rate_per_s(
            dataset, bound_s=BOUND * setting.token_s(), num_lifetimes=self.num_lifetimes
        )

    def serve(
        self, costs: BlockCosts, dataset: Dataset, rate_per_s: float, *, preemption: PreemptionMode = "recompute"
    ) -> Service:
        setting = self.simulation(costs, preemption=preemption)
        return setting.serve(dataset, rate_per_s=rate_per_s, num_lifetimes=self.num_lifetimes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result for one block size.

    Attributes:
        latency_s: mean normalised latency by dataset, at a rate that is the same for all block sizes.
        recompute, swap: ShareGPT in a small pool, by the way in which sequences give way.
    """

    costs: BlockCosts
    latency_s: dict[str, float]
    recompute: Service
    swap: Service


def compare_block_sizes(
    costs: Sequence[BlockCosts], *, reference: BlockCosts, roomy: Bench, tight: Bench
) -> Iterator[Finding]:
    """Serves at fixed rates, those that the reference size sustains.

    Args:
        roomy, tight: engines for the first comparison and for the one of preemptions.
    """
    rates_per_s = {dataset.name: roomy.sustained_rate_per_s(reference, dataset) for dataset in DATASETS}
    tight_rate_per_s = tight.sustained_rate_per_s(reference, SHAREGPT)
    for each in costs:
        yield Finding(
            costs=each,
            latency_s={
                dataset.name: roomy.serve(each, dataset, rates_per_s[dataset.name]).normalised_latency_s
                for dataset in DATASETS
            },
            recompute=tight.serve(each, SHAREGPT, tight_rate_per_s, preemption="recompute"),
            swap=tight.serve(each, SHAREGPT, tight_rate_per_s, preemption="swap"),
        )
