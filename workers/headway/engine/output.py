"""What a step tells the outside about one sequence."""

from headway.core.request import FinishReason, SequenceOutput, TokenLogprobs
from headway.engine.sequence import Sequence


def token_output(sequence: Sequence, *, logprobs: TokenLogprobs | None, reason: FinishReason | None) -> SequenceOutput:
    """Reports the sequence's last token; its first one here brings along what is known of the prompt."""
    token_id = sequence.token_ids[-1]
    is_first = len(sequence) == sequence.num_given_tokens + 1
    return SequenceOutput(
        request_id=sequence.request_id,
        token_ids=(token_id,),
        logprobs=() if logprobs is None else (logprobs,),
        prompt_logprobs=tuple(sequence.prompt_logprobs) if is_first else (),
        finish_reason=reason,
        stop_token_id=token_id if reason is FinishReason.STOP else None,
        num_cached_tokens=min(sequence.num_cached_tokens, sequence.num_prompt_tokens) if is_first else 0,
    )


def end_output(sequence: Sequence, *, reason: FinishReason, error: str = "") -> SequenceOutput:
    """Reports an end that brings no token."""
    return SequenceOutput(
        request_id=sequence.request_id,
        finish_reason=reason,
        stop_token_id=sequence.token_ids[-1] if reason is FinishReason.STOP else None,
        error=error,
    )
