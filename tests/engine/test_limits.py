import pytest

from headway.core.errors import InvalidArgumentError
from headway.core.request import FinishReason, SamplingParams
from headway.engine.limits import check_tokens, finish_reason
from headway.engine.sequence import Sequence

EOS = 2


def reason(output: list[int], *, max_sequence_len: int = 100, **sampling: object) -> FinishReason | None:
    params = SamplingParams(**{"max_tokens": 10, **sampling})  # type: ignore[arg-type]
    sequence = Sequence("s", [EOS, 8, EOS, *output], 3, params, arrival_s=0.0)
    return finish_reason(sequence, eos_token_ids=frozenset({EOS}), max_sequence_len=max_sequence_len)


def test_a_sequence_goes_on_until_something_ends_it() -> None:
    assert reason([5]) is None


def test_an_end_token_in_the_prompt_ends_nothing() -> None:
    assert reason([]) is None


def test_the_models_end_token_stops_unless_ignored() -> None:
    assert reason([5, EOS]) is FinishReason.STOP
    assert reason([5, EOS], ignore_eos=True) is None


def test_a_requested_stop_token_stops_even_when_end_tokens_are_ignored() -> None:
    assert reason([5, 9], stop_token_ids=(9,), ignore_eos=True) is FinishReason.STOP


def test_no_stop_token_counts_within_the_minimum() -> None:
    assert reason([5, EOS], min_tokens=2) is None
    assert reason([5, 6, EOS], min_tokens=2) is FinishReason.STOP
    assert reason([5, 9], min_tokens=2, stop_token_ids=(9,)) is None


def test_max_tokens_and_the_context_end_by_length() -> None:
    assert reason([5, 6], max_tokens=2) is FinishReason.LENGTH
    assert reason([5, 6], max_sequence_len=5) is FinishReason.LENGTH
    assert reason([5, 6], max_sequence_len=6) is None


def test_a_stop_token_in_the_last_place_is_a_stop() -> None:
    assert reason([5, EOS], max_tokens=2) is FinishReason.STOP


@pytest.mark.parametrize("num_prompt_tokens", [0, 8, 9])
def test_a_prompt_that_cannot_be_answered_is_refused(num_prompt_tokens: int) -> None:
    sequence = Sequence("s", [1] * num_prompt_tokens, num_prompt_tokens, SamplingParams(), arrival_s=0.0)
    with pytest.raises(InvalidArgumentError) as caught:
        check_tokens(sequence, max_sequence_len=8, vocab_size=50)
    assert caught.value.field == "prompt_token_ids"
    assert caught.value.hint


def test_a_prompt_that_leaves_room_for_one_token_is_accepted() -> None:
    sequence = Sequence("s", [1] * 7, 7, SamplingParams(), arrival_s=0.0)
    check_tokens(sequence, max_sequence_len=8, vocab_size=50)


@pytest.mark.parametrize("token_id", [-1, 50, 2**31])
def test_a_token_outside_the_vocabulary_is_refused(token_id: int) -> None:
    sequence = Sequence("s", [1, 49, token_id], 2, SamplingParams(), arrival_s=0.0)
    with pytest.raises(InvalidArgumentError, match="50"):
        check_tokens(sequence, max_sequence_len=8, vocab_size=50)
