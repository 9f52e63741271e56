"""Token ids to text as they come, so that the pieces add up to what decoding all of them at once gives."""

from typing import Protocol

from headway.gateway.text.byte_detokenizer import ByteDetokenizer
from headway.gateway.text.tokenizer import Tokenizer
from headway.gateway.text.window_detokenizer import WindowDetokenizer


class Detokenizer(Protocol):
    """Turns the tokens of one sequence into text, one token at a time."""

    @property
    def num_chars(self) -> int:
        """Characters given out so far."""

    def push(self, token_id: int) -> str:
        """The text that is certain now and was not before; often empty."""

    def flush(self) -> str:
        """Returns the text that was held back. Call it when no more tokens come."""


def make_detokenizer(tokenizer: Tokenizer, *, skip_special_tokens: bool = True) -> Detokenizer:
    """Makes a detokenizer for a new sequence."""
    if not skip_special_tokens:
        tokenizer = tokenizer.with_special_tokens
    return ByteDetokenizer(tokenizer) if tokenizer.joins_bytes else WindowDetokenizer(tokenizer)
