"""What a step brought, on its way from a worker to a gateway."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.errors import UnavailableError
from headway.core.request import FinishReason, Hypothesis, SequenceOutput, TokenLogprobs
from headway.gateway.client import Failure, _step_from_pb
from headway.v1 import worker_pb2
from headway.worker.servicer import _step_to_pb
from headway.worker.sessions import Refusal

TOKEN = st.integers(0, 200_000)
TOKENS = st.lists(TOKEN, max_size=4).map(tuple)
LOGPROBS = st.lists(st.builds(TokenLogprobs, TOKEN, st.sampled_from([-0.5, -2.25]), st.integers(1, 9)), max_size=2)
ENDED = st.builds(
    SequenceOutput,
    request_id=st.uuids().map(str),
    token_ids=TOKENS,
    finish_reason=st.sampled_from([FinishReason.STOP, FinishReason.LENGTH]),
    stop_token_id=st.none() | TOKEN,
    hypotheses=st.lists(st.builds(Hypothesis, TOKENS, st.just(-1.5), st.just(FinishReason.LENGTH)), max_size=2).map(
        tuple
    ),
)
RUNNING = st.builds(
    SequenceOutput,
    request_id=st.uuids().map(str),
    token_ids=TOKENS,
    logprobs=LOGPROBS.map(tuple),
    prompt_logprobs=LOGPROBS.map(tuple),
    num_cached_tokens=st.sampled_from([0, 0, 16]),
)
PLAIN = st.builds(SequenceOutput, request_id=st.uuids().map(str), token_ids=TOKEN.map(lambda token: (token,)))


@given(st.lists(PLAIN | RUNNING | ENDED, max_size=8), st.booleans())
def test_every_output_arrives_as_it_was(outputs: list[SequenceOutput], takes_plain: bool) -> None:
    message = _step_to_pb(list(outputs), takes_plain=takes_plain)
    step = _step_from_pb(worker_pb2.GenerateTokensResponse.FromString(message.SerializeToString()))
    plain = [SequenceOutput(request_id, (token_id,)) for request_id, token_id in step.plain]
    arrived = [*plain, *step.others]
    assert sorted(arrived, key=str) == sorted(outputs, key=str)
    assert [output for output in arrived if output.is_plain] == [output for output in outputs if output.is_plain]


@pytest.mark.parametrize("takes_plain", [True, False])
def test_tokens_and_nothing_else_are_lists_for_callers_that_take_them(takes_plain: bool) -> None:
    outputs = [SequenceOutput("a", (7,)), SequenceOutput("b", (8,), num_cached_tokens=16), SequenceOutput("c", (9,))]
    message = _step_to_pb(list(outputs), takes_plain=takes_plain)
    assert list(message.plain_request_ids) == (["a", "c"] if takes_plain else [])
    assert list(message.plain_token_ids) == ([7, 9] if takes_plain else [])
    assert len(message.outputs) == (1 if takes_plain else 3)


def test_a_refusal_arrives_with_its_reason() -> None:
    message = _step_to_pb([Refusal("a", UnavailableError("gone", hint="again"), moved_to="worker-1")], takes_plain=True)
    step = _step_from_pb(message)
    (failure,) = step.others
    assert not step.plain
    assert isinstance(failure, Failure)
    assert (failure.sequence_id, failure.moved_to) == ("a", "worker-1")
    assert isinstance(failure.error, UnavailableError)
    assert str(failure.error).startswith("gone")
