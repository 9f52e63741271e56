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
    CoLocatedModels,
    GenerationOutcome,
    GenerationWorkload,
    simulate_as_far,
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
        model=np.zeros(count, np.int32),
        num_prompt_tokens=rng.integers(1, longest_prompt + 1, count).astype(np.int32),
        num_output_tokens=rng.integers(1, longest_output + 1, count).astype(np.int32),
        slo_s=np.full(count, slo_s),
        slos=(slo or Slo(),),
    )


def assert_equal(
    workload: GenerationWorkload, *groups: GenerationProfile, overhead_s: float = 0.0
) -> GenerationOutcome:
    return assert_shared(workload, *({0: group} for group in groups), overhead_s=overhead_s)


def assert_shared(workload: GenerationWorkload, *groups: CoLocatedModels, overhead_s: float = 0.0) -> GenerationOutcome:
    predicted = simulate_generation(workload, groups, overhead_s=overhead_s)
    happened = GenerationPlane(groups, answer_overhead_s=overhead_s).play(workload)
    assert predicted.group.tolist() == happened.group.tolist()
    assert predicted.ttft_s.tolist() == happened.ttft_s.tolist()
    assert predicted.e2e_s.tolist() == happened.e2e_s.tolist()
    assert predicted.num_steps.tolist() == happened.num_steps.tolist()
    assert predicted.num_preemptions.sum() == happened.num_preemptions[0]
    return predicted


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
    found = simulate_generation(workload, [{0: group} for group in groups])
    is_short = workload.num_prompt_tokens + workload.num_output_tokens <= 80
    assert (found.group >= 0).tolist() == is_short.tolist()
    assert 0 < found.is_met.sum() == is_short.sum() < len(is_short)


def test_requests_that_outgrow_the_memory_give_way_as_they_do_in_the_engine() -> None:
    workload = make_workload(3, count=60, rate=200.0, longest_prompt=30, longest_output=60)
    for num_stages in (1, 2):
        profile = make_profile(num_stages, num_blocks=40, block_size=4, max_num_seqs=16)
        assert assert_equal(workload, profile).num_preemptions.sum() > 10


@pytest.mark.parametrize("seed", range(12))
def test_chunks_that_find_no_room_in_a_long_pipeline_wait_as_they_do_in_the_engine(seed: int) -> None:
    workload = make_workload(seed, count=40, rate=150.0, longest_prompt=60, longest_output=20)
    limits = {"block_size": 4, "max_num_seqs": 8, "max_num_batched_tokens": 57}
    assert_equal(workload, make_profile(4, num_blocks=40, **limits))


def test_a_request_is_met_if_it_kept_every_bound() -> None:
    def met(slo: Slo, slo_s: float = np.inf) -> float:
        workload = make_workload(1, count=200, rate=4.0, longest_prompt=200, longest_output=50, slo=slo, slo_s=slo_s)
        return float(simulate_generation(workload, [{0: make_profile(num_blocks=1000)}], admission=False).is_met.mean())

    workload = make_workload(1, count=200, rate=4.0, longest_prompt=200, longest_output=50)
    found = simulate_generation(workload, [{0: make_profile(num_blocks=1000)}])
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
        "model": np.zeros(2, np.int32),
        "num_prompt_tokens": np.array([4, 4], np.int32),
        "num_output_tokens": np.array([2, 2], np.int32),
        "slo_s": np.full(2, np.inf),
        "slos": (Slo(),),
    }
    with pytest.raises(InvalidArgumentError, match=message):
        simulate_generation(GenerationWorkload(**{**fields, **change}), [{0: make_profile(num_blocks=10)}])


CHAT, CODE, BERT, LARGE = range(4)


def make_shared_workload(
    seed: int, *, count: int, rate: float, slo: Slo, slo_s: float, pass_slo_s: float
) -> GenerationWorkload:
    """Requests for two models that generate and two that answer in one pass."""
    rng = np.random.default_rng(seed)
    model = rng.integers(0, 4, count).astype(np.int32)
    generates = model <= CODE
    return GenerationWorkload(
        arrival_s=np.cumsum(rng.gamma(0.25, 4 / rate, count)),
        model=model,
        num_prompt_tokens=np.where(generates, rng.integers(1, 61, count), 0).astype(np.int32),
        num_output_tokens=np.where(generates, rng.integers(1, 21, count), 0).astype(np.int32),
        slo_s=np.where(generates, slo_s, pass_slo_s),
        slos=(slo, slo, Slo(), Slo()),
    )


