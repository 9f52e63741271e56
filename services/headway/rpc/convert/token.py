"""Messages of the token path, converted field by field because they cross once per engine step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from headway.core.adapter import Adapter
from headway.core.errors import ErrorCode
from headway.core.request import (
    FinishReason,
    GenerationRequest,
    Hypothesis,
    SamplingParams,
    SequenceOutput,
    TokenLogprobs,
)
from headway.rpc.convert.sampling import sampling_from_pb, sampling_to_pb
from headway.v1 import common_pb2, worker_pb2

_FINISH_TO_PB = {
    None: common_pb2.FINISH_REASON_UNSPECIFIED,
    FinishReason.STOP: common_pb2.FINISH_REASON_STOP,
    FinishReason.LENGTH: common_pb2.FINISH_REASON_LENGTH,
    FinishReason.CANCELLED: common_pb2.FINISH_REASON_CANCELLED,
    FinishReason.ERROR: common_pb2.FINISH_REASON_ERROR,
}
_FINISH_FROM_PB = {value: key for key, value in _FINISH_TO_PB.items()}

_NO_SAMPLING = SamplingParams()


def finish_reason_to_pb(reason: FinishReason | None) -> common_pb2.FinishReason.ValueType:
    return _FINISH_TO_PB[reason]


def finish_reason_from_pb(value: common_pb2.FinishReason.ValueType) -> FinishReason | None:
    return _FINISH_FROM_PB[value]


def request_to_pb(request: GenerationRequest, *, traceparent: str = "") -> worker_pb2.SubmitSequence:
    return worker_pb2.SubmitSequence(
        request_id=request.request_id,
        model=request.model,
        prompt_token_ids=request.prompt_token_ids,
        output_token_ids=request.output_token_ids,
        sampling=sampling_to_pb(request.sampling),
        traceparent=traceparent,
        cache_salt=request.cache_salt,
        priority=request.priority,
        slack_s=request.slack_s if request.slack_s < math.inf else None,
        tenant=request.tenant,
        tenant_weight=request.tenant_weight if request.tenant_weight != 1.0 else None,
        adapter=None if request.adapter is None else _adapter_to_pb(request.adapter),
    )


def request_from_pb(message: worker_pb2.SubmitSequence) -> GenerationRequest:
    return GenerationRequest(
        request_id=message.request_id,
        model=message.model,
        prompt_token_ids=tuple(message.prompt_token_ids),
        output_token_ids=tuple(message.output_token_ids),
        sampling=sampling_from_pb(message.sampling),
        cache_salt=message.cache_salt,
        priority=message.priority,
        slack_s=message.slack_s if message.HasField("slack_s") else math.inf,
        tenant=message.tenant,
        tenant_weight=message.tenant_weight if message.HasField("tenant_weight") else 1.0,
        adapter=_adapter_from_pb(message.adapter) if message.HasField("adapter") else None,
    )


def _adapter_to_pb(adapter: Adapter) -> common_pb2.Adapter:
    return common_pb2.Adapter(name=adapter.name, directory=adapter.directory, digest=adapter.digest)


def _adapter_from_pb(message: common_pb2.Adapter) -> Adapter:
    return Adapter(name=message.name, directory=message.directory, digest=message.digest)


def group_to_pb(requests: Sequence[GenerationRequest], *, traceparent: str = "") -> worker_pb2.SubmitGroup:
    """The sequences of one prompt, which goes over the wire once, as all do that they sample by but for their seeds."""
    first, *others = requests
    group = worker_pb2.SubmitGroup(sequences=[request_to_pb(first, traceparent=traceparent)])
    for request in others:
        message = request_to_pb(replace(request, prompt_token_ids=(), sampling=_NO_SAMPLING), traceparent=traceparent)
        message.ClearField("sampling")
        message.seed = request.sampling.seed
        group.sequences.append(message)
    return group


def group_from_pb(message: worker_pb2.SubmitGroup) -> list[GenerationRequest]:
    """Those that have no prompt, or no sampling parameters, have the first one's."""
    if not message.sequences:
        return []
    first = request_from_pb(message.sequences[0])
    return [first, *(_follower_from_pb(other, first) for other in message.sequences[1:])]


def _follower_from_pb(message: worker_pb2.SubmitSequence, first: GenerationRequest) -> GenerationRequest:
    request = request_from_pb(message)
    return replace(
        request,
        prompt_token_ids=request.prompt_token_ids or first.prompt_token_ids,
        sampling=request.sampling if message.HasField("sampling") else replace(first.sampling, seed=message.seed),
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
    message = worker_pb2.SequenceOutput(request_id=output.request_id, token_ids=output.token_ids)
    if output.finish_reason is not None:
        message.finish_reason = _FINISH_TO_PB[output.finish_reason]
    if output.stop_token_id is not None:
        message.stop_token_id = output.stop_token_id
    if output.num_cached_tokens:
        message.num_cached_tokens = output.num_cached_tokens
    if output.logprobs:
        message.logprobs.extend(map(logprobs_to_pb, output.logprobs))
    if output.prompt_logprobs:
        message.prompt_logprobs.extend(map(logprobs_to_pb, output.prompt_logprobs))
    for hypothesis in output.hypotheses:
        message.hypotheses.add(
            token_ids=hypothesis.token_ids,
            score=hypothesis.score,
            finish_reason=_FINISH_TO_PB[hypothesis.finish_reason],
        )
    if output.error:
        message.error.code = ErrorCode.INTERNAL
        message.error.message = output.error
    return message


def output_from_pb(message: worker_pb2.SequenceOutput) -> SequenceOutput:
    return SequenceOutput(
        request_id=message.request_id,
        token_ids=tuple(message.token_ids),
        logprobs=tuple(map(logprobs_from_pb, message.logprobs)),
        prompt_logprobs=tuple(map(logprobs_from_pb, message.prompt_logprobs)),
        finish_reason=_FINISH_FROM_PB[message.finish_reason],
        stop_token_id=message.stop_token_id if message.HasField("stop_token_id") else None,
        num_cached_tokens=message.num_cached_tokens,
        error=message.error.message,
        hypotheses=tuple(map(_hypothesis_from_pb, message.hypotheses)),
    )


def _hypothesis_from_pb(message: worker_pb2.Hypothesis) -> Hypothesis:
    reason = _FINISH_FROM_PB[message.finish_reason]
    assert reason is not None
    return Hypothesis(tuple(message.token_ids), message.score, reason)
