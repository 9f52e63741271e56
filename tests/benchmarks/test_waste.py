"""Contiguous reservations in the place of paging, what they waste, and what that costs in request rate."""

from dataclasses import replace

import pytest

from benchmarks.engine.clock import VirtualClock
from benchmarks.engine.dataset import ALPACA, SHAREGPT, Dataset
from benchmarks.engine.service import as_group, serve
from benchmarks.serve.workload import Request, make_workload
from benchmarks.waste.measurement import simulation, use_at_full_load
from benchmarks.waste.policy import Policy
from headway.core.latency import LatencyModel
from headway.engine.config import EngineConfig
from headway.engine.engine import Engine

LATENCY = LatencyModel(
    base_s=0.01, per_prefill_token_s=1e-5, per_prefill_pair_s=0.0, per_decode_s=1e-4, per_context_token_s=0.0
)
CONFIG = EngineConfig(
    num_blocks=512, max_model_len=2048, max_num_seqs=256, max_num_batched_tokens=512, enable_prefix_cache=False
)
BASELINES = tuple(policy for policy in Policy if policy is not Policy.PAGED)


def make_engine(policy: Policy, clock: VirtualClock) -> Engine:
    return simulation(policy, config=CONFIG, latency=LATENCY).engine(clock)


@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize("dataset", [ALPACA, SHAREGPT])
def test_every_request_is_served_and_all_memory_comes_back(policy: Policy, dataset: Dataset) -> None:
    clock = VirtualClock()
    engine = make_engine(policy, clock)
    requests = make_workload(dataset.workload(60, seed=2, rate_per_s=4.0))
    assert len(serve(engine, requests, clock=clock)) == 60
    engine.check_integrity()
    assert engine.stats().num_used_blocks == 0


@pytest.mark.parametrize(("policy", "num_blocks"), [("oracle", 8), ("power of two", 16), ("max", 128)])
def test_reservations_are_powers_of_two_of_what_the_policy_knows(policy: str, num_blocks: int) -> None:
    engine = make_engine(Policy(policy), VirtualClock())
    engine.submit_group(as_group(Request(0.0, (11,) * 60, 65), "a"))  # 60 + 64 tokens; rounded up, 60 + 128
    engine.step()
    assert engine.stats().num_used_blocks == num_blocks


def test_max_runs_as_many_as_the_longest_sequence_fits() -> None:
    engine = make_engine(Policy.MAX, VirtualClock())
    for index in range(10):
        engine.submit_group(as_group(Request(0.0, (11,) * 20, 30), str(index)))
    engine.step()
    engine.check_integrity()
    assert engine.stats().num_running == CONFIG.num_blocks * 16 // CONFIG.max_model_len == 4


def test_cancelled_reservations_come_back() -> None:
    engine = make_engine(Policy.ORACLE, VirtualClock())
    engine.submit_group(as_group(Request(0.0, (11,) * 20, 30), "a"))
    engine.step()
    engine.cancel("a")
    engine.check_integrity()
    assert engine.stats().num_used_blocks == 0


def test_paging_wastes_little_and_baselines_in_the_known_order() -> None:
    uses = {
        policy: use_at_full_load(simulation(policy, config=CONFIG, latency=LATENCY), SHAREGPT, num_requests=80)
        for policy in Policy
    }
    for use in uses.values():
        assert use.tokens + use.reserved + use.internal + use.external == pytest.approx(1)
        assert min(use.tokens, use.reserved, use.internal, use.external) >= 0
    assert uses[Policy.PAGED].waste < 0.04
    tokens = [uses[policy].tokens for policy in (Policy.PAGED, *BASELINES)]
    assert tokens == sorted(tokens, reverse=True)


def test_paging_sustains_a_higher_rate_than_max() -> None:
    rates = [
        simulation(policy, config=CONFIG, latency=LATENCY).sustained_rate_per_s(SHAREGPT, bound_s=0.03, num_lifetimes=8)
        for policy in (Policy.PAGED, Policy.MAX)
    ]
    assert rates[0] > 2 * rates[1]


def test_normalised_latency_of_a_lone_request_is_that_of_its_steps() -> None:
    even = replace(ALPACA, prompt_mean=20, prompt_sigma=0.0, output_mean=10, output_sigma=0.0)
    setting = simulation(Policy.PAGED, config=CONFIG, latency=LATENCY)
    service = setting.serve(even, rate_per_s=1e-3, num_lifetimes=1)
    assert service.normalised_latency_s == pytest.approx((10 * 0.01 + 20e-5 + 9e-4) / 10)
