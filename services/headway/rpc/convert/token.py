"""Messages of the token path, converted field by field because they cross once per engine step."""

from __future__ import annotations

from headway.core.errors import ErrorCode
from headway.core.request import (
    FinishReason,
    GenerationRequest,
    SamplingParams,
    SequenceOutput,
    TokenLogprobs,
)
from headway.v1 import common_pb2, worker_pb2

_FINISH_TO_PB = {
    None: common_pb2.FINISH_REASON_UNSPECIFIED,
    FinishReason.STOP: common_pb2.FINISH_REASON_STOP,
    FinishReason.LENGTH: common_pb2.FINISH_REASON_LENGTH,
    FinishReason.CANCELLED: common_pb2.FINISH_REASON_CANCELLED,
    FinishReason.ERROR: common_pb2.FINISH_REASON_ERROR,
}
_FINISH_FROM_PB = {value: key for key, value in _FINISH_TO_PB.items()}


def finish_reason_to_pb(reason: FinishReason | None) -> common_pb2.FinishReason.ValueType:
    return _FINISH_TO_PB[reason]


def finish_reason_from_pb(value: common_pb2.FinishReason.ValueType) -> FinishReason | None:
    return _FINISH_FROM_PB[value]


def sampling_to_pb(sampling: SamplingParams) -> common_pb2.SamplingParams:
    return common_pb2.SamplingParams(
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        repetition_penalty=sampling.repetition_penalty,
        seed=sampling.seed,
        stop_token_ids=sampling.stop_token_ids,
        ignore_eos=sampling.ignore_eos,
        min_tokens=sampling.min_tokens,
        num_logprobs=sampling.num_logprobs,
        num_prompt_logprobs=sampling.num_prompt_logprobs,
    )


def sampling_from_pb(message: common_pb2.SamplingParams) -> SamplingParams:
    """Proto3 zeros of fields whose zero means nothing (top_p, repetition_penalty) become the neutral value."""
    return SamplingParams(
        max_tokens=message.max_tokens,
        temperature=message.temperature,
        top_k=message.top_k,
        top_p=message.top_p or 1.0,
        min_p=message.min_p,
        presence_penalty=message.presence_penalty,
        frequency_penalty=message.frequency_penalty,
        repetition_penalty=message.repetition_penalty or 1.0,
        seed=message.seed,
        stop_token_ids=tuple(message.stop_token_ids),
        ignore_eos=message.ignore_eos,
        min_tokens=message.min_tokens,
        num_logprobs=message.num_logprobs if message.HasField("num_logprobs") else None,
        num_prompt_logprobs=(message.num_prompt_logprobs if message.HasField("num_prompt_logprobs") else None),
    )


def request_to_pb(request: GenerationRequest, *, traceparent: str = "") -> worker_pb2.SubmitSequence:
    return worker_pb2.SubmitSequence(
        request_id=request.request_id,
        model=request.model,
        prompt_token_ids=request.prompt_token_ids,
        output_token_ids=request.output_token_ids,
        sampling=sampling_to_pb(request.sampling),
        traceparent=traceparent,
    )


def request_from_pb(message: worker_pb2.SubmitSequence) -> GenerationRequest:
    return GenerationRequest(
        request_id=message.request_id,
        model=message.model,
        prompt_token_ids=tuple(message.prompt_token_ids),
        output_token_ids=tuple(message.output_token_ids),
        sampling=sampling_from_pb(message.sampling),
    )


def logprobs_to_pb(logprobs: TokenLogprobs) -> common_pb2.TokenLogprobs:
    return common_pb2.TokenLogprobs(
        token_id=logprobs.token_id,
        logprob=logprobs.logprob,
        rank=logprobs.rank,
        top_token_ids=[token_id for token_id, _ in logprobs.top],
        top_logprobs=[logprob for _, logprob in logprobs.top],
    )


def logprobs_from_pb(message: common_pb2.TokenLogprobs) -> TokenLogprobs:
    top = tuple(zip(message.top_token_ids, message.top_logprobs, strict=True))
    return TokenLogprobs(message.token_id, message.logprob, message.rank, top)


def output_to_pb(output: SequenceOutput) -> worker_pb2.SequenceOutput:
    message = worker_pb2.SequenceOutput(
        request_id=output.request_id,
        token_ids=output.token_ids,
        finish_reason=_FINISH_TO_PB[output.finish_reason],
        stop_token_id=output.stop_token_id,
        num_cached_tokens=output.num_cached_tokens,
    )
    if output.logprobs:
        message.logprobs.extend(map(logprobs_to_pb, output.logprobs))
    if output.prompt_logprobs:
        message.prompt_logprobs.extend(map(logprobs_to_pb, output.prompt_logprobs))
    if output.error:
        message.error.code = ErrorCode.INTERNAL
        message.error.message = output.error
    return message


def output_from_pb(message: worker_pb2.SequenceOutput) -> SequenceOutput:
    return SequenceOutput(
        request_id=message.request_id,
        token_ids=tuple(message.token_ids),
        logprobs=tuple(map(logprobs_from_pb, message.logprobs)) if message.logprobs else (),
        prompt_logprobs=tuple(map(logprobs_from_pb, message.prompt_logprobs)),
        finish_reason=_FINISH_FROM_PB[message.finish_reason],
        stop_token_id=message.stop_token_id if message.HasField("stop_token_id") else None,
        num_cached_tokens=message.num_cached_tokens,
        error=message.error.message,
    )
