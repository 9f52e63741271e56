"""Workloads: the same from the same seed, with the lengths and arrivals that they promise."""

from itertools import pairwise
from statistics import fmean, median

import pytest

from benchmarks.serve.workload import MAX_TOKENS, MIN_TOKENS, WorkloadSpec, make_workload


def prompt_lengths(spec: WorkloadSpec) -> list[int]:
    return [len(request.prompt_token_ids) for request in make_workload(spec)]


def test_same_seed_gives_the_same_requests() -> None:
    spec = WorkloadSpec(num_requests=20, rate_per_s=3.0, seed=5, output_sigma=0.9)
    assert make_workload(spec) == make_workload(spec)


def test_another_seed_gives_other_prompts_and_arrivals() -> None:
    first, second = (make_workload(WorkloadSpec(num_requests=5, rate_per_s=1.0, seed=seed)) for seed in (1, 2))
    assert first[0].prompt_token_ids != second[0].prompt_token_ids
    assert first[1].arrival_s != second[1].arrival_s


@pytest.mark.parametrize("num_requests", [64, 2000])
def test_mean_lengths_are_the_ones_asked_for(num_requests: int) -> None:
    requests = make_workload(WorkloadSpec(num_requests=num_requests, output_sigma=0.9))
    assert fmean(len(request.prompt_token_ids) for request in requests) == pytest.approx(160, rel=0.08)
    assert fmean(request.num_output_tokens for request in requests) == pytest.approx(96, rel=0.08)


def test_prompt_lengths_are_skewed_and_bounded() -> None:
    lengths = prompt_lengths(WorkloadSpec(num_requests=2000))
    assert median(lengths) == pytest.approx(160 / 2.718 ** (0.9**2 / 2), rel=0.05)
    assert min(lengths) >= MIN_TOKENS
    assert max(lengths) <= MAX_TOKENS


def test_zero_sigma_makes_all_outputs_equal() -> None:
    requests = make_workload(WorkloadSpec(num_requests=50, output_mean=96))
    assert {request.num_output_tokens for request in requests} == {96}


def test_arrivals_are_poisson_at_the_rate() -> None:
    arrivals = [request.arrival_s for request in make_workload(WorkloadSpec(num_requests=4000, rate_per_s=8.0))]
    gaps = [later - earlier for earlier, later in pairwise(arrivals)]
    assert arrivals[0] == 0
    assert fmean(gaps) == pytest.approx(1 / 8, rel=0.05)
    assert fmean(gap**2 for gap in gaps) == pytest.approx(2 / 64, rel=0.1)


def test_a_burst_arrives_at_once() -> None:
    assert {request.arrival_s for request in make_workload(WorkloadSpec(num_requests=8))} == {0.0}


def test_a_shared_prefix_opens_every_prompt_and_the_rest_differs() -> None:
    requests = make_workload(WorkloadSpec(num_requests=10, shared_prefix_tokens=40, n=3))
    assert len({request.prompt_token_ids[:40] for request in requests}) == 1
    assert len({request.prompt_token_ids[40:] for request in requests}) == 10
    assert {request.n for request in requests} == {3}


def test_prompt_tokens_lie_in_the_vocabulary() -> None:
    requests = make_workload(WorkloadSpec(num_requests=30, vocab_size=50))
    assert {token_id for request in requests for token_id in request.prompt_token_ids} <= set(range(10, 50))
