"""Requests as vLLM's /inference/v1/generate takes them, and its chunks as outputs. Pure."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from headway.core.request import FinishReason, GenerationRequest, SequenceOutput, TokenLogprobs

_REASONS = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}


def body_of(request: GenerationRequest, *, num_left: int, eos_token_ids: Sequence[int]) -> dict[str, Any]:
    """
    Args:
        num_left: how many tokens are still to come.
        eos_token_ids: that end a sequence of the model, whatever the server takes for them.
    """
    own = request.sampling
    body: dict[str, Any] = {
        "request_id": request.request_id,
        "token_ids": [*request.prompt_token_ids, *request.output_token_ids],
        "sampling_params": {
            "max_tokens": num_left,
            "min_tokens": min(max(0, own.min_tokens - len(request.output_token_ids)), num_left),
            "temperature": 0.0 if own.is_greedy else own.temperature,
            "top_k": own.top_k,
            "top_p": own.top_p,
            "min_p": own.min_p,
            "presence_penalty": own.presence_penalty,
            "frequency_penalty": own.frequency_penalty,
            "repetition_penalty": own.repetition_penalty,
            "seed": None if own.is_greedy else own.seed % 2**63,
            "stop_token_ids": [*own.stop_token_ids, *(() if own.ignore_eos else eos_token_ids)],
            "ignore_eos": own.ignore_eos,
            "logprobs": own.num_logprobs,
            "logit_bias": {str(token_id): bias for token_id, bias in own.logit_bias} or None,
            "detokenize": False,
        },
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.cache_salt:
        body["cache_salt"] = told_salt(request.cache_salt)
    return body


def output_of(request: GenerationRequest, choice: Mapping[str, Any]) -> SequenceOutput:
    """One of a stream's choices; `is_given_up` tells those that are none."""
    tokens = tuple(choice.get("token_ids") or ())
    reason = _REASONS.get(choice.get("finish_reason") or "")
    positions = (choice.get("logprobs") or {}).get("content") or ()
    return SequenceOutput(
        request_id=request.request_id,
        token_ids=tokens,
        logprobs=tuple(_logprobs(each, request.sampling.num_logprobs or 0) for each in positions),
        finish_reason=reason,
        stop_token_id=tokens[-1] if reason is FinishReason.STOP and tokens else None,
    )


def is_given_up(choice: Mapping[str, Any]) -> bool:
    """Whether the server has ended the sequence for a reason of its own, such as its end."""
    return (choice.get("finish_reason") or "stop") not in _REASONS


def num_cached_tokens_of(chunk: Mapping[str, Any]) -> int | None:
    """Prompt tokens that the server found in its cache, in a chunk with the usage; None where it does not tell."""
    details = (chunk.get("usage") or {}).get("prompt_tokens_details") or {}
    return details.get("cached_tokens")


def _logprobs(position: Mapping[str, Any], num_top: int) -> TokenLogprobs:
    best = sorted((each.get("rank") or 0, each["token_id"], each["logprob"]) for each in position["top_logprobs"])
    return TokenLogprobs(
        token_id=position["token_id"],
        logprob=position["logprob"],
        rank=position.get("rank") or 0,
        top=tuple((token_id, logprob) for _, token_id, logprob in best[:num_top]),
    )


def told_salt(salt: str) -> str:
    """What the server knows a salt by: vLLM takes none that is long, or has some characters."""
    return hashlib.sha256(salt.encode()).hexdigest()
