"""What is refused at once, and what is not."""

from dataclasses import replace

import pytest

from headway.core.errors import ResourceExhaustedError
from headway.core.slo import Slo
from headway.router.admission import admit
from headway.router.candidate_group import NOMINAL
from tests.router.test_candidate_group import IDLE, REQUEST

BUSY = replace(IDLE, num_sequences=4, num_pending_tokens=3000, num_context_tokens=4000)


def test_a_request_without_an_slo_is_always_admitted() -> None:
    assert admit(REQUEST, [BUSY], waited_s=1000.0) == [BUSY]


def test_only_groups_that_can_keep_the_slo_are_left() -> None:
    request = replace(REQUEST, slo=Slo(ttft_s=1.5))
    assert admit(request, [BUSY, IDLE], waited_s=0.0) == [IDLE]


def test_a_late_first_token_is_refused_with_the_delay_after_which_it_might_do() -> None:
    request = replace(REQUEST, slo=Slo(ttft_s=1.5))
    with pytest.raises(ResourceExhaustedError, match="first token would take") as refusal:
        admit(request, [BUSY], waited_s=0.0)
    assert refusal.value.retry_after_s == pytest.approx(BUSY.ttft_s(request) - 1.5)
    assert refusal.value.field == "slo.ttft_s"


def test_time_spent_in_line_counts() -> None:
    request = replace(REQUEST, slo=Slo(ttft_s=1.5))
    with pytest.raises(ResourceExhaustedError):
        admit(request, [IDLE], waited_s=1.2)


def test_slow_tokens_are_refused() -> None:
    request = replace(REQUEST, slo=Slo(tpot_s=0.015))
    assert admit(request, [IDLE], waited_s=0.0) == [IDLE]
    with pytest.raises(ResourceExhaustedError, match="A token would take") as refusal:
        admit(request, [BUSY], waited_s=0.0)
    assert refusal.value.retry_after_s is not None
    assert 1.0 <= refusal.value.retry_after_s <= 60.0


def test_time_per_token_is_no_concern_of_a_request_for_one_token() -> None:
    request = replace(REQUEST, slo=Slo(tpot_s=1e-6), max_output_tokens=1)
    assert admit(request, [IDLE], waited_s=0.0) == [IDLE]


def test_a_resumed_stream_is_never_refused() -> None:
    request = replace(REQUEST, slo=Slo(ttft_s=1e-6), resumed=True)
    assert admit(request, [BUSY], waited_s=0.0) == [BUSY]


def test_a_request_for_which_others_would_be_late_is_refused() -> None:
    request = replace(REQUEST, slo=Slo(ttft_s=100.0))
    harmful = replace(IDLE, is_harmful=True, answer_s=3.0)
    assert admit(request, [harmful, BUSY], waited_s=0.0) == [BUSY]
    with pytest.raises(ResourceExhaustedError, match="admitted before would miss their objectives") as refusal:
        admit(request, [harmful], waited_s=0.0)
    assert refusal.value.retry_after_s == 3.0


def test_nobody_is_refused_for_want_of_a_latency_model() -> None:
    unknown = replace(BUSY, latency=NOMINAL)
    assert admit(replace(REQUEST, slo=Slo(ttft_s=1e-6)), [unknown], waited_s=0.0) == [unknown]


def test_a_cached_prompt_is_admitted_where_it_would_be_too_long_to_compute() -> None:
    request = replace(REQUEST, slo=Slo(ttft_s=0.2))
    holder = replace(IDLE, num_cached_tokens=592)
    assert admit(request, [IDLE, holder], waited_s=0.0) == [holder]