def make_co_located(num_stages: int, models: set[int], *, num_blocks: int, speed: float = 1.0) -> CoLocatedModels:
    limits = {"num_blocks": num_blocks, "block_size": 4, "max_num_seqs": 8, "max_num_batched_tokens": 57}
    share = [2.0 * (stage + 1) / (num_stages * (num_stages + 1)) for stage in range(num_stages)]
    everything = {
        CHAT: make_profile(num_stages, speed=speed, **limits),
        CODE: make_profile(num_stages, speed=1.9 * speed, **limits),
        BERT: tuple(0.031 * part / speed for part in share),
        LARGE: tuple(0.117 * part / speed for part in share),
    }
    return {number: everything[number] for number in sorted(models)}


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10_000),
    num_stages=st.sampled_from([1, 1, 2, 3]),
    models=st.sets(st.sampled_from([CHAT, CODE, BERT, LARGE]), min_size=2),
    num_blocks=st.sampled_from([25, 60, 400]),
    rate=st.sampled_from([4.0, 15.0, 80.0]),
    slo=st.sampled_from([Slo(), Slo(ttft_s=0.4), Slo(tpot_s=0.05)]),
    pass_slo_s=st.sampled_from([0.2, 0.6, np.inf]),
    overhead_s=st.sampled_from([0.0, 0.03]),
)
def test_models_of_one_group_take_turns_as_they_do_in_the_workers_line(
    seed: int,
    num_stages: int,
    models: set[int],
    num_blocks: int,
    rate: float,
    slo: Slo,
    pass_slo_s: float,
    overhead_s: float,
) -> None:
    workload = make_shared_workload(seed, count=60, rate=rate, slo=slo, slo_s=np.inf, pass_slo_s=pass_slo_s)
    assert_shared(workload, make_co_located(num_stages, models, num_blocks=num_blocks), overhead_s=overhead_s)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10_000),
    groups=st.lists(
        st.tuples(st.sampled_from([1, 1, 2]), st.sets(st.sampled_from([CHAT, CODE, BERT, LARGE]), min_size=1)),
        min_size=2,
        max_size=4,
    ),
    rate=st.sampled_from([10.0, 40.0, 150.0]),
    slo=st.sampled_from([Slo(), Slo(ttft_s=0.25), Slo(ttft_s=0.5, tpot_s=0.06)]),
    slo_s=st.sampled_from([1.0, np.inf]),
    pass_slo_s=st.sampled_from([0.25, 0.8, np.inf]),
    overhead_s=st.sampled_from([0.0, 0.03]),
)
def test_requests_go_to_shared_groups_as_the_router_sends_them(
    seed: int,
    groups: list[tuple[int, set[int]]],
    rate: float,
    slo: Slo,
    slo_s: float,
    pass_slo_s: float,
    overhead_s: float,
) -> None:
    workload = make_shared_workload(seed, count=80, rate=rate, slo=slo, slo_s=slo_s, pass_slo_s=pass_slo_s)
    shared = [
        make_co_located(pp, models, num_blocks=60, speed=1 + 0.3 * number) for number, (pp, models) in enumerate(groups)
    ]
    assert_shared(workload, *shared, overhead_s=overhead_s)


def constant_profile(step_s: float, *, num_stages: int = 1) -> GenerationProfile:
    """Every step takes as long, whatever it computes."""
    step = LatencyModel(
        base_s=step_s, per_prefill_token_s=0, per_prefill_pair_s=0, per_decode_s=0, per_context_token_s=0
    )
    return GenerationProfile(
        latency=step, stage_latencies=(step.part(1 / num_stages),) * num_stages, num_blocks=100, max_num_seqs=4
    )


