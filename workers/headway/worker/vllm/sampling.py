"""Requests in vLLM's terms, and its outputs in ours."""

from collections.abc import Mapping, Sequence

from vllm import SamplingParams as VllmSampling
from vllm.logprobs import Logprob
from vllm.outputs import RequestOutput
from vllm.sampling_params import RequestOutputKind

from headway.core.request import FinishReason, GenerationRequest, SequenceOutput, TokenLogprobs

_REASONS = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH, "abort": FinishReason.CANCELLED}


def sampling_of(request: GenerationRequest, *, max_tokens: int, eos_token_ids: Sequence[int]) -> VllmSampling:
    """How vLLM is to go on after the request's prompt and outputs.

    Args:
        max_tokens: how many tokens are still to come.
        eos_token_ids: that end a sequence of the model; vLLM has no tokenizer that would tell it.
    """
    own = request.sampling
    stops = [*own.stop_token_ids, *(() if own.ignore_eos else eos_token_ids)]
    return VllmSampling(
        max_tokens=max_tokens,
        min_tokens=min(max(0, own.min_tokens - len(request.output_token_ids)), max_tokens),
        temperature=0.0 if own.is_greedy else own.temperature,
        top_k=own.top_k,
        top_p=own.top_p,
        min_p=own.min_p,
        presence_penalty=own.presence_penalty,
        frequency_penalty=own.frequency_penalty,
        repetition_penalty=own.repetition_penalty,
        seed=None if own.is_greedy else own.seed % 2**63,
        stop_token_ids=stops,
        ignore_eos=own.ignore_eos,
        logprobs=own.num_logprobs,
        prompt_logprobs=None if request.output_token_ids else own.num_prompt_logprobs,
        logit_bias=dict(own.logit_bias) or None,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
    )


def output_of(request: GenerationRequest, output: RequestOutput, *, is_first: bool) -> SequenceOutput:
    """One of vLLM's outputs of a request with one sequence."""
    (completion,) = output.outputs
    tokens = tuple(completion.token_ids)
    reason = _REASONS.get(completion.finish_reason or "")
    is_stopped = reason is FinishReason.STOP and bool(tokens)
    sampling = request.sampling
    prompt_logprobs = output.prompt_logprobs if is_first and sampling.num_prompt_logprobs is not None else None
    prompt = request.prompt_token_ids
    return SequenceOutput(
        request_id=request.request_id,
        token_ids=tokens,
        logprobs=_logprobs(tokens, completion.logprobs or (), sampling.num_logprobs or 0),
        prompt_logprobs=_logprobs(prompt[1:], (prompt_logprobs or ())[1:], sampling.num_prompt_logprobs or 0),
        finish_reason=reason,
        stop_token_id=tokens[-1] if is_stopped else None,
        num_cached_tokens=(output.num_cached_tokens or 0) if is_first else 0,
    )


def _logprobs(
    tokens: Sequence[int], positions: Sequence[Mapping[int, Logprob] | None], num_top: int
) -> tuple[TokenLogprobs, ...]:
    return tuple(
        _token_logprobs(token, found, num_top) for token, found in zip(tokens, positions, strict=False) if found
    )


def _token_logprobs(token: int, found: Mapping[int, Logprob], num_top: int) -> TokenLogprobs:
    best = sorted(((each.rank or 0, token_id, each.logprob) for token_id, each in found.items()))
    own = found[token]
    return TokenLogprobs(
        token_id=token,
        logprob=own.logprob,
        rank=own.rank or 0,
        top=tuple((token_id, logprob) for _, token_id, logprob in best[:num_top]),
    )
