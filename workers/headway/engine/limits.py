"""Checks where a sequence may start and decides where it must end."""

from collections.abc import Sequence as Group
from dataclasses import replace

from headway.core.errors import InvalidArgumentError
from headway.core.request import BeamSearch, FinishReason, SamplingParams
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


def check_group(sequences: Group[Sequence], *, max_num_seqs: int) -> None:
    """Refuses sequences that cannot run together.

    Raises:
        InvalidArgumentError: they have different prompts or sampling (seeds aside), they are too many, or a beam search
            is not alone or has outputs already.
    """
    first = sequences[0]
    width = 1 if first.sampling.beam is None else first.sampling.beam.width
    if len(sequences) * width > max_num_seqs:
        raise InvalidArgumentError(
            f"The request asks for {len(sequences) * width} sequences at once; {max_num_seqs} can run here.",
            hint="Ask for fewer samples or beams, or split the request.",
            field="n" if width == 1 else "beam_width",
        )
    prompt, sampling = first.token_ids[: first.num_prompt_tokens], replace(first.sampling, seed=0)
    for other in sequences[1:]:
        if other.token_ids[: other.num_prompt_tokens] != prompt or replace(other.sampling, seed=0) != sampling:
            raise InvalidArgumentError(
                f"'{other.request_id}' and '{first.request_id}' differ in more than their seeds and outputs.",
                hint="Submit sequences of different requests one by one.",
                field="sequences",
            )
    if first.sampling.beam is not None and (len(sequences) > 1 or first.num_output_tokens):
        raise InvalidArgumentError(
            "A beam search is one sequence that starts at its prompt.",
            hint="Ask for more hypotheses of it, and submit it anew to resume it.",
            field="beam",
        )


def check_beam_room(
    sequence: Sequence, search: BeamSearch, *, max_sequence_len: int, num_blocks: int, block_size: int
) -> None:
    """Refuses a beam search that could not end: its beams live and die together, so all must fit the pool at once.

    At worst they share nothing but the full blocks of the prompt.

    Raises:
        InvalidArgumentError: the beams can need more blocks than there are.
    """
    num_tokens = min(sequence.num_prompt_tokens + sequence.sampling.max_tokens, max_sequence_len) - 1
    num_shared = sequence.num_prompt_tokens // block_size
    num_needed = num_shared + search.width * (-(-num_tokens // block_size) - num_shared)
    if num_needed > num_blocks:
        raise InvalidArgumentError(
            f"{search.width} beams of up to {sequence.sampling.max_tokens} output tokens can need {num_needed} KV "
            f"blocks of {block_size} tokens; there are {num_blocks}.",
            hint="Ask for fewer beams or tokens, or give the model more memory.",
            field="beam_width",
        )


def stop_token_ids(sampling: SamplingParams, *, eos_token_ids: frozenset[int]) -> frozenset[int]:
    """Tokens that end a sequence."""
    own = frozenset(sampling.stop_token_ids)
    return own if sampling.ignore_eos else own | eos_token_ids


def ends_in_flight(sequence: Sequence, *, max_sequence_len: int) -> bool:
    """Whether the tokens that are under way make the sequence as long as it may get."""
    num_tokens = len(sequence.token_ids) + sequence.num_pending_tokens
    num_output_tokens = num_tokens - sequence.num_prompt_tokens
    return num_output_tokens >= sequence.sampling.max_tokens or num_tokens >= max_sequence_len


def finish_reason(sequence: Sequence, *, eos_token_ids: frozenset[int], max_sequence_len: int) -> FinishReason | None:
    """Returns why the sequence ends with its last token, or None if it goes on. A stop token wins over a full length.

    Args:
        eos_token_ids: the model's own; heeded unless the request ignores them.
        max_sequence_len: the most tokens that prompt and output may have together.
    """
    sampling, num_tokens = sequence.sampling, len(sequence.token_ids)
    num_output_tokens = num_tokens - sequence.num_prompt_tokens
    if num_output_tokens > sampling.min_tokens:
        last = sequence.token_ids[-1]
        if last in sampling.stop_token_ids or (last in eos_token_ids and not sampling.ignore_eos):
            return FinishReason.STOP
    if num_output_tokens >= sampling.max_tokens or num_tokens >= max_sequence_len:
        return FinishReason.LENGTH
    return None