def rows(*requests: tuple[float, int, int], slo_s: float = np.inf) -> GenerationWorkload:
    """Arrival, model and output tokens of each; 0 tokens for one pass. Three models."""
    arrival_s, model, output = zip(*requests, strict=True)
    return GenerationWorkload(
        arrival_s=np.array(arrival_s),
        model=np.array(model, np.int32),
        num_prompt_tokens=np.array([min(tokens, 1) for tokens in output], np.int32),
        num_output_tokens=np.array(output, np.int32),
        slo_s=np.full(len(output), slo_s),
        slos=(Slo(),) * 3,
    )


def test_two_models_that_generate_step_in_turns() -> None:
    found = assert_shared(rows((0.0, 0, 3), (0.5, 1, 2)), {0: constant_profile(1.0), 1: constant_profile(2.0)})
    # Model 0 computes in [0, 1], [3, 4] and [6, 7], model 1 in [1, 3] and [4, 6].
    assert found.ttft_s.tolist() == [1.0, 2.5]
    assert found.e2e_s.tolist() == [7.0, 5.5]
    assert found.num_steps.tolist() == [5]
    assert found.busy_s.tolist() == [7.0]


def test_one_pass_goes_before_a_step_that_was_asked_for_later() -> None:
    found = assert_shared(rows((0.0, 0, 3), (0.5, 2, 0), (0.75, 2, 0)), {0: constant_profile(1.0), 2: (0.25,)})
    # The second step is asked for at 1, when both requests are in line; the third at 2.5, when nobody is.
    assert found.e2e_s.tolist() == [3.5, 0.75, 0.75]
    assert found.ttft_s.tolist() == [1.0, 0.75, 0.75]


def test_a_request_that_steps_have_held_up_too_long_is_given_up() -> None:
    workload = rows((0.0, 0, 4), (0.5, 2, 0), (1.125, 2, 0))
    workload.slo_s[2] = 1.3
    found = assert_shared(workload, {0: constant_profile(1.0), 2: (0.25,)})
    # The router predicts 0.25 s and one step for the third. Yet at 1 a step was asked for, ahead of which the second
    # request went; so the third could only begin at 2.25.
    assert found.group.tolist() == [0, 0, -1]
    assert found.e2e_s.tolist() == [4.25, 0.75, np.inf]
    assert found.is_met.tolist() == [True, True, False]


def test_stages_of_a_pipeline_hold_batches_of_several_models() -> None:
    found = assert_shared(rows((0.0, 0, 1), (0.25, 2, 0)), {0: constant_profile(2.0, num_stages=2), 2: (0.5, 0.5)})
    # The batch leaves the first stage at 1, which the request then has until 1.5; the second one is free at 2.
    assert found.e2e_s.tolist() == [2.0, 2.25]


def test_what_misses_too_much_is_given_up_early() -> None:
    workload = make_shared_workload(3, count=400, rate=200.0, slo=Slo(ttft_s=0.3), slo_s=np.inf, pass_slo_s=0.3)
    co_located = [make_co_located(1, {CHAT, BERT, LARGE}, num_blocks=60)]
    whole = simulate_generation(workload, co_located)
    bounds = np.array([100, 400])
    misses = np.array([(~whole.is_met[:100]).sum(), (~whole.is_met).sum()])
    kept = simulate_as_far(workload, co_located, bounds=bounds, limits=misses)
    assert kept is not None
    assert kept.is_met.tolist() == whole.is_met.tolist()
    missed = np.zeros(2, np.int64)
    assert simulate_as_far(workload, co_located, bounds=bounds, limits=np.array([5, 400]), missed=missed) is None
    assert 5 < missed[0] <= misses[0]
    assert missed[1] == missed[0]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("slo", [Slo(tpot_s=0.03), Slo(ttft_s=0.8, tpot_s=0.04)])
def test_nobody_who_was_admitted_has_slower_tokens_than_promised_for_those_who_came_later(seed: int, slo: Slo) -> None:
    workload = make_workload(seed, count=150, rate=12.0, longest_prompt=400, longest_output=60, slo=slo)
    found = assert_equal(workload, make_profile(num_blocks=4000, max_num_seqs=64, max_num_batched_tokens=128))
    admitted = found.group >= 0
    assert 30 < admitted.sum() < 140
    assert found.is_met[admitted].all()
