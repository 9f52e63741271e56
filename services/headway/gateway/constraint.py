"""Constraints on the tokens of an output."""

import asyncio
from dataclasses import dataclass
from functools import lru_cache

from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.grammar import grammar_fault
from headway.core.request import Guide
from headway.gateway.bounds import check_range
from headway.gateway.model import ServedModel
from headway.gateway.text.tokenizer import Tokenizer

MAX_BIAS = 100.0
MAX_BIASES = 1024
MAX_CHOICES = 16_384
MAX_BAD_WORDS = 128
MAX_BAD_WORD_CHARS = 256
MAX_GUIDE_CHARS = 1 << 18
_MAX_FAULT_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """What one request's output must and must not contain.

    Attributes:
        logit_bias: (token id, bias) pairs; a bias is added to the token's logit.
        bad_words: texts that must not appear, as far as they are spelt with the tokens that the tokenizer gives them.
        guide: a language that the output must belong to.
        guide_field: the guide's field in the client's request, for errors.
    """

    logit_bias: tuple[tuple[int, float], ...] = ()
    bad_words: tuple[str, ...] = ()
    guide: Guide | None = None
    guide_field: str = "guide"

    def check(self, *, vocab_size: int) -> None:
        """Raises InvalidArgumentError naming the first constraint that is out of range."""
        check_range("logit_bias", len(self.logit_bias), 0, MAX_BIASES, what="the number of biases")
        for token_id, bias in self.logit_bias:
            check_range("logit_bias", token_id, 0, vocab_size - 1, what="a token id of logit_bias")
            check_range("logit_bias", bias, -MAX_BIAS, MAX_BIAS, what=f"the bias of token {token_id}")
        check_range("bad_words", len(self.bad_words), 0, MAX_BAD_WORDS, what="the number of bad words")
        for i, word in enumerate(self.bad_words):
            check_range(f"bad_words[{i}]", len(word), 1, MAX_BAD_WORD_CHARS, what="the length of a bad word")
        if self.guide is not None and self.bad_words:
            raise InvalidArgumentError(
                f"{self.guide_field} and bad_words exclude each other: together they may leave no token.",
                hint="Say in the one what the other should.",
                field="bad_words",
            )

    def bad_token_ids(self, tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
        """The bad words as tokens, at the start of a text and behind a space."""
        spellings = [spelling for word in self.bad_words for spelling in (word, f" {word.lstrip()}")]
        tokens = [tuple(tokenizer.encode(spelling, add_special_tokens=False)) for spelling in spellings]
        return tuple(dict.fromkeys(filter(None, tokens)))


async def check_guide(guide: Guide, *, model: ServedModel, field: str) -> None:
    """Compiles a guide, beside the event loop: what is in order here, the model's workers can follow.

    Raises:
        InvalidArgumentError: naming the field that the guide comes from.
        FailedPreconditionError: the model can follow none.
    """
    if not model.spec.eos_token_ids or len(model.tokenizer.kinds) > model.spec.vocab_size:
        raise FailedPreconditionError(
            f"The model '{model.name}' cannot be guided: it has no end-of-sequence token, or fewer tokens than its "
            "tokenizer.",
            hint=f"Leave {field} out, or correct the checkpoint.",
            field=field,
        )
    check_range(field, len(guide.text), 0, MAX_GUIDE_CHARS, what=f"the length of {field}")
    if fault := await asyncio.to_thread(_fault, guide):
        raise InvalidArgumentError(
            f"{field} cannot be followed: {fault}.", hint=f"Correct the {guide.kind.replace('_', ' ')}.", field=field
        )


@lru_cache(maxsize=64)
def _fault(guide: Guide) -> str:
    return " ".join(grammar_fault(guide).split())[:_MAX_FAULT_CHARS].rstrip(".")
