"""What one step of the one-pass engine may hold, and which requests it takes."""

from dataclasses import dataclass

from headway.core.errors import InvalidArgumentError
from headway.core.infer import InferRequest, InferSequence


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderLimits:
    """Limits of one engine; the serving plan sets them.

    Attributes:
        max_num_seqs: sequences per step.
        max_num_batched_tokens: tokens per step; a longer sequence has a step of its own.
        max_model_len: tokens of one sequence at most.
        vocab_size, num_token_types: token ids and types lie below them; no types where a model has no table of them.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    vocab_size: int
    num_token_types: int

    def check(self, request: InferRequest) -> None:
        """Refuses what could not be computed; InvalidArgumentError names the sequence."""
        if not request.sequences:
            raise InvalidArgumentError("The request has no sequences.", field="sequences")
        for index, sequence in enumerate(request.sequences):
            self._check(sequence, field=f"sequences[{index}]")

    def _check(self, sequence: InferSequence, *, field: str) -> None:
        token_ids, types = sequence.token_ids, sequence.token_type_ids
        if not 1 <= len(token_ids) <= self.max_model_len:
            raise InvalidArgumentError(
                f"{field} has {len(token_ids)} tokens; the model takes 1 to {self.max_model_len}.",
                hint="Shorten the text." if token_ids else "Send at least one token.",
                field=field,
            )
        if min(token_ids) < 0 or max(token_ids) >= self.vocab_size:
            raise InvalidArgumentError(
                f"{field} holds a token id outside [0, {self.vocab_size}).",
                hint="Tokenise with the tokenizer of the served model.",
                field=field,
            )
        if types and (len(types) != len(token_ids) or min(types) < 0 or max(types) >= max(self.num_token_types, 1)):
            raise InvalidArgumentError(
                f"{field}: token_type_ids must be one for each token, below {max(self.num_token_types, 1)}.",
                field=field,
            )
