"""Predicted times: exact on an idle group, and growing with what is ahead."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.latency import LatencyModel
from headway.router.candidate_group import NOMINAL, CandidateGroup
from headway.router.request import RoutingRequest

LATENCY = LatencyModel(
    base_s=0.01, per_prefill_token_s=0.001, per_prefill_pair_s=1e-6, per_decode_s=0.002, per_context_token_s=1e-6
)
IDLE = CandidateGroup(
    worker_id="worker-0",
    group_id="group-0",
    endpoint="127.0.0.1:1",
    latency=LATENCY,
    num_sequences=0,
    num_pending_tokens=0,
    num_context_tokens=0,
    num_cache_tokens=100_000,
    max_num_seqs=8,
    max_num_batched_tokens=256,
    num_cached_tokens=0,
    mean_output_tokens=100.0,
    num_places=64,
    last_chosen=0,
)
REQUEST = RoutingRequest(
    request_id="a", model="llama", gateway_id="gateway-0", num_prompt_tokens=600, max_output_tokens=50
)


def test_an_idle_group_takes_the_latency_models_own_prefill_time() -> None:
    assert IDLE.wait_s(REQUEST) == 0.0
    assert IDLE.ttft_s(REQUEST) == pytest.approx(LATENCY.prefill_s(600, chunk_tokens=256))


def test_an_idle_group_decodes_one_sequence_at_the_latency_models_speed() -> None:
    assert IDLE.tpot_s(REQUEST) == pytest.approx(LATENCY.decode_s(num_decodes=1, context_tokens=600))


def test_cached_tokens_are_not_prefilled_but_attended_to() -> None:
    cached = replace(IDLE, num_cached_tokens=500)
    step_s = LATENCY.step_s(prefill_tokens=100, prefill_context=500, num_decodes=0, context_tokens=0)
    assert cached.prefill_s(REQUEST) == pytest.approx(step_s)


def test_a_prompt_that_is_wholly_cached_still_computes_its_last_token() -> None:
    assert replace(IDLE, num_cached_tokens=600).num_uncached_tokens(REQUEST) == 1


def test_prompts_ahead_are_computed_first() -> None:
    behind = replace(IDLE, num_sequences=1, num_pending_tokens=1000)
    assert behind.wait_s(REQUEST) > LATENCY.prefill_s(1000, chunk_tokens=256)


def test_a_request_beyond_the_batch_waits_for_sequences_to_end() -> None:
    full = replace(IDLE, num_sequences=8)
    assert full.wait_s(REQUEST) > replace(IDLE, num_sequences=7).wait_s(REQUEST) + 0.1


def test_a_request_beyond_the_memory_waits_for_sequences_to_end() -> None:
    roomy = replace(IDLE, num_sequences=4, num_context_tokens=2400)
    tight = replace(roomy, num_cache_tokens=1200)
    assert tight.wait_s(REQUEST) > roomy.wait_s(REQUEST)


def test_no_more_sequences_decode_together_than_the_batch_holds() -> None:
    crowded = replace(IDLE, num_sequences=100)
    assert crowded.tpot_s(REQUEST) < LATENCY.decode_s(num_decodes=9, context_tokens=600)


def test_nominal_times_are_no_predictions() -> None:
    assert IDLE.is_predictable
    assert not replace(IDLE, latency=NOMINAL).is_predictable


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    num_sequences=st.integers(0, 600),
    mean_pending_tokens=st.integers(0, 1000),
    num_cached_tokens=st.integers(0, 599),
    num_prompt_tokens=st.integers(0, 10_000),
    num_new_sequences=st.integers(1, 16),
)
def test_another_sequence_ahead_never_makes_the_first_token_come_sooner(
    num_sequences: int, mean_pending_tokens: int, num_cached_tokens: int, num_prompt_tokens: int, num_new_sequences: int
) -> None:
    request = replace(REQUEST, num_prompt_tokens=num_prompt_tokens, num_sequences=num_new_sequences)
    num_cached_tokens = min(num_cached_tokens, max(0, num_prompt_tokens - 1))
    candidate, busier = (
        replace(
            IDLE,
            num_sequences=num,
            num_pending_tokens=num * mean_pending_tokens,
            num_cached_tokens=num_cached_tokens,
        )
        for num in (num_sequences, num_sequences + 1)
    )
    assert 0 < candidate.ttft_s(request) <= busier.ttft_s(request)
    assert candidate.tpot_s(request) > 0
