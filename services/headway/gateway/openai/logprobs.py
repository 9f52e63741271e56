"""Log probabilities in the OpenAI API's two shapes, and those of prompts in vLLM's."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from headway.core.request import TokenLogprobs
from headway.gateway.text.detokenizer import make_detokenizer
from headway.gateway.text.tokenizer import Tokenizer

# JSON has no minus infinity.
_LOWEST = -9999.0


def completion_logprobs(
    tokenizer: Tokenizer, entries: Sequence[TokenLogprobs], offsets: Sequence[int], *, shift: int = 0
) -> dict[str, list[Any]]:
    """Returns the log probabilities of output tokens. `offsets` are the characters of output before each token, `shift`
    the characters of text before the output.
    """
    return {
        "tokens": [tokenizer.token(entry.token_id).text for entry in entries],
        "token_logprobs": [max(entry.logprob, _LOWEST) for entry in entries],
        "top_logprobs": [_top(tokenizer, entry) for entry in entries],
        "text_offset": [shift + offset for offset in offsets],
    }


def echoed_logprobs(
    tokenizer: Tokenizer, token_ids: Sequence[int], entries: Sequence[TokenLogprobs], *, num_top: int
) -> dict[str, list[Any]]:
    """Returns the log probabilities of an echoed prompt. `entries` are those of all its tokens but the first, which has
    none. An entry may hold more than the `num_top` best tokens.
    """
    detokenizer = make_detokenizer(tokenizer)
    offsets = []
    for token_id in token_ids:
        offsets.append(detokenizer.num_chars)
        detokenizer.push(token_id)
    rest = completion_logprobs(tokenizer, [replace(entry, top=entry.top[:num_top]) for entry in entries], offsets[1:])
    return {
        "tokens": [tokenizer.token(token_ids[0]).text, *rest["tokens"]],
        "token_logprobs": [None, *rest["token_logprobs"]],
        "top_logprobs": [None, *rest["top_logprobs"]],
        "text_offset": offsets,
    }


def prompt_logprobs(
    tokenizer: Tokenizer, entries: Sequence[TokenLogprobs], *, num_top: int
) -> list[dict[str, dict[str, Any]] | None]:
    """vLLM's `prompt_logprobs`: null for the first token, then the token that stands there and the `num_top` best ones,
    by id."""
    return [None, *(_ranked(tokenizer, entry, num_top) for entry in entries)]


def chat_logprobs(tokenizer: Tokenizer, entries: Sequence[TokenLogprobs]) -> dict[str, Any]:
    """Returns the log probabilities of a message's tokens."""
    content = [
        _entry(tokenizer, entry.token_id, entry.logprob)
        | {"top_logprobs": [_entry(tokenizer, token_id, logprob) for token_id, logprob in entry.top]}
        for entry in entries
    ]
    return {"content": content, "refusal": None}


def _ranked(tokenizer: Tokenizer, entry: TokenLogprobs, num_top: int) -> dict[str, dict[str, Any]]:
    ranked = [(entry.token_id, entry.logprob, entry.rank)]
    ranked += [(token_id, logprob, i + 1) for i, (token_id, logprob) in enumerate(entry.top[:num_top])]
    return {
        str(token_id): {
            "logprob": max(logprob, _LOWEST),
            "rank": rank,
            "decoded_token": tokenizer.token(token_id).text,
        }
        for token_id, logprob, rank in ranked
    }


def _top(tokenizer: Tokenizer, entry: TokenLogprobs) -> dict[str, float]:
    """The most probable tokens and the one that stands there; of two that read alike the better one."""
    top: dict[str, float] = {}
    for token_id, logprob in (*entry.top, (entry.token_id, entry.logprob)):
        top.setdefault(tokenizer.token(token_id).text, max(logprob, _LOWEST))
    return top


def _entry(tokenizer: Tokenizer, token_id: int, logprob: float) -> dict[str, Any]:
    token = tokenizer.token(token_id)
    return {"token": token.text, "logprob": max(logprob, _LOWEST), "bytes": list(token.raw)}
