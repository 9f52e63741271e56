"""Where a sequence may start and must end."""

from headway.core.errors import InvalidArgumentError
from headway.core.request import FinishReason
from headway.engine.sequence import Sequence


def check_tokens(sequence: Sequence, *, max_sequence_len: int, vocab_size: int) -> None:
    """Refuses what could never be answered.

    Raises:
        InvalidArgumentError: the prompt is empty, leaves no room for an output, or holds an unknown token.
    """
    if sequence.num_prompt_tokens == 0:
        raise InvalidArgumentError("The prompt is empty.", hint="Send at least one token.", field="prompt_token_ids")
    if sequence.num_prompt_tokens >= max_sequence_len:
        raise InvalidArgumentError(
            f"The prompt has {sequence.num_prompt_tokens} tokens; prompt and output together can have "
            f"{max_sequence_len}, and the output needs at least one.",
            hint="Shorten the prompt, or serve the model with a longer context.",
            field="prompt_token_ids",
        )
    if min(sequence.token_ids) < 0 or max(sequence.token_ids) >= vocab_size:
        raise InvalidArgumentError(
            f"The prompt holds a token id outside [0, {vocab_size}).",
            hint="Tokenise with the tokenizer of the served model.",
            field="prompt_token_ids",
        )


def finish_reason(sequence: Sequence, *, eos_token_ids: frozenset[int], max_sequence_len: int) -> FinishReason | None:
    """Why the sequence's last token is its last one, or None if it goes on. A stop token wins over a full length.

    Args:
        eos_token_ids: the model's own; heeded unless the request ignores them.
        max_sequence_len: prompt and output tokens at most.
    """
    sampling, num_output_tokens = sequence.sampling, sequence.num_output_tokens
    if num_output_tokens > sampling.min_tokens:
        last = sequence.token_ids[-1]
        if last in sampling.stop_token_ids or (last in eos_token_ids and not sampling.ignore_eos):
            return FinishReason.STOP
    if num_output_tokens >= sampling.max_tokens or len(sequence) >= max_sequence_len:
        return FinishReason.LENGTH
    return None
