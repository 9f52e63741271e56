"""Turns the inputs of an encoder request into checked sequences of tokens."""

from collections.abc import Sequence

from headway.core.errors import InvalidArgumentError
from headway.core.infer import InferInput, InferSequence, TextInput
from headway.gateway.errors import ContextLengthError
from headway.gateway.model import ServedModel
from headway.gateway.prompt_tokenizer import MAX_INLINE_CHARS, check_text_length
from headway.gateway.text.tokenizer import TypedTokens
from headway.gateway.threads import Threads

MAX_INPUTS = 2048


def check_num_inputs(num_inputs: int, *, field: str) -> None:
    """InvalidArgumentError where there are none, or more than one request may have."""
    if not 1 <= num_inputs <= MAX_INPUTS:
        raise InvalidArgumentError(f"{field} has {num_inputs} entries; it may have 1 to {MAX_INPUTS}.", field=field)


async def tokenize(
    inputs: Sequence[InferInput],
    *,
    model: ServedModel,
    field: str,
    truncate_to: int | None,
    threads: Threads,
    tenant: str = "",
) -> list[InferSequence]:
    """The sequence of each input. How many there are has been checked.

    Args:
        field: the inputs' name in the client's request.
        truncate_to: keeps so many tokens of each from its start; -1 as many as the model takes; None refuses what is
            too long.

    Raises:
        InvalidArgumentError, ContextLengthError: one is empty, too long, or holds an unknown token.
    """
    max_tokens = _max_tokens(truncate_to, model)

    def encode() -> list[InferSequence]:
        texts = [item for item in inputs if isinstance(item, TextInput)]
        for text in texts if max_tokens is None else ():
            check_text_length(text.first + (text.second or ""), model=model, field=field)
        encoded = iter(model.tokenizer.encode_inputs(texts, max_tokens=max_tokens))
        sequences = []
        for i, item in enumerate(inputs):
            tokens = next(encoded) if isinstance(item, TextInput) else TypedTokens(item[:max_tokens], ())
            sequences.append(_sequence(tokens, model=model, field=field if len(inputs) == 1 else f"{field}[{i}]"))
        return sequences

    return await threads.run(encode, is_long=sum(map(_size, inputs)) > MAX_INLINE_CHARS, tenant=tenant)


def _max_tokens(truncate_to: int | None, model: ServedModel) -> int | None:
    if truncate_to is None:
        return None
    if truncate_to == -1:
        return model.max_model_len
    if not 1 <= truncate_to <= model.max_model_len:
        raise InvalidArgumentError(
            f"truncate_prompt_tokens is {truncate_to}; it must be -1, or between 1 and {model.max_model_len}.",
            field="truncate_prompt_tokens",
        )
    return truncate_to


def _size(item: InferInput) -> int:
    """Returns the length of an input in characters, or in tokens where it is token ids."""
    return len(item.first) + len(item.second or "") if isinstance(item, TextInput) else len(item)


def _sequence(tokens: TypedTokens, *, model: ServedModel, field: str) -> InferSequence:
    """Types are left out where the model knows of none, or all are 0."""
    token_ids, vocab_size = tokens.token_ids, model.spec.vocab_size
    if not token_ids:
        raise InvalidArgumentError("The input is empty.", hint="Send at least one token.", field=field)
    if len(token_ids) > model.max_model_len:
        raise ContextLengthError(
            f"This model takes {model.max_model_len} tokens; the input has {len(token_ids)}.",
            hint="Shorten it, or set truncate_prompt_tokens to -1.",
            field=field,
        )
    if not 0 <= min(token_ids) <= max(token_ids) < vocab_size:
        position = next(i for i, token_id in enumerate(token_ids) if not 0 <= token_id < vocab_size)
        raise InvalidArgumentError(
            f"{field}[{position}] is {token_ids[position]}; token ids of this model are below {vocab_size}.",
            field=f"{field}[{position}]",
        )
    encoder = model.spec.encoder
    has_types = encoder is not None and encoder.num_token_types > 1 and any(tokens.type_ids)
    return InferSequence(token_ids=token_ids, token_type_ids=tokens.type_ids if has_types else ())
