"""The output that one step gives for one sequence."""

from headway.core.request import FinishReason, SequenceOutput
from headway.engine.batch import Sample
from headway.engine.beam import BeamState
from headway.engine.sequence import Sequence


def token_output(
    sequence: Sequence, *, sample: Sample, num_new_tokens: int, reason: FinishReason | None
) -> SequenceOutput:
    """Reports the sequence's last tokens; the first ones here bring along what is known of the prompt."""
    is_first = len(sequence.token_ids) == sequence.num_given_tokens + num_new_tokens
    if reason is None and not is_first:  # almost all outputs
        return SequenceOutput(sequence.request_id, sample.token_ids, sample.logprobs)
    token_ids = sample.token_ids[:num_new_tokens]
    return SequenceOutput(
        request_id=sequence.request_id,
        token_ids=token_ids,
        logprobs=sample.logprobs[:num_new_tokens],
        prompt_logprobs=tuple(sequence.prompt_logprobs) if is_first else (),
        finish_reason=reason,
        stop_token_id=token_ids[-1] if reason is FinishReason.STOP else None,
        num_cached_tokens=min(sequence.num_cached_tokens, sequence.num_prompt_tokens) if is_first else 0,
    )


def beam_output(sequence: Sequence, *, beams: BeamState) -> SequenceOutput:
    """Reports the end of a beam search; `sequence` is one of its beams."""
    hypotheses = beams.hypotheses
    return SequenceOutput(
        request_id=sequence.request_id,
        prompt_logprobs=tuple(sequence.prompt_logprobs),
        finish_reason=hypotheses[0].finish_reason if hypotheses else FinishReason.LENGTH,
        num_cached_tokens=min(sequence.num_cached_tokens, sequence.num_prompt_tokens),
        hypotheses=hypotheses,
    )


def end_output(sequence: Sequence, *, reason: FinishReason, error: str = "") -> SequenceOutput:
    """Reports an end that brings no token."""
    return SequenceOutput(
        request_id=sequence.request_id,
        finish_reason=reason,
        stop_token_id=sequence.token_ids[-1] if reason is FinishReason.STOP else None,
        error=error,
    )
