"""The compiled simulation of generating engines against router and engines on virtual clocks: equal to the last bit."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.errors import InvalidArgumentError
from headway.core.generation import GenerationProfile
from headway.core.latency import LatencyModel
from headway.core.slo import Slo
from headway.planner.placement.simulator.generation import (
    GenerationOutcome,
    GenerationWorkload,
    simulate_generation,
)
from tests.planner.placement.generation_plane import GenerationPlane

LATENCY = LatencyModel(
    base_s=0.0113, per_prefill_token_s=3e-4, per_prefill_pair_s=1.7e-7, per_decode_s=1.3e-3, per_context_token_s=3e-6
)


def make_profile(num_stages: int = 1, *, speed: float = 1.0, **limits: Any) -> GenerationProfile:
    latency = LATENCY.part(1 / speed)
    return GenerationProfile(latency=latency, stage_latencies=(latency.part(1 / num_stages),) * num_stages, **limits)


def make_workload(
    seed: int,
    *,
    count: int,
    rate: float,
    longest_prompt: int,
    longest_output: int,
    slo: Slo | None = None,
    slo_s: float = np.inf,
) -> GenerationWorkload:
    rng = np.random.default_rng(seed)
    return GenerationWorkload(
        arrival_s=np.cumsum(rng.gamma(0.25, 4 / rate, count)),
        num_prompt_tokens=rng.integers(1, longest_prompt + 1, count).astype(np.int32),
        num_output_tokens=rng.integers(1, longest_output + 1, count).astype(np.int32),
        slo_s=np.full(count, slo_s),
        slo=slo or Slo(),
    )


def assert_equal(
    workload: GenerationWorkload, *groups: GenerationProfile, overhead_s: float = 0.0
) -> GenerationOutcome:
    foreseen = simulate_generation(workload, groups, overhead_s=overhead_s)
    happened = GenerationPlane(groups, answer_overhead_s=overhead_s).play(workload)
    assert foreseen.group.tolist() == happened.group.tolist()
    assert foreseen.ttft_s.tolist() == happened.ttft_s.tolist()
    assert foreseen.e2e_s.tolist() == happened.e2e_s.tolist()
    assert foreseen.num_steps.tolist() == happened.num_steps.tolist()
    assert foreseen.num_preemptions.sum() == happened.num_preemptions[0]
    return foreseen


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10_000),
    num_stages=st.sampled_from([1, 1, 2, 4]),
    num_blocks=st.sampled_from([20, 33, 64, 400]),
    max_num_seqs=st.sampled_from([1, 3, 8, 32]),
    budget=st.sampled_from([32, 57, 256]),
    prefill=st.sampled_from([None, 7, 64]),
    watermark=st.sampled_from([0.0, 0.01, 0.2]),
    rate=st.sampled_from([1.0, 8.0, 100.0]),
)
def test_each_request_has_its_tokens_when_the_engine_would_give_them(
    seed: int,
    num_stages: int,
    num_blocks: int,
    max_num_seqs: int,
    budget: int,
    prefill: int | None,
    watermark: float,
    rate: float,
) -> None:
    workload = make_workload(seed, count=25, rate=rate, longest_prompt=60, longest_output=20)
    profile = make_profile(
        num_stages,
        num_blocks=num_blocks,
        block_size=4,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
        max_num_prefill_tokens=prefill,
        watermark=watermark,
    )
    assert_equal(workload, profile)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10_000),
    shapes=st.lists(st.sampled_from([(1, 1.0), (1, 1.7), (2, 1.0), (4, 2.5)]), min_size=2, max_size=4),
    num_blocks=st.sampled_from([40, 400]),
    slo=st.sampled_from([Slo(), Slo(ttft_s=0.12), Slo(tpot_s=0.025), Slo(ttft_s=0.4, tpot_s=0.04)]),
    slo_s=st.sampled_from([0.6, 3.0, np.inf]),
    rate=st.sampled_from([8.0, 40.0, 200.0]),
    overhead_s=st.sampled_from([0.0, 0.03]),
)
def test_requests_go_where_the_router_sends_them_and_are_refused_when_it_refuses_them(
    seed: int, shapes: list[tuple[int, float]], num_blocks: int, slo: Slo, slo_s: float, rate: float, overhead_s: float
) -> None:
    workload = make_workload(seed, count=60, rate=rate, longest_prompt=60, longest_output=20, slo=slo, slo_s=slo_s)
    groups = [
        make_profile(pp, speed=speed, num_blocks=num_blocks, block_size=4, max_num_seqs=8) for pp, speed in shapes
    ]
    assert_equal(workload, *groups, overhead_s=overhead_s)


def test_bursts_are_refused_and_shared_out() -> None:
    workload = make_workload(5, count=300, rate=60.0, longest_prompt=400, longest_output=60, slo=Slo(ttft_s=0.5))
    found = assert_equal(workload, make_profile(num_blocks=500), make_profile(2, speed=2.0, num_blocks=500))
    assert {-1, 0, 1} == set(found.group.tolist())
    assert found.is_met.sum() <= (found.group >= 0).sum()


def test_requests_that_are_longer_than_any_group_takes_are_refused_as_the_gateway_does() -> None:
    workload = make_workload(2, count=40, rate=4.0, longest_prompt=90, longest_output=20)
    groups = [make_profile(num_blocks=100, max_model_len=80), make_profile(num_blocks=5, max_num_seqs=2)]
    found = simulate_generation(workload, groups)
    is_short = workload.num_prompt_tokens + workload.num_output_tokens <= 80
    assert (found.group >= 0).tolist() == is_short.tolist()
    assert 0 < found.is_met.sum() == is_short.sum() < len(is_short)


def test_requests_that_outgrow_the_memory_give_way_as_they_do_in_the_engine() -> None:
    workload = make_workload(3, count=60, rate=200.0, longest_prompt=30, longest_output=60)
    for num_stages in (1, 2):
        profile = make_profile(num_stages, num_blocks=40, block_size=4, max_num_seqs=16)
        assert assert_equal(workload, profile).num_preemptions.sum() > 10


def test_a_request_is_met_if_it_kept_every_bound() -> None:
    def met(slo: Slo, slo_s: float = np.inf) -> float:
        workload = make_workload(1, count=200, rate=4.0, longest_prompt=200, longest_output=50, slo=slo, slo_s=slo_s)
        return float(simulate_generation(workload, [make_profile(num_blocks=1000)], admission=False).is_met.mean())

    workload = make_workload(1, count=200, rate=4.0, longest_prompt=200, longest_output=50)
    found = simulate_generation(workload, [make_profile(num_blocks=1000)])
    assert found.is_met.all()
    bound_s = float(np.median(found.ttft_s))
    assert met(Slo(ttft_s=bound_s)) == pytest.approx(0.5, abs=0.01)
    single = workload.num_output_tokens == 1
    assert np.isnan(found.tpot_s[single]).all()
    assert met(Slo(tpot_s=1e-9)) == pytest.approx(single.mean())
    assert met(Slo(ttft_s=bound_s), 1e-9) == 0.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arrival_s": np.array([1.0, 0.5])}, "Request 1 of the workload comes before"),
        ({"arrival_s": np.array([-1.0, 0.5])}, "Request 0 of the workload arrives at no time"),
        ({"num_output_tokens": np.array([1, 0], np.int32)}, "Request 1 of the workload has no prompt or no output"),
        ({"num_prompt_tokens": np.array([1], np.int32)}, "2 arrivals, 1 prompts"),
    ],
)
def test_a_workload_that_cannot_be_served_is_refused_by_its_request(change: dict, message: str) -> None:
    fields = {
        "arrival_s": np.array([0.0, 1.0]),
        "num_prompt_tokens": np.array([4, 4], np.int32),
        "num_output_tokens": np.array([2, 2], np.int32),
        "slo_s": np.full(2, np.inf),
        "slo": Slo(),
    }
    with pytest.raises(InvalidArgumentError, match=message):
        simulate_generation(GenerationWorkload(**{**fields, **change}), [make_profile(num_blocks=10)])
